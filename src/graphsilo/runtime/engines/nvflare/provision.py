"""One kit per party, and everything that happens to kits later.

The folder of a federation stays with whoever runs it::

    FOLDER/federation.yaml   as it was provisioned
    FOLDER/root/             the root's certificate and key (0600): adds silos and renews certificates; never travels
    FOLDER/coordinator/      kit of the coordinator
    FOLDER/SITE/             kit of each site

A site gets its kit in one of two ways. *Made there*: the site makes key and signing request (``request``), sends the
request, gets a kit without a key and puts both together (``complete``): its key never travels. *Shipped sealed*: the
kit holds a key made here and travels as one encrypted file (``sealing.seal``), the passphrase by another way.
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from graphsilo import documents
from graphsilo.errors import ConfigError, RunError
from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, COORDINATOR, KEY, ROOT, read_kit, write_kit
from graphsilo.runtime.remote.federation_file import FederationSpec, check_name, load_federation

_SPEC = "federation.yaml"


def provision(spec: FederationSpec, folder: str | Path, *, requests: str | Path | None = None) -> list[Path]:
    """Make the kits of a federation.

    Args:
        spec: Who takes part.
        folder: Where they are made; must not hold a federation already.
        requests: Folder with signing requests ``PARTY.csr``; who has one there gets a kit without a key.

    Returns:
        The kits, the coordinator's first.

    Raises:
        RunError: The folder holds a federation, or a request is not in order.
    """
    folder = Path(folder).resolve()
    if (folder / _SPEC).exists() or (folder / "root").exists():
        raise RunError(f"{folder} holds a federation already: choose another folder, or add a silo to it.")
    asked = _requests(requests, (COORDINATOR, *spec.sites))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    taken = [party for party in (COORDINATOR, *spec.sites) if (folder / party).exists()]
    if taken:
        raise RunError(f"{folder} has a folder '{taken[0]}' already: choose an empty folder for the kits.")
    key, root = certificates.make_root(spec.name)
    (folder / "root").mkdir(mode=0o700)
    certificates.write_private(folder / "root" / KEY, certificates.key_pem(key))
    (folder / "root" / ROOT).write_bytes(certificates.cert_pem(root))
    kits = [_make_kit(folder, party, spec, key, root, asked.get(party)) for party in (COORDINATOR, *spec.sites)]
    (folder / _SPEC).write_text(
        documents.write(spec.model_dump(exclude_none=True)), encoding="utf-8"
    )  # last: a folder with it is complete
    return kits


def add_silo(folder: str | Path, name: str, *, site: str = "", requests: str | Path | None = None) -> list[Path]:
    """Add a silo, with the next client number, to a federation that was provisioned before.

    The kits in the folder are brought up to date; parties that have taken theirs away need the new ``kit.json`` (the
    coordinator must have it to ask the new site; to the other sites it is news only).

    Args:
        folder: Of the federation.
        name: Of the silo.
        site: Where it lives; by default a site of its own.
        requests: As in ``provision``.

    Returns:
        The new site's kit; empty if the site has one already.

    Raises:
        ConfigError: The name is taken or cannot be one.
        RunError: The folder holds no federation.
    """
    folder = Path(folder).resolve()
    before = _read_spec(folder)
    spec = FederationSpec.of(
        {**before.model_dump(), "silos": [*(silo.model_dump() for silo in before.silos), {"name": name, "site": site}]},
        origin="the new silo",
    )
    party = spec.silos[-1].site
    key, root = _read_root(folder)
    made = []
    if party not in before.sites:
        made = [_make_kit(folder, party, spec, key, root, _requests(requests, (party,)).get(party))]
    for other in (COORDINATOR, *before.sites):
        if (folder / other).is_dir():
            write_kit(folder / other, other, spec, certificates.fingerprint(root))
    (folder / _SPEC).write_text(documents.write(spec.model_dump(exclude_none=True)), encoding="utf-8")
    return made


def renew(folder: str | Path, party: str) -> Path:
    """Give a party a certificate with a new date, for the key it has.

    Returns:
        The certificate, which is to replace ``certificate.pem`` in the party's kit.

    Raises:
        RunError: The folder holds no federation, or has no kit of this party.
    """
    folder = Path(folder).resolve()
    spec = _read_spec(folder)
    if party not in (COORDINATOR, *spec.sites):
        raise RunError(
            f"federation '{spec.name}' has no party '{party}'; it has {', '.join((COORDINATOR, *spec.sites))}."
        )
    path = folder / party / CERTIFICATE
    public_key = certificates.read_cert(path).public_key()
    if not isinstance(public_key, rsa.RSAPublicKey):
        raise RunError(f"{path} has no RSA key, so it was not made here.")
    key, root = _read_root(folder)
    certificate = certificates.sign_party(key, root, party, public_key, hosts=_hosts(party, spec))
    path.write_bytes(certificates.cert_pem(certificate))
    return path


def request(name: str, folder: str | Path) -> Path:
    """At the silo: make a key and a signing request for it.

    Args:
        name: Of the site (or 'coordinator').
        folder: Where ``NAME.key`` (0600, stays here) and ``NAME.csr`` (goes to the coordinator) are written.

    Returns:
        The signing request.

    Raises:
        RunError: There is a key already; it is not replaced.
        ConfigError: The name cannot be one.
    """
    if name != COORDINATOR:
        check_name(name, "site")
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / f"{name}.key").exists():
        raise RunError(f"{folder / f'{name}.key'} exists already: delete it first if a new key is really wanted.")
    key = certificates.new_key()
    certificates.write_private(folder / f"{name}.key", certificates.key_pem(key))
    path = folder / f"{name}.csr"
    path.write_bytes(certificates.make_request(name, key))
    return path


def complete(kit: str | Path, key: str | Path) -> Path:
    """At the silo: put the key that was made there into the kit that came back.

    Returns:
        The kit, ready.

    Raises:
        RunError: Key and certificate do not fit, or the kit is not in order.
    """
    found = read_kit(kit)
    own = certificates.read_key(Path(key))
    if not certificates.fits(certificates.read_cert(found.folder / CERTIFICATE), own):
        raise RunError(
            f"the key {key} does not fit the certificate in {found.folder}: it was made for another request."
        )
    certificates.write_private(found.folder / KEY, certificates.key_pem(own))
    found.folder.chmod(0o700)
    found.check()
    return found.folder


def _make_kit(
    folder: Path,
    party: str,
    spec: FederationSpec,
    root_key: rsa.RSAPrivateKey,
    root: x509.Certificate,
    public_key: rsa.RSAPublicKey | None,
) -> Path:
    kit = folder / party
    if kit.exists():
        raise RunError(f"{kit} exists already: choose another name, or move it away.")
    kit.mkdir(mode=0o700)
    if public_key is None:
        own = certificates.new_key()
        certificates.write_private(kit / KEY, certificates.key_pem(own))
        public_key = own.public_key()
    certificate = certificates.sign_party(root_key, root, party, public_key, hosts=_hosts(party, spec))
    (kit / ROOT).write_bytes(certificates.cert_pem(root))
    (kit / CERTIFICATE).write_bytes(certificates.cert_pem(certificate))
    write_kit(kit, party, spec, certificates.fingerprint(root))
    return kit


def _hosts(party: str, spec: FederationSpec) -> tuple[str, ...]:
    return spec.coordinator.hosts if party == COORDINATOR else ()


def _requests(folder: str | Path | None, parties: tuple[str, ...]) -> dict[str, rsa.RSAPublicKey]:
    if folder is None:
        return {}
    folder = Path(folder)
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder} with signing requests.")
    strangers = sorted(path.stem for path in folder.glob("*.csr") if path.stem not in parties)
    if strangers:
        raise RunError(
            f"{folder} has a signing request of '{strangers[0]}', who is none of {', '.join(parties)}: is the name "
            f"right?"
        )
    return {
        party: certificates.read_request(folder / f"{party}.csr", party)
        for party in parties
        if (folder / f"{party}.csr").is_file()
    }


def _read_root(folder: Path) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    return certificates.read_key(folder / "root" / KEY), certificates.read_cert(folder / "root" / ROOT)


def _read_spec(folder: Path) -> FederationSpec:
    try:
        return load_federation(folder / _SPEC)
    except ConfigError as error:
        raise RunError(f"{folder} holds no federation that could be changed: {error}") from None
