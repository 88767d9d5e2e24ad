"""``graphsilo federation``: make kits, submit jobs, see how it goes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from graphsilo.cli import terminal
from graphsilo.cli.values import (
    Debug,
    argument,
    clients_of,
    commands,
    option,
    switch,
)
from graphsilo.errors import ConfigError, RunError

federation = commands("federation", "Silos at different machines: kits, jobs, status.")

KitFolder = Annotated[Path, typer.Option(metavar="KIT", help="The coordinator's kit.")]


@federation.command()
def init(
    file: Path = argument("federation.yaml", "Name, coordinator, silos."),
    out: Path = option("DIR", "Folder for the kits and the federation's root key.", default=Path("kits")),
    requests: Path | None = option("DIR", "Signing requests of parties that made their key themselves (NAME.csr)."),
    sealed: bool = switch("--sealed", "Also write each site's kit as one encrypted file, and print its passphrase."),
    debug: Debug = False,
) -> None:
    """Make the kit of every party of a federation."""
    from graphsilo.runtime.engines.nvflare import provision, sealing
    from graphsilo.runtime.remote.federation_file import load_federation

    spec = load_federation(file)
    kits = provision.provision(spec, out, requests=requests)
    terminal.say(f"{spec.name}: {len(spec.silos)} silos at {len(spec.sites)} sites.")
    for kit in kits:
        needs = (
            "" if (kit / "key.pem").exists() else "   (without a key: `graphsilo federation complete` adds it there)"
        )
        terminal.say(f"  {kit}{needs}")
    terminal.say(f"The root key, {out}/root/key.pem, signs new kits: keep it, and show it to nobody.")
    if sealed:
        import secrets

        terminal.say("Sealed kits, which alone hold the sites' keys now, and passphrases, which travel another way:")
        for kit in kits:
            if kit.name != "coordinator" and (kit / "key.pem").exists():
                passphrase = "-".join(secrets.token_hex(3) for _ in range(4))
                terminal.say(f"  {sealing.seal(kit, passphrase)}   {passphrase}")
                (kit / "key.pem").unlink()  # or it would lie open beside the sealed one


@federation.command()
def request(
    name: str = argument("SITE", "Name of this site in the federation."),
    out: Path = option("DIR", "Folder for the key and the request.", default=Path()),
    debug: Debug = False,
) -> None:
    """At a site: make its key and a signing request. The key stays; the request goes to the coordinator."""
    from graphsilo.runtime.engines.nvflare import provision

    path = provision.request(name, out)
    terminal.say(f"Send {path} to the coordinator. The key beside it never leaves this machine.")


@federation.command()
def complete(
    kit: Path = argument("KIT", "The kit that came back for this site's request."),
    key: Path = option("FILE", "The key that was made with the request.", default=...),
    debug: Debug = False,
) -> None:
    """At a site: put its key into the kit that was signed for it."""
    from graphsilo.runtime.engines.nvflare import provision

    terminal.say(f"{provision.complete(kit, key)} is complete.")


@federation.command("open")
def open_sealed(
    file: Path = argument("SITE.kit", "A sealed kit."),
    out: Path = option("DIR", "Folder for the kit.", default=...),
    debug: Debug = False,
) -> None:
    """At a site: open a sealed kit; asks for its passphrase."""
    from graphsilo.runtime.engines.nvflare import sealing

    passphrase = typer.prompt("Passphrase", hide_input=True, err=True)
    terminal.say(f"{sealing.open_sealed(file, passphrase.strip(), out)} is open.")


@federation.command()
def add(
    name: str = argument("SILO", "Name of the new silo; it gets the next client number."),
    site: str | None = option("SITE", "The site it lives at; else a new one of its own name."),
    out: Path = option("DIR", "The folder that `init` made.", default=Path("kits")),
    requests: Path | None = option("DIR", "Folder with the new site's signing request (SITE.csr)."),
    debug: Debug = False,
) -> None:
    """Add a silo to a federation: its kit is made, the other kits are brought up to date."""
    from graphsilo.runtime.engines.nvflare import provision

    for kit in provision.add_silo(out, name, site=site or "", requests=requests):
        terminal.say(f"  {kit}")
    terminal.say(
        "The coordinator needs its kit.json from this folder, and must be started again; for secure sums, sites too."
    )


@federation.command()
def renew(
    name: str = argument("PARTY", "A site, or coordinator."),
    out: Path = option("DIR", "The folder that `init` made.", default=Path("kits")),
    debug: Debug = False,
) -> None:
    """Sign a party's certificate again before it expires."""
    from graphsilo.runtime.engines.nvflare import provision

    terminal.say(f"{provision.renew(out, name)} is renewed; bring the file to the party.")


