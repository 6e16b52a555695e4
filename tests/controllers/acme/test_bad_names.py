"""Names that a CA refuses are an answer of a working issuer: they never delay other names."""

from __future__ import annotations

from datetime import timedelta

import pytest

from acme.fake_ca import Refusal
from certwright.acme.protocol.messages import Action
from controllers.acme.fake_world import FakeWorld

_BAD = 8


def _refuse_names(fake: FakeWorld, action: Action, kind: str) -> None:
    """Refuse requests of that kind that concern a name of `bad…`, as a healthy CA does."""
    fake.ca.refuse(action, kind, "it is about the name", times=_BAD)


async def _make_bad_names(fake: FakeWorld, where: str, kind: str) -> None:
    actions = {"newOrder": Action.NEW_ORDER, "challenge": Action.CHALLENGE, "finalize": Action.FINALIZE}
    if where in actions:
        _refuse_names(fake, actions[where], kind)
    for number in range(_BAD):
        name = f"bad{number}.example.org"
        if where == "verdict":
            fake.ca.verdicts[name] = Refusal(kind, "it is about the name")
        await fake.issue(f"bad{number}", name)
    await fake.world.advance(timedelta(seconds=10))


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("newOrder", "malformed"),
        ("newOrder", "rejectedIdentifier"),
        ("newOrder", "tomorrowsType"),
        ("challenge", "malformed"),
        ("verdict", "incorrectResponse"),
        ("verdict", "unauthorized"),
        ("verdict", "dns"),
        ("verdict", "serverInternal"),
        ("finalize", "caa"),
        ("finalize", "badCSR"),
    ],
)
async def test_bad_names_delay_no_other_name(fake: FakeWorld, where: str, kind: str) -> None:
    await fake.issuer()
    await _make_bad_names(fake, where, kind)
    assert not any([await fake.world.is_ready(f"bad{number}") for number in range(_BAD)])
    await fake.issue("good", "good.example.org")
    await fake.world.advance(timedelta(seconds=2))
    assert await fake.world.is_ready("good"), await fake.message_of(name="good")
