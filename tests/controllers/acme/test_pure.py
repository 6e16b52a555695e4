"""What is computed without a server: which solver, which names, who is next."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.controllers.acme.choice import choose
from certwright.controllers.acme.naming import challenge_name, fnv32, order_name
from certwright.controllers.acme.scheduler import SlotRequest, Slots
from certwright.controllers.acme.self_checks import Checks
from certwright.kube.api import codec
from certwright.resources.acme import ChallengeSpec, OrderSpec
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver
from certwright.resources.table import CLUSTER_ISSUERS
from support.world import settle

_BOTH = ("HTTP-01", "DNS-01")


def solver(label: str, *, http: bool = False, **selector: Any) -> Solver:
    """A solver that can be told from others; without `selector` it is for everything."""
    provider = {"http01": {"webroot": {"path": f"/{label}"}}}
    dns = {"dns01": {"rfc2136": {"nameserver": label}}}
    config = {**(provider if http else dns), **({"selector": selector} if selector else {})}
    acme = {"server": "https://x", "privateKeySecretRef": {"name": "x"}, "solvers": [config]}
    issuer = {
        "apiVersion": CLUSTER_ISSUERS.api_version,
        "kind": "ClusterIssuer",
        "metadata": {"name": "x"},
        "spec": {"acme": acme},
    }
    made: Solver = codec.from_dict(CLUSTER_ISSUERS, issuer).spec.acme.solvers[0]  # type: ignore[union-attr]
    return made


def label_of(selected: Solver | None) -> str:
    """Which one it is."""
    if selected is None:
        return ""
    if selected.dns01 is not None and selected.dns01.rfc2136 is not None:
        return selected.dns01.rfc2136.nameserver
    assert selected.http01 is not None
    assert selected.http01.webroot is not None
    return selected.http01.webroot.path[1:]


ANY = solver("any")
ZONE = solver("zone", dnsZones=["example.org"])
DEEP = solver("deep", dnsZones=["other.net", "a.example.org"])
NAME = solver("name", dnsNames=["www.a.example.org"])
LABEL = solver("label", matchLabels={"tier": "web"})
LABELS = solver("labels", matchLabels={"tier": "web", "team": "x"})
LABEL_ZONE = solver("label-zone", matchLabels={"tier": "web"}, dnsZones=["example.org"])


@pytest.mark.parametrize(
    ("solvers", "name", "labels", "expected"),
    [
        ([ANY, ZONE], "b.example.org", {}, "zone"),
        ([ZONE, ANY], "b.example.org", {}, "zone"),
        ([ANY, ZONE], "b.example.com", {}, "any"),
        ([ZONE], "b.example.com", {}, ""),
        ([ZONE], "notexample.org", {}, ""),
        ([ZONE], "example.org", {}, "zone"),
        ([ZONE], "*.example.org", {}, "zone"),
        ([ZONE], "B.EXAMPLE.org", {}, "zone"),
        ([ZONE, DEEP], "www.a.example.org", {}, "deep"),
        ([DEEP, ZONE], "b.example.org", {}, "zone"),
        ([DEEP, NAME, ANY], "www.a.example.org", {}, "name"),
        ([NAME], "b.www.a.example.org", {}, ""),
        ([solver("wild", dnsNames=["*.example.org"])], "*.example.org", {}, "wild"),
        ([solver("wild", dnsNames=["*.example.org"])], "a.example.org", {}, ""),
        ([solver("apex", dnsNames=["example.org"])], "*.example.org", {}, ""),
        ([ANY, LABEL], "b.example.org", {"tier": "web"}, "label"),
        ([ANY, LABEL], "b.example.org", {"tier": "db"}, "any"),
        ([LABEL, LABELS], "b.example.org", {"tier": "web", "team": "x"}, "labels"),
        ([LABELS, LABEL], "b.example.org", {"tier": "web"}, "label"),
        # A zone is more than any number of labels, a name more than any zone.
        ([LABELS, ZONE], "b.example.org", {"tier": "web", "team": "x"}, "zone"),
        ([ZONE, LABEL_ZONE], "b.example.org", {"tier": "web"}, "label-zone"),
        ([LABEL_ZONE], "b.example.org", {}, ""),
        ([LABEL_ZONE, NAME], "www.a.example.org", {"tier": "web"}, "name"),
        # Of equals the first.
        ([solver("first"), solver("second")], "b.example.org", {}, "first"),
        ([solver("first", dnsZones=["example.org"]), ZONE], "b.example.org", {}, "first"),
        ([solver("page", http=True), ZONE], "b.example.org", {}, "zone"),
        ([], "b.example.org", {}, ""),
    ],
)
def test_the_most_exact_solver_is_taken(
    solvers: list[Solver], name: str, labels: dict[str, str], expected: str
) -> None:
    assert label_of(choose(solvers, name=name, labels=labels, offered=_BOTH)) == expected


def test_a_solver_whose_challenge_is_not_offered_is_no_solver() -> None:
    solvers = [solver("page", http=True, dnsNames=["*.example.org"]), ANY]
    assert label_of(choose(solvers, name="*.example.org", labels={}, offered=("DNS-01",))) == "any"
    assert choose(solvers[:1], name="*.example.org", labels={}, offered=("DNS-01",)) is None


def test_numbers_are_those_of_fnv_1() -> None:
    # Vectors of the authors of FNV (32 bits, FNV-1, not 1a).
    assert fnv32(b"") == 0x811C9DC5
    assert fnv32(b"a") == 0x050C5D7E
    assert fnv32(b"foobar") == 0x31F0B262


def test_names_are_the_first_52_characters_and_a_number() -> None:
    spec = OrderSpec(request=b"x", issuer_ref=IssuerReference(name="acme"), dns_names=("a.example.org",))
    stem = "a" * 51 + "." + "b" * 30
    assert order_name("web-1", spec).startswith("web-1-")
    assert order_name(stem, spec).rpartition("-")[0] == "a" * 51
    assert len(order_name("c" * 253, spec)) <= 63
    assert order_name("web-1", spec) == order_name("web-1", spec)
    assert order_name("web-1", spec) != order_name(
        "web-1", OrderSpec(request=b"y", issuer_ref=spec.issuer_ref)
    )


def test_a_challenge_of_another_solver_has_another_name() -> None:
    def spec(acme_solver: Solver) -> ChallengeSpec:
        return ChallengeSpec(
            url="u",
            authorization_url="a",
            dns_name="n",
            type="DNS-01",
            token="t",
            key="k",
            solver=acme_solver,
            issuer_ref=IssuerReference(name="acme"),
        )

    assert challenge_name("web-1-7", spec(ANY)) != challenge_name("web-1-7", spec(ZONE))


def slot_request(key: str, *, namespace: str = "n", order: str = "", subject: str = "") -> SlotRequest:
    """A challenge that wants a slot."""
    return SlotRequest(key, namespace, order or key, (subject or key, "HTTP-01"))


def test_a_slot_that_becomes_free_goes_to_whoever_waits() -> None:
    notified: list[Hashable] = []
    slots = Slots(2, notified.append)
    assert [slots.acquire(slot_request(key)) for key in "abcd"] == [True, True, False, False]
    assert slots.acquire(slot_request("a"))
    slots.release("a")
    assert notified == ["c"]
    assert slots.acquire(slot_request("c"))
    slots.release("d")
    slots.release("d")
    slots.release("b")
    assert (notified, len(slots)) == (["c"], 1)


def test_one_name_and_type_is_never_proven_twice_at_once() -> None:
    notified: list[Hashable] = []
    slots = Slots(9, notified.append)
    assert slots.acquire(slot_request("a", subject="x"))
    assert not slots.acquire(slot_request("b", subject="x"))
    assert slots.acquire(slot_request("c", subject="y"))
    slots.release("c")
    assert notified == []
    slots.release("a")
    assert notified == ["b"]


def test_a_big_order_delays_no_small_one() -> None:
    notified: list[Hashable] = []
    slots = Slots(1, notified.append)
    slots.acquire(slot_request("big0", order="big"))
    for number in range(1, 100):
        slots.acquire(slot_request(f"big{number}", order="big"))
    slots.acquire(slot_request("small", order="small"))
    slots.release("big0")
    slots.release(notified[-1])
    assert "small" in notified[:2]


def test_namespaces_take_turns_and_never_hold_all_slots() -> None:
    notified: list[Hashable] = []
    slots = Slots(3, notified.append, most_per_namespace=2)
    taken = [slots.acquire(slot_request(f"x{n}", namespace="x")) for n in range(5)]
    assert taken == [True, True, False, False, False]
    assert slots.acquire(slot_request("y0", namespace="y"))
    assert not slots.acquire(slot_request("y1", namespace="y"))
    slots.release("x0")
    slots.release("x1")
    assert set(notified) == {"y1", "x2"}


def test_one_namespace_leaves_a_tenth_of_the_slots_to_others() -> None:
    slots = Slots(60, lambda _: None)
    assert sum(slots.acquire(slot_request(f"x{n}", namespace="x")) for n in range(100)) == 54
    assert all(slots.acquire(slot_request(f"y{n}", namespace="y")) for n in range(6))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=80))
def test_slots_never_exceed_their_limits_nor_lose_anybody(steps: list[tuple[bool, int]]) -> None:
    holding: set[Hashable] = set()
    waiting: set[Hashable] = set()

    def granted(key: Hashable) -> None:
        waiting.discard(key)
        holding.add(key)

    slots = Slots(4, granted, most_per_namespace=3)
    every = [
        slot_request(str(n), namespace=str(n % 2), order=str(n % 5), subject=str(n % 7)) for n in range(12)
    ]
    for takes, number in steps:
        slot = every[number]
        if takes:
            waiting.add(slot.key)
            if slots.acquire(slot):
                granted(slot.key)
        else:
            holding.discard(slot.key)
            waiting.discard(slot.key)
            slots.release(slot.key)
        assert len(slots) == len(holding) <= 4
        holders = [w for w in every if w.key in holding]
        assert len({w.subject for w in holders}) == len(holders)
        assert all(sum(w.namespace == i for w in holders) <= 3 for i in "01")
    for slot in every:
        slots.release(slot.key)
    assert len(slots) == 0
    assert slots.acquire(every[0])


async def test_who_has_been_looked_at_less_often_goes_first() -> None:
    begun: list[str] = []
    gate = asyncio.Event()
    checks: Checks[str, str] = Checks(1, lambda _: None)

    def look(name: str) -> Any:
        async def run() -> str:
            begun.append(name)
            await gate.wait()
            return name

        return run

    checks.start("first", look("first"), attempt=0)
    await asyncio.sleep(0)
    for number in range(4):
        checks.start(f"dead{number}", look(f"dead{number}"), attempt=7)
    checks.start("new", look("new"), attempt=0)
    gate.set()
    await settle()
    assert begun[:2] == ["first", "new"]
    assert sorted(begun[2:]) == [f"dead{number}" for number in range(4)]
    # The newest and the oldest take turns.
    assert {begun[2], begun[3]} == {"dead0", "dead3"}
    assert (checks.pop("new"), checks.pop("new")) == ("new", None)


@pytest.mark.parametrize("attempt", [0, 3])
async def test_a_flow_that_wants_little_waits_for_none_that_wants_much(attempt: int) -> None:
    begun: list[str] = []
    gate = asyncio.Event()
    checks: Checks[str, str] = Checks(2, lambda _: None)

    def look(name: str) -> Any:
        async def run() -> str:
            begun.append(name)
            await gate.wait()
            return name

        return run

    # All workers are busy, and hundreds wait for their first look.
    for number in range(200):
        checks.start(f"dead{number}", look(f"dead{number}"), attempt=0, flow="dead")
    await asyncio.sleep(0)
    checks.start("live", look("live"), attempt=attempt, flow="live")
    gate.set()
    await settle()
    assert len(begun) == 201
    assert begun.index("live") <= 4


async def test_looks_that_nobody_wants_are_ended() -> None:
    checks: Checks[str, str] = Checks(1, lambda _: None)
    ended: list[str] = []

    async def forever() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return ""

    checks.start("a", forever, attempt=0)
    checks.start("b", forever, attempt=0)
    await asyncio.sleep(0)
    checks.forget("b")
    checks.forget("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == ["ended"]
    assert checks.idle
    checks.start("c", forever, attempt=0)
    await asyncio.sleep(0)
    await checks.close()
    assert ended == ["ended", "ended"]


async def test_a_look_that_fails_is_no_end_of_looking() -> None:
    done: list[str] = []
    checks: Checks[str, str] = Checks(1, done.append)

    async def broken() -> str:
        raise RuntimeError("no")

    async def fine() -> str:
        return "seen"

    checks.start("a", broken, attempt=0)
    checks.start("b", fine, attempt=0)
    await settle()
    assert (sorted(done), checks.pop("a"), checks.pop("b")) == (["a", "b"], None, "seen")