@federation.command()
def submit(
    config: Path | None = argument("CONFIG.yaml", "What to run; the silos hold the data.", default=None),
    kit: KitFolder = Path("kits/coordinator"),
    out: Path | None = option("DIR", "Folder for the results; else inside the kit."),
    go_on: str | None = option("JOB", "Continue this stopped or failed job instead.", flags="--continue"),
    assignments: list[str] | None = option("NAME=VALUE", "Any setting; repeatable.", flags="--set"),
    without: list[str] | None = option("er,icu", "Silos that are left out, by name or number; nobody waits for them."),
    debug: Debug = False,
) -> None:
    """Put a job in the coordinator's queue."""
    from graphsilo.experiments.service.jobs import Jobs
    from graphsilo.runtime.engines.choice import coordinator_kit

    own = coordinator_kit(kit)
    jobs = Jobs(own.folder)
    said = [*(assignments or ()), *([f"run.without={json.dumps(clients_of(without))}"] if without else ())]
    if (config is None) == (go_on is None):
        raise ConfigError("give either a configuration to submit, or a job with --continue.")
    if go_on is not None:
        if said or out is not None:
            raise ConfigError(
                f"a job that is continued keeps its settings and its folder: leave out "
                f"{'--set' if assignments else '--without' if without else '--out'}, or submit it again."
            )
        job = jobs.get(go_on)
        if job.state not in ("stopped", "failed"):
            raise ConfigError(f"job {job.id} is {job.state}; only a stopped or failed job can be continued.")
        jobs.go_on(job)
    elif config is not None:
        job = jobs.submit(config, out=out, assignments=said, names=own.silos)
    terminal.say(f"{job.id} is in the queue; results go to {job.out}")


@federation.command()
def stop(
    job: str = argument("JOB", "A job, by name or number."),
    kit: KitFolder = Path("kits/coordinator"),
    debug: Debug = False,
) -> None:
    """Stop a job after its current round; `submit --continue` goes on with it."""
    from graphsilo.experiments.service.jobs import Jobs
    from graphsilo.runtime.engines.choice import coordinator_kit

    jobs = Jobs(coordinator_kit(kit).folder)
    found = jobs.get(job)
    if found.state not in ("queued", "running"):
        raise ConfigError(f"job {found.id} is {found.state} already.")
    jobs.ask_stop(found)
    terminal.say(
        f"{found.id} stops after its current round." if found.state == "running" else f"{found.id} is stopped."
    )


@federation.command()
def status(
    kit: KitFolder = Path("kits/coordinator"),
    as_json: bool = switch("--json", "Everything, for programs."),
    debug: Debug = False,
) -> None:
    """Show the coordinator, its silos and its jobs."""
    from graphsilo.experiments.service.jobs import Jobs
    from graphsilo.experiments.service.watch import json_text, read_status
    from graphsilo.runtime.engines.choice import coordinator_kit

    own = coordinator_kit(kit)
    folder = own.folder
    tree = read_status(folder) or {}
    jobs = Jobs(folder).all()
    tree["serving"] = bool(tree) and is_served(folder)
    if as_json:
        terminal.say(
            json_text({**tree, "certificate_expires": own.expires.timestamp(), "jobs": [vars(job) for job in jobs]})
        )
        return
    from graphsilo.cli.federation.view import show_status

    show_status(tree, jobs)
    if soon := own.ends_soon():
        terminal.say()
        terminal.say(soon)


@federation.command()
def logs(
    kit: KitFolder = Path("kits/coordinator"),
    lines: int = option("N", "How many lines.", flags="-n", default=40),
    follow: bool = switch("--follow -f", "Go on as they come."),
    engine: bool = switch("--engine", "The engine's log instead."),
    debug: Debug = False,
) -> None:
    """Show what the coordinator noted."""
    from graphsilo.cli.federation.view import printable
    from graphsilo.runtime.engines.nvflare.kit import read_kit

    run = read_kit(kit).run
    own = "coordinator.log" if (run / "coordinator.log").exists() else "site.log"
    path = run / ("engine.log" if engine else own)
    if not path.exists():
        raise RunError(f"{path} is not there yet: nobody has served this kit.")
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file.readlines()[-lines:]:
            sys.stdout.write(printable(line.rstrip("\n")) + "\n")
        while follow:
            line = file.readline()
            sys.stdout.write(printable(line.rstrip("\n")) + "\n" if line else "")
            sys.stdout.flush()
            if not line:
                time.sleep(0.3)


def is_served(folder: Path) -> bool:
    """Whether a process serves the kit just now."""
    from graphsilo.experiments.storage.disk import hold_folder

    try:
        with hold_folder(folder / "run"):
            return False
    except RunError:
        return True
