"""Certificates that were issued together are not renewed together, and a clock that jumps makes no storm."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from certwright.pki import chain
from certwright.resources.certificate import Certificate, Renewal
from certwright.resources.table import CERTIFICATES
from controllers.scene import Scene
from support.world import START

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
SPREAD = timedelta(hours=14, minutes=24)
"""Of certificates of 90 days."""


def renewal_times(certificates: list[Certificate]) -> list[datetime]:
    """When they will be renewed; all have such a time."""
    planned = [certificate.status.renewal_time for certificate in certificates]
    return sorted(moment for moment in planned if moment is not None)


async def test_what_was_issued_in_one_minute_is_renewed_over_hours(scene: Scene) -> None:
    moments = renewal_times(await scene.issue_many(40))
    first = START + 60 * DAY
    assert len(moments) == 40
    assert first <= moments[0] < moments[-1] <= first + SPREAD
    # Not in heaps either: three quarters of that time have some of them at least. That one is left out comes
    # by chance, once in 25,000 runs.
    assert len({(moment - first) // (SPREAD / 4) for moment in moments}) >= 3


async def test_short_lives_are_spread_over_less(scene: Scene) -> None:
    moments = renewal_times(await scene.issue_many(20, duration="1h"))
    first = START + timedelta(minutes=40)
    assert first <= moments[0] < moments[-1] <= first + timedelta(seconds=24)


async def test_each_renewal_is_delayed_by_another_time(scene: Scene) -> None:
    offsets: set[timedelta] = set()
    for _ in range(4):
        certificate = await scene.issue() if not offsets else await scene.world.certificate("web")
        status = certificate.status
        assert status.not_before is not None
        assert status.renewal_time is not None
        offsets.add(status.renewal_time - status.not_before - 60 * DAY)
        await scene.world.advance_to(status.renewal_time)
    # Two of the four are the same second in one of 600 runs.
    assert len(offsets) >= 3


async def test_a_renewal_time_that_cert_manager_wrote_is_kept_and_obeyed(scene: Scene) -> None:
    await scene.issue()
    await scene.world.stop_controllers()
    theirs = {"status": {"renewalTime": "2026-03-02T00:00:00Z"}}
    await scene.world.client.patch(CERTIFICATES, "web", "default", theirs, subresource="status")
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    await scene.world.advance_to(START + 60 * DAY - timedelta(seconds=1))
    assert scene.world.recording.writes == []
    await scene.world.advance(timedelta(seconds=1))
    assert (await scene.world.certificate("web")).status.revision == 2


async def test_a_renewal_time_that_cannot_be_is_corrected(scene: Scene) -> None:
    right = (await scene.issue()).status.renewal_time
    for wrong in ("2026-03-01T23:59:59Z", "2026-03-02T14:24:01Z", "2030-01-01T00:00:00Z", None):
        changed = {"status": {"renewalTime": wrong}}
        await scene.world.patch(CERTIFICATES, "web", changed, subresource="status")
        assert (await scene.world.certificate("web")).status.renewal_time == right


async def test_a_changed_renew_before_moves_the_renewal_without_issuing(scene: Scene) -> None:
    await scene.issue()
    await scene.change_spec("web", renewBefore="240h")
    status = (await scene.world.certificate("web")).status
    assert status.renewal_time is not None
    assert timedelta(0) <= status.renewal_time - (START + 80 * DAY) <= HOUR
    assert status.revision == 1
    await scene.change_spec("web", renewBefore=None, renewBeforePercentage=50)
    status = (await scene.world.certificate("web")).status
    assert status.renewal_time is not None
    assert timedelta(0) <= status.renewal_time - (START + 45 * DAY) <= HOUR
    assert status.revision == 1


async def test_with_the_policy_disabled_time_alone_renews_nothing(scene: Scene) -> None:
    certificate = await scene.issue(renewal=Renewal(policy="Disabled"))
    assert certificate.status.renewal_time is None
    await scene.world.advance(91 * DAY)
    status = (await scene.world.certificate("web")).status
    assert status.revision == 1
    assert not await scene.world.is_ready("web")
    await scene.change_spec("web", renewal={"policy": "RenewBefore"})
    assert (await scene.world.certificate("web")).status.revision == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["asleep", "off"])
async def test_what_fell_due_meanwhile_is_renewed_at_once_and_each_once(
    scene: Scene, *, restarted: bool
) -> None:
    await scene.issue_many(12)
    await scene.issue("year", duration="8760h")
    scene.world.recording.writes.clear()
    if restarted:
        await scene.world.stop_controllers()
    # A laptop that was asleep or switched off: nobody saw the moments in between.
    scene.world.clock.set_now(START + 70 * DAY)
    await (scene.world.start_controllers() if restarted else scene.world.settle())
    # Seven each, and the deletion of the request before.
    assert len(scene.world.recording.object_writes()) == 12 * 8
    for number in range(12):
        status = (await scene.world.certificate(f"web-{number}")).status
        assert (status.revision, status.not_before) == (2, START + 70 * DAY)
    assert (await scene.world.certificate("year")).status.revision == 1
    scene.world.recording.writes.clear()
    await scene.world.advance(DAY)
    assert scene.world.recording.writes == []


async def test_after_a_jump_those_that_end_first_are_renewed_first(scene: Scene) -> None:
    await scene.world.start_controllers(workers=1)
    lives = {"c": "2000h", "a": "1800h", "d": "2100h", "b": "1900h"}
    for name, duration in lives.items():
        await scene.issue(name, duration=duration)
    scene.world.recording.writes.clear()
    scene.world.clock.set_now(START + 70 * DAY)
    await scene.world.settle()
    requests = [w.path for w in scene.world.recording.object_writes() if w.path.endswith("-2/status")]
    assert [path.split("/")[-2] for path in requests] == ["a-2", "b-2", "c-2", "d-2"]


async def test_a_clock_that_is_set_back_makes_no_storm(scene: Scene) -> None:
    await scene.issue()
    scene.world.recording.writes.clear()
    scene.world.clock.set_now(START - 10 * DAY)
    await scene.world.settle()
    await scene.world.advance(9 * DAY)
    assert scene.world.recording.writes == []
    assert chain.readable((await scene.world.secret("web")).data["tls.crt"])[0].not_before == START
