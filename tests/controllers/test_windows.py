"""Renewals wait for the maintenance windows of their Certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from certwright.kube.api import conditions
from certwright.resources.certificate import Renewal, RenewalWindow
from controllers.scene import Scene
from support.world import START

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def windows(*bounds: tuple[str, str], zone: str | None = None) -> Renewal:
    """Windows of (cron, length)."""
    return Renewal(windows=tuple(RenewalWindow(cron=c, window_duration=d, timezone=zone) for c, d in bounds))


async def moment_of(scene: Scene, name: str = "web") -> datetime:
    """The renewalTime of a Certificate."""
    moment = (await scene.world.certificate(name)).status.renewal_time
    assert moment is not None
    return moment


async def window_errors(scene: Scene) -> list[str]:
    """The messages of the events about windows."""
    return [event.message for event in await scene.world.events() if event.reason == "WindowError"]


async def test_a_renewal_waits_for_the_window(scene: Scene) -> None:
    # Day 60 is Monday, 2026-03-02.
    await scene.issue(renewal=windows(("0 2 * * 6", "4h")))
    moment = await moment_of(scene)
    opening = datetime(2026, 3, 7, 2, tzinfo=UTC)
    assert opening <= moment < opening + 4 * HOUR
    await scene.world.advance_to(moment - timedelta(seconds=1))
    assert (await scene.world.certificate("web")).status.revision == 1
    await scene.world.advance_to(moment)
    assert (await scene.world.certificate("web")).status.revision == 2
    assert (await moment_of(scene)).weekday() == 5


async def test_those_that_wait_for_the_same_window_are_spread_inside_it(scene: Scene) -> None:
    await scene.issue_many(30, renewal=windows(("0 2 * * 6", "20m")))
    opening = datetime(2026, 3, 7, 2, tzinfo=UTC)
    moments = [await moment_of(scene, f"web-{number}") for number in range(30)]
    assert all(timedelta(0) <= moment - opening < timedelta(minutes=20) for moment in moments)
    assert max(moments) - min(moments) > timedelta(minutes=10)


async def test_a_moment_inside_a_window_stays_inside_it(scene: Scene) -> None:
    # Open on day 60 from 23:50 to 00:10, and then not for a week: the spread must not run out of it.
    await scene.issue_many(20, renewal=windows(("50 23 * * 0", "20m")))
    end = datetime(2026, 3, 2, 0, 10, tzinfo=UTC)
    moments = [await moment_of(scene, f"web-{number}") for number in range(20)]
    assert all(START + 60 * DAY <= moment < end for moment in moments)


async def test_the_window_opens_by_the_clocks_of_its_zone(scene: Scene) -> None:
    nightly = windows(("0 3 * * *", "1h"), zone="Europe/Berlin")
    await scene.issue(renewal=nightly)
    assert (await moment_of(scene)).hour == 2
    # After the change to summer time (2026-03-29) two hours before UTC.
    await scene.issue("late", renewal=nightly, renew_before="24h")
    assert (await moment_of(scene, "late")).hour == 1


async def test_the_first_of_several_windows_counts(scene: Scene) -> None:
    await scene.issue(renewal=windows(("0 2 * * 6", "1h"), ("30 4 * * 3", "1h")))
    opening = datetime(2026, 3, 4, 4, 30, tzinfo=UTC)
    assert opening <= await moment_of(scene) < opening + HOUR


async def test_without_a_window_before_the_end_it_is_renewed_all_the_same_and_told_once(scene: Scene) -> None:
    await scene.issue(duration="1h", renewal=windows(("30 5 1 1 *", "1h")))
    moment = await moment_of(scene)
    first = START + timedelta(minutes=40)
    assert first <= moment <= first + timedelta(seconds=24)
    expected = (
        "Renewal is planned without regard to spec.renewal.windows: cannot find a time with the given windows"
    )
    assert await window_errors(scene) == [
        f"{expected} between 2026-01-01T00:00:00Z and 2026-01-01T01:00:00Z for: 2026-01-01T00:40:00Z"
    ]
    # The certificate is as good as any other.
    certificate = await scene.world.certificate("web")
    assert conditions.is_true(certificate.status.conditions, "Ready")
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    assert scene.world.recording.writes == []
    await scene.world.advance_to(moment)
    assert (await scene.world.certificate("web")).status.revision == 2
    assert len(await window_errors(scene)) == 2


async def test_windows_that_are_added_or_changed_move_the_renewal(scene: Scene) -> None:
    await scene.issue()
    at_six = [{"cron": "0 6 * * *", "windowDuration": "1h"}]
    await scene.change_spec("web", renewal={"windows": at_six})
    assert (await moment_of(scene)).hour == 6
    never = [{"cron": "0 0 1 12 *", "windowDuration": "1h"}]
    await scene.change_spec("web", renewal={"windows": never})
    assert timedelta(0) <= await moment_of(scene) - (START + 60 * DAY) <= 15 * HOUR
    assert len(await window_errors(scene)) == 1
    await scene.change_spec("web", renewal=None)
    assert timedelta(0) <= await moment_of(scene) - (START + 60 * DAY) <= 15 * HOUR
    assert (await scene.world.certificate("web")).status.revision == 1
