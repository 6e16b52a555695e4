"""Which Challenge is next: for a slot at the CA, for a self-check, and for a first poll of its verdict."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.controllers.acme.challenge_queues import SelfChecks, SlotRequest, ValidationSlots
from certwright.controllers.acme.challenges import Pace
from certwright.kube.api.meta import ObjectKey
from controllers.acme.fake_world import fake_world
from support.world import settle


class Slots(ValidationSlots):
    """Slots for challenges by name, which records those that get one after a wait."""

    def __init__(self, most: int, **options: int) -> None:
        super().__init__(most, lambda key: self.granted.append(key.name), **options)
        self.granted: list[str] = []
        self.keys: dict[str, ObjectKey] = {}

    def take(self, name: str, namespace: str = "n", *, order: str = "", subject: str = "") -> bool:
        """Whether the challenge of that name gets a slot now."""
        key = self.keys[name] = ObjectKey(namespace, name)
        return self.acquire(SlotRequest(key, order or name, (subject or name, "HTTP-01")))

    def free(self, *names: str) -> None:
        """The challenges of those names no longer need their slots, or their places."""
        for name in names:
            self.release(self.keys[name])


def test_a_slot_that_becomes_free_goes_to_the_first_that_waits() -> None:
    slots = Slots(2)
    assert [slots.take(name) for name in "abcd"] == [True, True, False, False]
    assert slots.take("a")
    slots.free("a")
    assert slots.granted == ["c"]
    assert slots.take("c")
    slots.free("d", "d", "b")
    assert (slots.granted, len(slots)) == (["c"], 1)


def test_one_name_and_type_is_never_proven_twice_at_the_same_time() -> None:
    slots = Slots(9)
    assert slots.take("a", subject="x")
    assert not slots.take("b", subject="x")
    assert slots.take("c", subject="y")
    slots.free("c")
    assert slots.granted == []
    slots.free("a")
    assert slots.granted == ["b"]


def test_one_that_waits_for_the_same_name_gives_up() -> None:
    slots = Slots(9)
    slots.take("a", subject="x")
    slots.take("b", subject="x")
    slots.free("b", "a")
    assert (slots.granted, slots.take("c", subject="x")) == ([], True)


def test_a_big_order_delays_no_small_one() -> None:
    slots = Slots(1)
    for number in range(100):
        slots.take(f"big{number}", order="big")
    slots.take("small", order="small")
    slots.free("big0")
    slots.free(slots.granted[-1])
    assert "small" in slots.granted[:2]


def test_namespaces_take_turns_and_never_hold_all_slots() -> None:
    slots = Slots(3, most_per_namespace=2)
    assert [slots.take(f"x{n}", "x") for n in range(5)] == [True, True, False, False, False]
    assert slots.take("y0", "y")
    assert not slots.take("y1", "y")
    slots.free("x0", "x1")
    assert set(slots.granted) == {"y1", "x2"}


def test_one_namespace_leaves_a_tenth_of_the_slots_to_others() -> None:
    slots = Slots(60)
    assert sum(slots.take(f"x{n}", "x") for n in range(100)) == 54
    assert all(slots.take(f"y{n}", "y") for n in range(6))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=80))
def test_slots_never_exceed_their_limits_nor_lose_a_challenge(steps: list[tuple[bool, int]]) -> None:
    slots = Slots(4, most_per_namespace=3)
    holding: set[int] = set()
    waiting: set[int] = set()

    def take(number: int) -> bool:
        namespace, order, subject = number % 2, number % 5, number % 7
        return slots.take(str(number), str(namespace), order=str(order), subject=str(subject))

    for takes, number in steps:
        if takes:
            (holding if take(number) else waiting).add(number)
        elif str(number) in slots.keys:
            holding.discard(number)
            waiting.discard(number)
            slots.free(str(number))
        holding |= {int(name) for name in slots.granted}
        waiting -= holding
        slots.granted.clear()
        assert len(slots) == len(holding) <= 4
        assert len({number % 7 for number in holding}) == len(holding)
        assert all(sum(number % 2 == namespace for number in holding) <= 3 for namespace in (0, 1))
        # A slot is free only where those that wait may not have it.
        assert len(holding) == 4 or all(
            number % 7 in {other % 7 for other in holding}
            or sum(other % 2 == number % 2 for other in holding) == 3
            for number in waiting
        )
    slots.free(*slots.keys)
    assert len(slots) == 0
    assert take(0)


class Looks(SelfChecks[str, str]):
    """Self-checks by name, which record when they begin and end when the gate is open."""

    def __init__(self, most: int) -> None:
        super().__init__(most, lambda _: None)
        self.begun: list[str] = []
        self.gate = asyncio.Event()

    def look(self, name: str, *, attempt: int, flow: str = "") -> None:
        """Start the self-check of that name."""

        async def run() -> str:
            self.begun.append(name)
            await self.gate.wait()
            return name

        self.start(name, run, attempt=attempt, flow=flow)


async def test_who_has_been_looked_at_less_often_goes_first() -> None:
    checks = Looks(1)
    checks.look("first", attempt=0)
    await asyncio.sleep(0)
    for number in range(4):
        checks.look(f"dead{number}", attempt=7)
    checks.look("new", attempt=0)
    checks.gate.set()
    await settle()
    assert checks.begun[:2] == ["first", "new"]
    assert sorted(checks.begun[2:]) == [f"dead{number}" for number in range(4)]
    assert (checks.pop("new"), checks.pop("new")) == ("new", None)


@pytest.mark.parametrize("attempt", [0, 3])
async def test_a_flow_that_wants_little_waits_for_none_that_wants_much(attempt: int) -> None:
    checks = Looks(2)
    # All workers are busy, and hundreds wait for their first look.
    for number in range(200):
        checks.look(f"dead{number}", attempt=0, flow="dead")
    await asyncio.sleep(0)
    checks.look("live", attempt=attempt, flow="live")
    checks.gate.set()
    await settle()
    assert len(checks.begun) == 201
    assert checks.begun.index("live") <= 4


async def test_looks_that_nobody_wants_are_ended() -> None:
    checks: SelfChecks[str, str] = SelfChecks(1, lambda _: None)
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
    checks: SelfChecks[str, str] = SelfChecks(1, done.append)

    async def broken() -> str:
        raise RuntimeError("no")

    async def fine() -> str:
        return "seen"

    checks.start("a", broken, attempt=0)
    checks.start("b", fine, attempt=0)
    await settle()
    assert (sorted(done), checks.pop("a"), checks.pop("b")) == (["a", "b"], None, "seen")


class Broken:
    """A self-check with a mistake in it, which counts how often it runs."""

    looks = 0

    async def check(self, _task: Task) -> Ready | NotYet:
        """See `Check`."""
        self.looks += 1
        raise KeyError("a mistake")


async def test_a_look_that_fails_by_a_mistake_of_ours_is_taken_again_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Broken()
    async with fake_world(check=broken) as fake:
        await fake.issuer(solvers=[{"http01": {"ingress": {}}}])
        await fake.issue(after=timedelta(minutes=1))
        (challenge,) = await fake.challenges()
        assert 5 < broken.looks < 15
        assert "a mistake" in challenge.status.reason
        assert "Traceback" in caplog.text


@pytest.mark.parametrize(("is_quick", "delay"), [(True, 0.05), (False, 1)])
def test_a_quick_server_is_asked_as_soon_as_can_be_and_a_slow_one_after_a_second(
    is_quick: bool, delay: float
) -> None:
    pace = Pace()
    for _ in range(200):
        pace.asked(after=pace.delay, is_there=is_quick)
    assert pace.delay == timedelta(seconds=delay)


@pytest.mark.parametrize("typical_s", [0.2, 0.5])
def test_nearly_all_first_questions_find_the_verdict(typical_s: float) -> None:
    chance, pace, delays = random.Random(7), Pace(), []
    for _ in range(5_000):
        took = timedelta(seconds=chance.uniform(0.5, 1.5) * typical_s)
        delays.append(took <= pace.delay)
        pace.asked(after=pace.delay, is_there=delays[-1])
    assert 0.965 < sum(delays[1_000:]) / 4_000 < 0.995


def test_sixty_that_were_asked_too_early_together_are_one_piece_of_news() -> None:
    pace, after = Pace(), Pace().delay
    for _ in range(60):
        pace.asked(after=after, is_there=False)
    assert pace.delay <= 1.5 * after
