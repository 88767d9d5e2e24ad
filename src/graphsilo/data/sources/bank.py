"""Generated banks: accounts, merchants, transfers and payments, among them money mules.

A *mule* is an account that passes stolen money on. Mules work in rings: victims send money to one of them, which sends
it within days to the next, down to a collector that buys what cannot be traced. Some parts stay just below a limit of
reporting. What makes it hard is what honest people do: newcomers have accounts that look like those of mules,
treasurers and resellers pass money on as quickly, and employers, landlords and charities know more people than any
ring. So neither an account's own columns nor its own turnover decide; with whom it deals does.

Mules are found some days after their ring was at work, and every account is looked at on one day of its own: what is
later has no part in what a bank can know of it then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.institutions import (
    FIRST_DAY,
    MONTH,
    Institutions,
    LinkRows,
    NodeTable,
    Tables,
    spread,
)
from graphsilo.settings import setting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SEGMENTS = ("retail", "sme", "private", "student")
COUNTRIES = ("DE", "FR", "IT", "NL", "PL", "RO")
CATEGORIES = ("groceries", "fuel", "travel", "rent", "online", "gambling", "cash", "exchange")
CHANNELS = ("sepa", "instant", "cash")
CLASSES = ("ok", "mule")
_BANKS = (
    "adler", "birch", "corso", "delta", "elbe", "falke", "garda", "hafen", "istra", "jura", "krone", "linde", "merkur",
    "nord", "orion", "porto", "quelle", "rhone", "sava", "tejo", "union", "vesta", "weser", "xanto", "ypern", "zenit",
    "argo", "borea", "celta", "duero",
)  # fmt: skip
_LIMIT = 10_000.0
"""Transfers from which on banks report them."""
_PER_ACCOUNT = 10
"""Transfers."""
_COMMUNITY = 40
"""Accounts whose holders know each other."""


class Bank(Institutions):
    """``bank``: banks with accounts, merchants, transfers and payments; some accounts are money mules.

    Raises:
        ConfigError: A setting is of the wrong type or out of range.
    """

    name: ClassVar[str] = "bank"

    transfers: int = setting(300_000, "rows between accounts; a tenth as many accounts", ge=10_000, le=10_000_000)
    banks: int = setting(4, "institutions, each with its own size, customers and amounts", ge=4, le=len(_BANKS))
    positives: float = setting(0.02, "share of accounts that are mules", ge=0.002, le=0.1)
    months: int = setting(12, "how long the tables reach; accounts are looked at from the third month on", ge=6, le=60)
    labelled: float = setting(0.6, "share of accounts that were ever looked into", gt=0, le=1)
    shared_customers: float = setting(
        0.0, "share of accounts whose holder has another at another bank; these are nodes that both banks know",
        ge=0, le=0.5,
    )  # fmt: skip

    @property
    def least_bytes(self) -> int:
        """Bytes that making it takes at the very least."""
        return 130 * self.transfers

    def draw_tables(self) -> Tables:
        """Types ``account`` and ``merchant``, and ``customer`` where banks share some; relations of their links."""
        people = _draw_accounts(self)
        merchants, category, place = _draw_merchants(self)
        since = merchants.columns["since"].astype(np.float64)
        rows = _draw_transfers(self, people)
        names = [*_BANKS[: self.banks]]
        nodes = {"account": _account_table(self, people), "merchant": merchants}
        links = {"transfer": rows, "payment": _draw_payments(self, people, category, place, since)}
        if self.shared_customers:
            nodes["customer"], links["holds"] = _share_customers(self, people)
        return Tables(nodes, links, names, CLASSES)

    @property
    def accounts(self) -> int:
        """n."""
        return self.transfers // _PER_ACCOUNT


@dataclass(frozen=True, eq=False)
class _Accounts:
    """What is drawn of accounts before any money moves; all [n].

    Attributes:
        bank, community: Where they are.
        scale: Typical amounts of the bank, as a factor.
        mule: Which are mules.
        ring: Number of a mule's ring, -1 of all others.
        start: Day on which the ring's work begins; NaN of all others.
        day: On which the account is looked at.
        newcomer: Whose holder came lately.
        role: 0 customer, 1 employer, 2 landlord, 3 charity, 4 treasurer or reseller.
    """

    bank: Ints
    community: Ints
    scale: Floats
    mule: Bools
    ring: Ints
    start: Floats
    day: Floats
    newcomer: Bools
    role: Ints

    def __len__(self) -> int:
        return len(self.bank)


def _draw_accounts(bank: Bank) -> _Accounts:
    n, count = bank.accounts, bank.banks
    draw = bank.draw("accounts")
    share = (np.arange(count) + 1.0) ** -0.6 * np.exp(draw.normal(0, 0.2, count))
    of_bank = np.sort(draw.choice(count, n, p=share / share.sum()))
    of_bank[:count] = np.arange(count)  # none is empty
    of_bank.sort()
    # Communities lie within banks; in few of them most are newcomers.
    first = np.searchsorted(of_bank, np.arange(count + 1))
    homes = np.maximum(1, np.diff(first) // _COMMUNITY)
    community = (np.concatenate([[0], np.cumsum(homes)])[of_bank] + (draw.random(n) * homes[of_bank])).astype(np.int64)
    young = (
        np.where(draw.random(int(homes.sum())) < 0.13, 0.6, 0.06)[community] * draw.uniform(0.6, 1.6, count)[of_bank]
    )
    newcomer = draw.random(n) < young
    role = np.where(newcomer, np.where(draw.random(n) < 0.3, 4, 0), _draw_roles(bank, draw, n))
    ring, start = _draw_rings(bank, of_bank, role, first)
    mule = ring >= 0
    newcomer[mule] = draw.random(int(mule.sum())) < 0.6
    role[mule] = 0
    day = draw.uniform(0.2 * bank.days, bank.days, n)
    day[mule] = np.clip(start[mule] + draw.uniform(10, 75, int(mule.sum())), 0.2 * bank.days, bank.days)
    scale = np.exp(draw.normal(0, 0.35, count))[of_bank]
    return _Accounts(of_bank, community, scale, mule, ring, start, np.floor(day), newcomer, role)


def _draw_roles(bank: Bank, draw: np.random.Generator, n: int) -> Ints:
    """[n] roles of honest accounts of some standing."""
    shares = np.array([0.004, 0.004, 0.001, min(0.12, 3 * bank.positives)])
    return (np.searchsorted(np.cumsum(shares), draw.random(n), side="right") + 1) % (len(shares) + 1)


def _draw_rings(bank: Bank, of_bank: Ints, role: Ints, first: Ints) -> tuple[Ints, Floats]:
    """[n] ring of each account, -1 for none, and the day on which its work begins; most of a ring are at one bank."""
    n, draw = len(of_bank), bank.draw("rings")
    pull = np.exp(draw.normal(0, 0.4, bank.banks)) * np.diff(first)
    total = max(2 * bank.banks, round(bank.positives * n))
    sizes = 3 + draw.poisson(3.0, total // 3 + 1)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), total)) + 1]
    sizes[-1] -= int(sizes.sum()) - total
    home = draw.choice(bank.banks, len(sizes), p=pull / pull.sum())
    ring = np.repeat(np.arange(len(sizes)), sizes)
    where = np.where(draw.random(total) < 0.7, home[ring], draw.choice(bank.banks, total, p=pull / pull.sum()))
    # Every bank has two at least: what a bank has never seen it cannot be asked about.
    where[: 2 * bank.banks] = np.tile(np.arange(bank.banks), 2)
    found = np.full(n, -1, dtype=np.int64)
    for number in range(bank.banks):
        wanted = np.flatnonzero(where == number)[: first[number + 1] - first[number]]
        found[first[number] + draw.permutation(first[number + 1] - first[number])[: len(wanted)]] = ring[wanted]
    begin = draw.uniform(0.1 * bank.days, bank.days - 30, len(sizes))
    return found, np.where(found >= 0, begin[found], np.nan)


def _account_table(bank: Bank, people: _Accounts) -> NodeTable:
    n, draw = len(people), bank.draw("columns")
    new, mule = people.newcomer, people.mule
    tenure = np.where(new, 45 + np.exp(draw.normal(4.7, 0.7, n)), 60 + np.exp(draw.normal(7.4, 0.7, n)))
    tenure = np.where(mule & new, 30 + np.exp(draw.normal(4.1, 0.6, n)), tenure)
    age = np.where(new, draw.normal(27, 7, n), draw.normal(48, 16, n)) - 2.0 * (mule & new)
    mix = draw.dirichlet(np.array([6.0, 2.0, 1.5, 1.0]), bank.banks)
    segment = _draw_by_row(draw, mix, people.bank)
    segment = np.where(new, np.where(draw.random(n) < 0.5, 3, 0), segment)
    segment = np.where(np.isin(people.role, (1, 2, 3)), 1, segment)
    abroad = draw.random(n) < np.where(new, 0.4, 0.15) + 0.15 * (mule & new)
    country = np.where(abroad, draw.integers(0, len(COUNTRIES), n), people.bank % len(COUNTRIES))
    balance = np.exp(draw.normal(7.3, 1.1, n) - 0.9 * new - 0.3 * mule) * people.scale
    balance *= np.where(np.isin(people.role, (1, 2, 3)), 12, 1)
    online = draw.random(n) < np.where(new, 0.9, 0.6)
    labels = np.where(draw.random(n) < bank.labelled, mule.astype(np.int64), -1)
    names = np.char.add(np.array(_BANKS)[people.bank], np.char.zfill(draw.permutation(n).astype(str), 8))
    columns = {
        "balance": np.round(balance, 2),
        "tenure": np.floor(tenure),
        "age": np.clip(np.floor(age), 18, 95),
        "online": online.astype(np.float64),
        **spread(SEGMENTS, segment, "segment"),
        **spread(COUNTRIES, country, "country"),
    }
    return NodeTable(names, columns, people.bank, labels, FIRST_DAY + people.day)


def _draw_merchants(bank: Bank) -> tuple[NodeTable, Ints, Ints]:
    """Merchants, the category of each, and the bank in whose region it is."""
    count, draw = max(10 * bank.banks, bank.accounts // 25), bank.draw("merchants")
    category = draw.choice(len(CATEGORIES), count, p=[0.28, 0.1, 0.1, 0.05, 0.27, 0.06, 0.08, 0.06])
    place = draw.integers(0, bank.banks, count)
    names = np.char.add("shop", np.char.zfill(np.arange(count).astype(str), 6))
    columns = {"since": np.floor(draw.uniform(100, 9000, count)), **spread(CATEGORIES, category, "category")}
    return NodeTable(names, columns, np.full(count, -1)), category, place


# -- Money ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """Transfers: [r] ends, amount, day and channel of each."""

    source: Ints
    target: Ints
    amount: Floats
    day: Floats
    channel: Ints


def _draw_transfers(bank: Bank, people: _Accounts) -> LinkRows:
    """As many as were asked for: what is regular, what mules and treasurers pass on, and between friends the rest."""
    parts = [*_draw_regular(bank, people), *_draw_flows(bank, people), *_draw_errands(bank, people)]
    known = sum(len(part.source) for part in parts)
    parts.append(_draw_between_friends(bank, people, max(0, bank.transfers - known)))
    # Earlier parts are fewer than the friends' in any setting; should they ever be more, some of all go.
    kept = bank.draw("kept").permutation(max(known, bank.transfers))[: bank.transfers]
    whole = {key: np.concatenate([getattr(part, key) for part in parts])[kept] for key in _Rows.__dataclass_fields__}
    order = np.argsort(whole["day"], kind="stable")
    whole = {key: values[order] for key, values in whole.items()}
    columns = {"amount": np.round(whole["amount"], 2), **spread(CHANNELS, whole["channel"], "channel")}
    ends = np.stack([whole["source"], whole["target"]])
    return LinkRows("account", "account", ends, columns, FIRST_DAY + whole["day"])


def _draw_regular(bank: Bank, people: _Accounts) -> list[_Rows]:
    """Wages, rents and gifts: what hubs have to do with many, month by month."""
    found = []
    kinds = (
        (1, 0.20, 27, 7.6, 0.35, True, "wages"),
        (2, 0.15, 2, 6.5, 0.30, False, "rents"),
        (3, 0.03, 15, 3.2, 0.60, False, "gifts"),
    )
    for role, share, date, size, spread_of, outwards, what in kinds:
        draw = bank.draw(what)
        hubs = np.flatnonzero(people.role == role)
        others = np.flatnonzero((people.role == 0) | (people.role == 4))
        others = others[draw.random(len(others)) < share * min(1.0, 12 / bank.months)]
        if not len(hubs):
            continue
        hub = _nearby(draw, people.bank, hubs, others, 0.85)
        amount = np.exp(draw.normal(size, spread_of, len(others))) * people.scale[others]
        month = np.tile(np.arange(bank.months), len(others))
        who = np.repeat(np.arange(len(others)), bank.months)
        day = np.clip(MONTH * month + date + draw.uniform(-2, 2, len(who)), 0, bank.days - 0.01)
        ends = (hub[who], others[who])
        source, target = ends if outwards else ends[::-1]
        found.append(_Rows(source, target, amount[who], day, np.zeros(len(who), dtype=np.int64)))
    return found


def _draw_flows(bank: Bank, people: _Accounts) -> list[_Rows]:
    """Stolen money on its way: from a victim through up to four mules of a ring, within days."""
    draw = bank.draw("flows")
    mules = np.flatnonzero(people.mule)
    mules = mules[np.argsort(people.ring[mules] + draw.random(len(mules)) * 0.5, kind="stable")]
    starts, sizes = np.unique(people.ring[mules], return_index=True, return_counts=True)[1:]
    busy = draw.gamma(2.0, 0.5, len(sizes))
    flows = draw.poisson(np.maximum(1.5 * sizes * busy, 1.0))
    of_ring = np.repeat(np.arange(len(sizes)), flows)
    count = len(of_ring)
    at = (draw.random(count) * sizes[of_ring]).astype(np.int64)
    honest = np.flatnonzero(~people.mule & (people.role == 0))
    victim = _nearby(draw, people.bank, honest, mules[starts[of_ring] + at], 0.6)
    day = people.start[mules[starts[of_ring]]] + draw.uniform(0, 40, count)
    amount = np.exp(draw.normal(7.0, 0.9, count))
    below = (draw.random(len(sizes)) < 0.25)[of_ring] & (draw.random(count) < 0.6)
    amount = np.where(below, _LIMIT * draw.uniform(0.9, 0.995, count), amount)
    found = []
    holder, alive = victim, np.ones(count, dtype=bool)
    for _ in range(4):
        receiver = mules[starts[of_ring] + at]
        keep = np.flatnonzero(alive & (holder != receiver) & (day < bank.days))
        channel = np.where(draw.random(len(keep)) < 0.45, 1, 0)
        found.append(_Rows(holder[keep], receiver[keep], amount[keep], day[keep], channel))
        holder = receiver
        # Down the ring: later members collect.
        at = np.minimum(at + 1 + (draw.random(count) * 2).astype(np.int64), sizes[of_ring] - 1)
        amount = np.where(below, amount, amount * draw.uniform(0.85, 0.97, count))
        day = day + draw.uniform(0.05, 2.5, count)
        alive &= draw.random(count) < 0.85
    return found


def _draw_errands(bank: Bank, people: _Accounts) -> list[_Rows]:
    """What treasurers and resellers do: collect from several, and pay on within days."""
    draw = bank.draw("errands")
    who = np.flatnonzero(people.role == 4)
    if not len(who):
        return []
    who = np.repeat(who, 1 + draw.poisson(0.8, len(who)))
    # Most are at work shortly before they are looked at, as mules are.
    near = people.day[who] - draw.uniform(5, 70, len(who))
    start = np.where(draw.random(len(who)) < 0.6, near, draw.uniform(0, bank.days - 10, len(who)))
    start = np.clip(start, 0, bank.days - 10)
    ins = 1 + draw.poisson(2.5, len(who))
    each = np.repeat(np.arange(len(who)), ins)
    giver = _in_community(draw, people, who[each])
    amount = np.exp(draw.normal(7.0, 0.9, len(each)))
    below = (draw.random(len(who)) < 0.1)[each] & (draw.random(len(each)) < 0.6)
    amount = np.where(below, _LIMIT * draw.uniform(0.9, 0.995, len(each)), amount)
    day = np.clip(start[each] + draw.uniform(0, 30, len(each)), 0, bank.days - 0.01)
    onto = np.where(
        draw.random(len(who)) < 0.5, _in_community(draw, people, who), draw.integers(0, len(people), len(who))
    )
    hubs = np.flatnonzero(np.isin(people.role, (1, 2, 3)))
    if len(hubs):
        onto = np.where(draw.random(len(who)) < 0.3, _nearby(draw, people.bank, hubs, who, 0.8), onto)
    onto = np.where(draw.random(len(each)) < 0.6, onto[each], _in_community(draw, people, who[each]))
    later = np.minimum(day + draw.uniform(0.05, 3.0, len(each)), bank.days - 0.01)
    fast = (draw.random(len(each)) < 0.35).astype(np.int64)
    kept = draw.uniform(0.85, 1.0, len(each))
    first = _Rows(giver, who[each], amount, day, fast)
    second = _Rows(who[each], onto, amount * kept, later, fast)
    return [_without_loops(first), _without_loops(second)]


def _draw_between_friends(bank: Bank, people: _Accounts, count: int) -> _Rows:
    """Transfers among people who know each other, the same pairs again and again, mostly small."""
    draw, n = bank.draw("friends"), len(people)
    one = draw.integers(0, n, 2 * n)
    other = np.where(draw.random(2 * n) < 0.75, _in_community(draw, people, one), draw.integers(0, n, 2 * n))
    weight = np.cumsum(np.where(one == other, 0.0, draw.gamma(0.7, 1.0, 2 * n)))
    pair = np.minimum(np.searchsorted(weight, draw.random(count) * weight[-1]), 2 * n - 1)
    turned = draw.random(count) < 0.4
    source, target = np.where(turned, other[pair], one[pair]), np.where(turned, one[pair], other[pair])
    amount = np.exp(draw.normal(4.2, 1.3, count)) * people.scale[source]
    channel = draw.choice(3, count, p=[0.7, 0.25, 0.05])
    return _without_loops(_Rows(source, target, amount, draw.uniform(0, bank.days, count), channel))


def _draw_payments(bank: Bank, people: _Accounts, category: Ints, place: Ints, since: Floats) -> LinkRows:
    """A quarter as many as transfers; rings cash in at few shops."""
    draw, count, n = bank.draw("payments"), bank.transfers // 4, len(people)
    who = draw.integers(0, n, count)
    fame = draw.pareto(1.3, len(category)) + 0.2
    everyday = np.flatnonzero(category < 6)
    shop = everyday[_weighted(draw, fame[everyday], count)]
    local = np.flatnonzero(draw.random(count) < 0.6)
    shop[local] = _nearby_weighted(draw, place, fame, people.bank[who[local]], everyday)
    odd = np.flatnonzero(category >= 6)
    seldom = np.flatnonzero(draw.random(count) < np.where(people.newcomer[who], 0.18, 0.1))
    shop[seldom] = odd[_weighted(draw, fame[odd], len(seldom))]
    amount = np.exp(draw.normal(3.3, 1.0, count)) * np.where(category[shop] >= 6, 4.0, 1.0)
    day = draw.uniform(0, bank.days, count)
    # The last ones are those of mules and of resellers, who buy as much.
    busy = np.flatnonzero(people.mule | (people.role == 4))
    many = min(count // 2, 2 * len(busy))
    buyer = busy[draw.integers(0, len(busy), many)]
    begin = np.where(people.mule, people.start, people.day - 55)[buyer]
    who[-many:], amount[-many:] = buyer, np.exp(draw.normal(4.7, 1.0, many))
    day[-many:] = np.clip(begin + draw.uniform(0, 45, many), 0, bank.days - 0.01)
    young = odd[np.argsort(since[odd])[: max(2, len(odd) // 3)]]
    own = draw.integers(0, len(young), (int(people.ring.max()) + 1, 2))[people.ring[buyer], draw.integers(0, 2, many)]
    shop[-many:] = np.where(people.mule[buyer] & (draw.random(many) < 0.6), young[own], shop[-many:])
    order = np.argsort(day, kind="stable")
    ends = np.stack([who, shop])[:, order]
    return LinkRows("account", "merchant", ends, {"amount": np.round(amount[order], 2)}, FIRST_DAY + day[order])


def _share_customers(bank: Bank, people: _Accounts) -> tuple[NodeTable, LinkRows]:
    """Persons with accounts at two banks; of a mule the other account is a mule's, too."""
    draw, pairs = bank.draw("customers"), []
    for kind in (people.mule, ~people.mule & (people.role == 0)):
        some = draw.permutation(np.flatnonzero(kind))
        some = some[: round(bank.shared_customers * len(some)) // 2 * 2].reshape(-1, 2)
        pairs.append(some[people.bank[some[:, 0]] != people.bank[some[:, 1]]])
    both = np.concatenate(pairs)
    count = len(both)
    names = np.char.add("person", np.char.zfill(draw.permutation(count).astype(str), 7))
    resident = draw.random(count) < np.where(people.newcomer[both].any(axis=1), 0.4, 0.9)
    ends = np.stack([np.repeat(np.arange(count), 2), both.ravel()])
    return NodeTable(names, {"resident": resident.astype(np.float64)}, np.full(count, -1)), LinkRows(
        "customer", "account", ends
    )


# -- Draws ---------------------------------------------------------------------------------------------------------


def _draw_by_row(draw: np.random.Generator, table: Floats, rows: Ints) -> Ints:
    """One column per entry of ``rows``, in proportion to that row of ``table``, whose rows add up to 1."""
    flat = (np.cumsum(table, axis=1) + np.arange(len(table))[:, None]).ravel()
    place = np.searchsorted(flat, rows + draw.random(len(rows)), side="right") - rows * table.shape[1]
    return np.asarray(np.clip(place, 0, table.shape[1] - 1))


def _weighted(draw: np.random.Generator, weight: Floats, count: int) -> Ints:
    """[count] places, in proportion to their weights."""
    total = np.cumsum(weight)
    found = np.searchsorted(total, draw.random(count) * total[-1], side="right")
    return np.asarray(np.minimum(found, len(weight) - 1))


def _nearby(draw: np.random.Generator, of_bank: Ints, among: Ints, others: Ints, share: float) -> Ints:
    """For each of ``others`` one of ``among`` (ascending, so by bank), of the same bank with a probability."""
    first = np.searchsorted(of_bank[among], np.arange(of_bank.max() + 2))
    low, high = first[of_bank[others]], first[of_bank[others] + 1]
    anywhere = (draw.random(len(others)) >= share) | (low == high)
    low, high = np.where(anywhere, 0, low), np.where(anywhere, len(among), high)
    return np.asarray(among[low + (draw.random(len(others)) * (high - low)).astype(np.int64)])


def _nearby_weighted(draw: np.random.Generator, place: Ints, weight: Floats, wanted: Ints, among: Ints) -> Ints:
    """For each region that is wanted a shop of it, by fame; any shop where it has none."""
    order = among[np.argsort(place[among], kind="stable")]
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    first = np.searchsorted(place[order], np.arange(max(place.max(), wanted.max(initial=0)) + 2))
    low, high = total[first[wanted]], total[first[wanted + 1]]
    low, high = np.where(low == high, 0.0, low), np.where(low == high, total[-1], high)
    found = np.searchsorted(total, low + draw.random(len(wanted)) * (high - low), side="right") - 1
    return np.asarray(order[np.clip(found, 0, len(order) - 1)])


def _in_community(draw: np.random.Generator, people: _Accounts, who: Ints) -> Ints:
    """For each account one of its community."""
    order = np.argsort(people.community, kind="stable")
    first = np.searchsorted(people.community[order], np.arange(people.community.max() + 2))
    low, high = first[people.community[who]], first[people.community[who] + 1]
    return np.asarray(order[low + (draw.random(len(who)) * (high - low)).astype(np.int64)])


def _without_loops(rows: _Rows) -> _Rows:
    kept = rows.source != rows.target
    return _Rows(*(getattr(rows, key)[kept] for key in _Rows.__dataclass_fields__))
