"""Somebody else keeps writing the target Secret: no loop, one clear condition, and an end when they stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import Condition
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.keys import KeyAlgorithm, KeyPlan, encode_private_key, generate
from certwright.resources.certificate import SecretTemplate
from controllers.scene import Scene
from support.world import ADMIN, CONTROLLER

HOUR = timedelta(hours=1)
OTHER_KEY = encode_private_key(generate(KeyPlan(KeyAlgorithm.ECDSA)), "PKCS8")


class Rival:
    """Another controller: as soon as we have written the Secret, it writes it too, in the name `rival`."""

    def __init__(self, scene: Scene, patch: dict[str, Any]) -> None:
        self.writes = 0
        self._patch = patch
        self._handler: Callable[[Request], Awaitable[Response]] = scene.world.recording.handler
        self._client = Client(LocalTransport(self._handler, ADMIN), user_agent="rival/1.0")
        self._recording = scene.world.recording
        self._recording.handler = self._handle

    async def _handle(self, request: Request) -> Response:
        response = await self._handler(request)
        ours = request.user == CONTROLLER and request.method == "PATCH" and "/secrets/web" in request.target
        if ours and response.status < 400:
            await self.strike()
        return response

    async def strike(self) -> None:
        """Write once."""
        self.writes += 1
        assert self.writes < 100, "they fight without end"
        await self._client.patch(SECRETS, "web", "default", self._patch)

    @classmethod
    async def begin(cls, scene: Scene, patch: dict[str, Any]) -> Rival:
        """One that has written once and been answered."""
        rival = cls(scene, patch)
        await rival.strike()
        await scene.world.settle()
        return rival

    def stop(self) -> None:
        """Write no more."""
        self._recording.handler = self._handler


async def issuing(scene: Scene) -> Condition | None:
    """The Issuing condition."""
    return conditions.find((await scene.world.certificate("web")).status.conditions, "Issuing")


async def events(scene: Scene, reason: str) -> int:
    """How often an event of that reason was sent."""
    return sum(e.count for e in await scene.world.events() if e.reason == reason)


@pytest.mark.parametrize(
    ("patch", "part"),
    [
        ({"metadata": {"labels": {"app": "theirs"}}}, "metadata.labels[app]"),
        ({"data": {"key.der": b"theirs"}}, "data[key.der]"),
    ],
)
async def test_who_changes_labels_and_formats_again_and_again_is_named(
    scene: Scene, patch: dict[str, Any], part: str
) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "ours"}))
    await scene.change_spec("web", additionalOutputFormats=[{"type": "DER"}])
    rival = await Rival.begin(scene, patch)
    assert rival.writes <= 7
    condition = await scene.world.condition("web", "Issuing")
    assert (condition.status, condition.reason) == ("False", "SecretConflict")
    assert condition.message.startswith('Secret "web" is repeatedly changed by "rival", otherwise than')
    assert part in condition.message
    assert await scene.world.is_ready("web")
    assert await events(scene, "SecretConflict") == 1
    await scene.world.advance(timedelta(hours=8))
    assert rival.writes <= 20
    assert (await scene.world.certificate("web")).status.revision == 1
    rival.stop()
    await scene.world.advance(timedelta(hours=3))
    assert await issuing(scene) is None
    assert (await scene.world.secret("web")).metadata.labels["app"] == "ours"


async def test_a_restart_in_a_conflict_gives_few_more_tries(scene: Scene) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "ours"}))
    rival = await Rival.begin(scene, {"metadata": {"labels": {"app": "theirs"}}})
    before = rival.writes
    await scene.world.start_controllers()
    await scene.world.settle()
    assert rival.writes - before <= 6
    assert await events(scene, "SecretConflict") == 1


@pytest.mark.parametrize(
    "patch",
    [
        {"data": {"tls.key": OTHER_KEY}},
        {"data": {"tls.crt": b"rubbish"}},
        {"data": {"tls.key": b"", "tls.crt": b""}},
        {"metadata": {"annotations": {"cert-manager.io/issuer-name": "theirs"}}},
        {"metadata": {"annotations": {"cert-manager.io/certificate-name": "theirs"}}},
    ],
    ids=["key", "certificate", "emptied", "issuer", "name"],
)
async def test_a_pair_that_is_overwritten_again_and_again_is_issued_ever_more_slowly(
    scene: Scene, patch: dict[str, Any]
) -> None:
    await scene.issue()
    rival = await Rival.begin(scene, patch)
    certificate = await scene.world.certificate("web")
    condition = await scene.world.condition("web", "Issuing")
    assert (condition.status, condition.reason) == ("False", "SecretOverwritten")
    assert condition.message.startswith('Secret "web" is repeatedly overwritten by "rival"; ')
    assert certificate.status.revision == 4
    assert certificate.status.failed_issuance_attempts == 1
    assert await events(scene, "SecretOverwritten") == 1
    await scene.world.advance(timedelta(hours=20))
    # After 1, 3, 7 and 15 hours.
    assert (await scene.world.certificate("web")).status.revision == 8
    assert len(await scene.requests()) <= 2
    rival.stop()
    await scene.world.advance(timedelta(hours=33))
    assert await scene.world.is_ready("web")
    assert await issuing(scene) is None
    status = (await scene.world.certificate("web")).status
    assert (status.revision, status.failed_issuance_attempts, status.last_failure_time) == (9, None, None)


async def test_the_wait_survives_a_restart(scene: Scene) -> None:
    await scene.issue()
    await Rival.begin(scene, {"data": {"tls.key": OTHER_KEY}})
    for _ in range(5):
        await scene.world.start_controllers()
        await scene.world.advance(timedelta(minutes=5))
    assert (await scene.world.certificate("web")).status.revision == 4


async def test_the_wait_holds_where_failures_have_none(scene: Scene) -> None:
    await scene.world.start_controllers(backoff_minimum=timedelta(0))
    await scene.issue()
    await Rival.begin(scene, {"data": {"tls.key": OTHER_KEY}})
    await scene.world.advance(timedelta(minutes=59))
    assert (await scene.world.certificate("web")).status.revision == 4


@pytest.mark.parametrize("cure", ["delete", "spec", "key", "secretName", "renew"])
async def test_the_wait_ends_when_somebody_does_something_about_it(scene: Scene, cure: str) -> None:
    await scene.issue()
    rival = await Rival.begin(scene, {"data": {"tls.key": OTHER_KEY}})
    rival.stop()
    client = scene.world.client
    match cure:
        case "delete":
            await client.delete(SECRETS, "web", "default")
        case "spec":
            await scene.change_spec("web", dnsNames=["other.example.com"])
        case "key":
            await scene.change_spec("web", privateKey={"algorithm": "Ed25519"})
        case "secretName":
            await scene.change_spec("web", secretName="other")
        case "renew":
            await scene.world.renew()
    await scene.world.settle()
    assert await scene.world.is_ready("web")
    status = (await scene.world.certificate("web")).status
    assert (status.failed_issuance_attempts, status.last_failure_time) == (None, None)
    assert await issuing(scene) is None


async def test_a_secret_deleted_a_hundred_times_comes_back_each_time(scene: Scene) -> None:
    await scene.issue()
    for _ in range(100):
        await scene.world.delete(SECRETS, "web")
        assert await scene.world.is_ready("web")
    assert (await scene.world.certificate("web")).status.revision == 101
    assert [r.metadata.name for r in await scene.requests()] == ["web-101"]
    assert await scene.next_keys() == []


async def test_who_deletes_it_without_end_is_answered_ever_more_slowly(scene: Scene) -> None:
    await scene.issue()
    for _ in range(200):
        try:
            await scene.world.client.delete(SECRETS, "web", "default")
        except errors.NotFound:
            break
        await scene.world.settle()
    condition = await scene.world.condition("web", "Issuing")
    assert condition.reason == "SecretDeleted"
    assert condition.message.startswith('Secret "web" was deleted more than 120 times within an hour')
    await scene.world.advance(HOUR)
    assert await scene.world.is_ready("web")


async def test_a_user_who_changes_the_spec_again_and_again_is_no_fight(scene: Scene) -> None:
    await scene.issue()
    for number in range(6):
        algorithm = "ECDSA" if number % 2 else "Ed25519"
        await scene.change_spec("web", privateKey={"algorithm": algorithm})
        await scene.change_spec("web", dnsNames=[f"{number}.example.com"])
        await scene.change_spec("web", issuerRef={"name": "ca" if number % 2 else "root"})
    assert (await scene.world.certificate("web")).status.revision == 19
    assert await issuing(scene) is None
    assert await scene.world.is_ready("web")
