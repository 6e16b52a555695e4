"""What is reported to the operator, when, and how often: with the real controllers and a clock that jumps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from certwright.controllers.notifier import NAME, Notifications
from certwright.kube.api.core import CONFIG_MAPS
from certwright.notifications.messages import Destination, Digest, SendError
from certwright.notifications.settings import (
    DestinationSettings,
    NotificationSettings,
    SmtpSettings,
)
from certwright.resources.certificate import PrivateKeySpec
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.external_issuer import external
from controllers.scene import make_ca_issuer, make_certificate, make_issuer
from controllers.test_backoff_story import fail, succeed
from support.world import World

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SMTP = SmtpSettings(host="mail.example.com", sender="a@example.com", to=("b@example.com",))


@dataclass
class Inbox:
    """A destination in this process."""

    name: str = "ops"
    digests: list[Digest] = field(default_factory=list)
    is_down: bool = False

    async def send(self, digest: Digest) -> None:
        if self.is_down:
            raise SendError("the mail server is down")
        self.digests.append(digest)

    def take(self) -> list[tuple[list[str], list[str], list[str]]]:
        """New, remaining and resolved problems of each digest since the last call."""
        taken = [
            ([problem.key for problem in d.new], [problem.key for problem in d.remaining], list(d.resolved))
            for d in self.digests
        ]
        self.digests.clear()
        return taken


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def notifications(*inboxes: Inbox, expires_within: timedelta = timedelta(days=7)) -> Notifications:
    settings = NotificationSettings(
        expires_within=expires_within,
        destinations=tuple(DestinationSettings(name=mailbox.name, smtp=SMTP) for mailbox in inboxes),
    )
    destinations = tuple(Destination(mailbox.name, "webhook", mailbox.send) for mailbox in inboxes)
    return Notifications(settings=settings, destinations=destinations, sender="test", namespace="kube-system")


WEB_FAILS = "certificateFailing Certificate default/web"


async def failing_twice(world: World, inbox: Inbox) -> None:
    """A Certificate whose second attempt has failed too."""
    await world.start_controllers(notifications=notifications(inbox))
    await external(world)
    await fail(world, "web-1")
    await world.advance(2 * MINUTE)
    assert inbox.take() == []
    await world.advance(HOUR)
    await fail(world, "web-1")
    await world.advance(MINUTE)


def counted(world: World) -> dict[tuple[str, str, str], int]:
    """The metrics: result, destination and kind, with their number."""
    text = world.manager.metrics.take()().decode()
    sample = re.compile(r'certwright_notifications_(\w+)_total{destination="(\w+)",kind="(\w+)"} (\d+)')
    return {(match[1], match[2], match[3]): int(match[4]) for match in sample.finditer(text)}


async def test_the_second_failure_is_reported_once_with_cause_fix_and_next_attempt(
    world: World, inbox: Inbox
) -> None:
    await failing_twice(world, inbox)
    (problem,) = inbox.digests[0].new
    assert "the issuer said no" in problem.cause
    assert "certwright" in problem.fix
    assert problem.attempts == 2
    failed_at = (await world.certificate("web")).status.last_failure_time
    assert failed_at is not None
    assert problem.next_attempt == failed_at + 2 * HOUR
    assert inbox.take() == [([WEB_FAILS], [], [])]
    await world.advance(HOUR)
    assert inbox.take() == []
    # A restart, or another replica, does not report it again.
    await world.start_controllers(notifications=notifications(inbox))
    await world.advance(10 * MINUTE)
    assert inbox.take() == []


async def test_a_problem_that_remains_is_repeated_daily_and_its_end_is_reported(
    world: World, inbox: Inbox
) -> None:
    await failing_twice(world, inbox)
    inbox.take()
    await world.advance(24 * HOUR + MINUTE)
    assert inbox.take() == [([], [WEB_FAILS], [])]
    await succeed(world, "web-1")
    await world.advance(MINUTE)
    assert inbox.take() == [([], [], [WEB_FAILS])]
    assert (await world.get(CONFIG_MAPS, NAME, "kube-system")).data == {}
    await world.advance(48 * HOUR)
    assert inbox.take() == []


async def test_a_destination_that_is_down_is_retried_with_backoff_and_loses_nothing(world: World) -> None:
    mail, chat = Inbox("mail"), Inbox("chat")
    mail.is_down = True
    await world.start_controllers(notifications=notifications(mail, chat))
    await world.create(ISSUERS, make_ca_issuer("ca", "none"))
    await world.advance(11 * MINUTE)
    key = "issuerFailing Issuer default/ca"
    assert chat.take() == [([key], [], [])]
    await world.start_controllers(notifications=notifications(mail, chat))
    await world.advance(5 * MINUTE)
    failed = counted(world)["failed", "mail", "webhook"]
    assert failed > 1
    mail.is_down = False
    await world.advance(HOUR)
    assert mail.take() == [([key], [], [])]
    assert chat.take() == []
    counts = counted(world)
    assert counts["sent", "mail", "webhook"] == 1
    assert counts["failed", "mail", "webhook"] == failed
    assert counts["failed", "chat", "webhook"] == 0
    await world.client.delete(ISSUERS, "ca", "default")
    await world.advance(2 * MINUTE)
    assert (mail.take(), chat.take()) == ([([], [], [key])], [([], [], [key])])


async def test_an_issuer_that_is_ready_within_minutes_is_not_reported(world: World, inbox: Inbox) -> None:
    await world.start_controllers(notifications=notifications(inbox))
    await world.create(ISSUERS, make_ca_issuer("ca", "root"))
    await world.create(ISSUERS, make_issuer("root"))
    await world.advance(8 * MINUTE)
    await world.create(CERTIFICATES, make_certificate("root", "root", is_ca=True))
    await world.advance(HOUR)
    assert inbox.take() == []


async def test_a_certificate_that_nothing_renews_is_reported_before_its_end(
    world: World, inbox: Inbox
) -> None:
    await world.create(ISSUERS, make_issuer("root"))
    await world.start_controllers(notifications=notifications(inbox, expires_within=HOUR / 2))
    await world.add(CERTIFICATES, make_certificate("web", "root", duration="3h"))
    end = (await world.certificate("web")).status.not_after
    assert end is not None
    # Its issuer is gone: no request is made, so none fails.
    await world.client.delete(ISSUERS, "root", "default")
    await world.advance_to(end - HOUR / 2 - MINUTE)
    assert inbox.take() == []
    await world.advance_to(end - HOUR / 4)
    ((new, _, _),) = inbox.take()
    assert new == ["certificateExpiring Certificate default/web"]


async def test_many_failures_are_one_message(world: World, inbox: Inbox) -> None:
    await world.start_controllers(notifications=notifications(inbox))
    for number in range(70):
        await world.create(ISSUERS, make_ca_issuer(f"ca{number}", "none"))
    await world.advance(12 * MINUTE)
    (digest,) = inbox.digests
    assert len(digest.new) == 70
    assert "… and 20 more" in digest.text
    assert (len(digest.content()["new"]), digest.content()["counts"]["new"]) == (50, 70)


@pytest.mark.long  # nearly a year passes in a world of all controllers
async def test_a_renewal_that_replaces_the_key_of_a_root_is_announced_a_tenth_of_its_life_before(
    world: World, inbox: Inbox
) -> None:
    await world.start_controllers(notifications=notifications(inbox))
    await world.create(ISSUERS, make_issuer("self"))
    await world.create(ISSUERS, make_ca_issuer("root", "root"))
    ca = {"is_ca": True, "dns_names": (), "duration": "7200h"}
    keeps = PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")
    for name, issuer, spec in (
        ("root", "self", ca),
        ("other", "root", ca),
        ("kept", "self", {**ca, "private_key": keeps}),
        ("web", "self", {"duration": "7200h"}),
    ):
        await world.add(CERTIFICATES, make_certificate(name, issuer, common_name=name, **spec))
    await world.advance(timedelta(days=169))
    assert inbox.take() == []
    renewal = (await world.certificate("root")).status.renewal_time
    assert renewal is not None
    await world.advance_to(renewal - timedelta(days=30) + 5 * MINUTE)
    (event,) = [each for each in await world.events() if each.reason == "CAKeyReplacement"]
    assert (event.type, event.involved_object.name) == ("Warning", "root")
    announced = "caKeyReplacement Certificate default/root"
    (problem,) = inbox.digests[0].new
    assert "rotationPolicy: Never keeps the key" in problem.cause
    assert inbox.take() == [([announced], [], [])]
    condition = await world.condition("root", "CAKeyReplacement")
    assert (condition.status, condition.reason) == ("True", "ReplacesRootKey")
    # It is said once, not daily, and not after a restart; and of roots only.
    await world.start_controllers(notifications=notifications(inbox))
    await world.advance(timedelta(days=3))
    assert inbox.take() == []
    assert (await world.condition("other", "CAKeyReplacement")).reason == "ReplacesCAKey"
    await world.advance(timedelta(days=40))
    assert inbox.take() == [([], [], [announced])]
    certificate = await world.certificate("root")
    assert certificate.status.revision == 2
    assert not [each for each in certificate.status.conditions if each.type == "CAKeyReplacement"]
