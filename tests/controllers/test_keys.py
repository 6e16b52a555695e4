"""The next private key: made once, kept where the spec says so, and never by what an old copy says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.cache.caches import Caches
from certwright.controllers.certificates.effects import Did, Effects
from certwright.controllers.certificates.keys import Keys, next_key_secret
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import Condition
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.keys import load_private_key
from certwright.resources.certificate import Certificate, CertificateStatus, PrivateKeySpec
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CERTIFICATES
from controllers.crashes import Guillotine, Webhook
from controllers.external_issuer import mark
from controllers.scene import Scene, make_certificate, make_secret
from support.world import CONTROLLER

KEEP = PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")
ISSUING = Condition(type="Issuing", status="True", reason="DoesNotExist", message="x")


async def test_a_key_that_cannot_be_read_is_replaced_and_that_is_said(scene: Scene) -> None:
    rubbish = {"tls.key": b"rubbish", "tls.crt": b"rubbish"}
    await scene.world.create(SECRETS, make_secret("web", rubbish))
    await scene.issue(private_key=KEEP)
    load_private_key((await scene.world.secret("web")).data["tls.key"])
    events = [e for e in await scene.world.events() if e.reason == "DecodeFailed"]
    assert [(e.type, e.count) for e in events] == [("Warning", 1)]
    assert "rubbish" not in events[0].message


async def test_a_kept_key_of_another_kind_blocks_until_it_may_be_replaced(scene: Scene) -> None:
    await scene.issue(private_key=KEEP)
    await scene.change_spec("web", privateKey={"algorithm": "Ed25519"})
    assert (await scene.world.condition("web", "Issuing")).status == "True"
    assert (await scene.world.certificate("web")).status.revision == 1
    assert [e.count for e in await scene.world.events() if e.reason == "CannotRegenerateKey"] == [1]
    await scene.change_spec("web", privateKey={"rotationPolicy": "Always"})
    assert (await scene.world.certificate("web")).status.revision == 2


def hands_of(scene: Scene) -> tuple[Effects, Caches]:
    """What the steps may do, with local copies that follow nothing."""
    client = Client(LocalTransport(scene.world.recording.handle, CONTROLLER), user_agent="test")
    caches, clock = Caches(client, scene.world.clock), scene.world.clock
    return Effects(client, caches, Facts(), Inline(), Recorder(client, clock, "test")), caches


def issuing(scene: Scene, certificate: Certificate, next_key: str, **fields: Any) -> Snapshot:
    """The Certificate, while it is issued with that next key."""
    status = CertificateStatus(conditions=(ISSUING,), next_private_key_secret_name=next_key)
    certificate = msgspec.structs.replace(certificate, status=status)
    return Snapshot(certificate=certificate, now=scene.world.clock.now(), facts=Facts(), **fields)


async def test_no_key_is_made_by_what_an_old_copy_of_the_certificate_says(scene: Scene) -> None:
    current = await scene.issue()
    effects, caches = hands_of(scene)
    meta = msgspec.structs.replace(current.metadata, resource_version="1")
    snapshot = issuing(scene, msgspec.structs.replace(current, metadata=meta), "web-old")
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.WROTE
    assert await scene.next_keys() == []
    assert caches.certificates.cache.get(current.metadata.key) == current


async def test_no_key_is_made_for_a_certificate_that_is_gone(scene: Scene) -> None:
    effects, _ = hands_of(scene)
    snapshot = issuing(scene, make_certificate("gone", "ca"), "gone-x")
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.WROTE
    assert await scene.next_keys() == []


async def test_a_certificate_that_is_being_deleted_gets_nothing(scene: Scene) -> None:
    await scene.issue()
    with_finalizer = {"metadata": {"finalizers": ["example.com/held"]}}
    await scene.world.client.patch(CERTIFICATES, "web", "default", with_finalizer)
    await scene.world.client.delete(CERTIFICATES, "web", "default")
    await scene.world.delete(SECRETS, "web")
    assert (await scene.world.certificate("web")).metadata.deletion_timestamp is not None
    assert await scene.next_keys() == []
    assert [request.metadata.name for request in await scene.requests("web")] == ["web-1"]
    with pytest.raises(NotFound):
        await scene.world.secret("web")


async def test_a_new_key_is_handed_on_and_one_that_is_there_already_is_judged_first(scene: Scene) -> None:
    current = await scene.issue()
    effects, caches = hands_of(scene)
    snapshot = issuing(scene, current, "web-new", is_fresh=True)
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.HANDED_ON
    # As after a crash between the write and its news.
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.WROTE
    assert [key.metadata.name for key in await caches.secrets.next_keys_of("default/web")] == ["web-new"]


async def test_a_secret_that_appears_in_the_moment_of_the_write_is_not_taken_unseen(scene: Scene) -> None:
    await scene.issue("elsewhere")
    theirs = (await scene.world.secret("elsewhere")).data
    handler = scene.world.recording.handler
    statuses: list[int] = []

    async def create_first(request: Request) -> Response:
        if request.user != CONTROLLER or request.method != "PATCH" or "/secrets/web" not in request.target:
            return await handler(request)
        if not statuses:
            made = make_secret("web", dict(theirs), annotations={"whose": "theirs"})
            await scene.world.create(SECRETS, msgspec.structs.replace(made, type="kubernetes.io/tls"))
        response = await handler(request)
        statuses.append(response.status)
        return response

    scene.world.recording.handler = create_first
    await scene.world.add(CERTIFICATES, make_certificate("web", "ca"))
    assert statuses == [409, 200]
    assert (await scene.world.secret("web")).metadata.annotations["whose"] == "theirs"
    assert await scene.world.is_ready("web")


async def own_secrets(scene: Scene) -> set[str]:
    """The names of the Secrets of the Certificate `web`."""
    names = {secret.metadata.name for secret in (await scene.world.client.list(SECRETS, "default")).items}
    return {name for name in names if name.startswith("web")}


def without(*labels: str) -> Callable[[dict[str, Any]], object]:
    """Removes these labels, or all."""

    def change(body: dict[str, Any]) -> None:
        for label in labels or tuple(body["metadata"].get("labels", {})):
            body["metadata"].get("labels", {}).pop(label, None)

    return change


DROPPED = {
    "all labels": without(),
    "the label that marks a next key": without("cert-manager.io/next-private-key"),
    "the label of the cache": without("controller.cert-manager.io/fao"),
}


@pytest.mark.parametrize("is_filtered", [True, False], ids=["filtered cache", "whole cache"])
@pytest.mark.parametrize("dropped", DROPPED)
async def test_a_webhook_that_removes_labels_costs_no_key_and_leaves_none(
    scene: Scene, dropped: str, *, is_filtered: bool
) -> None:
    await scene.world.start_controllers(filtered_secrets=is_filtered)
    webhook = Webhook(scene.world, "secrets", DROPPED[dropped])
    await scene.issue()
    for names in (["a.example.com"], ["b.example.com"]):
        await scene.change_spec("web", dnsNames=names)
    assert (await scene.world.certificate("web")).status.revision == 3
    assert await own_secrets(scene) == {"web"}
    assert webhook.created == 3
    warnings = [e for e in await scene.world.events() if e.reason == "ChangedByAdmission"]
    assert [event.type for event in warnings] == ["Warning"] * 3
    assert all("webhook" in event.message for event in warnings)


@pytest.mark.every(5)
@pytest.mark.parametrize("dropped", DROPPED)
@pytest.mark.parametrize("writes", range(9))
async def test_a_kill_where_labels_are_removed_leaves_no_key(scene: Scene, dropped: str, writes: int) -> None:
    Webhook(scene.world, "secrets", DROPPED[dropped])
    handler = scene.world.recording.handler
    scene.world.recording.handler = Guillotine(handler, writes, answered=True).handle
    await scene.world.add(CERTIFICATES, make_certificate("web", "ca"))
    await scene.world.stop_controllers()
    scene.world.recording.handler = handler
    await scene.world.start_controllers()
    assert await scene.world.is_ready("web")
    assert await own_secrets(scene) == {"web"}


async def test_keys_that_earlier_versions_left_behind_are_deleted_at_the_start(scene: Scene) -> None:
    certificate = await scene.issue()
    await scene.world.stop_controllers()
    made = [next_key_secret(certificate, f"web-bcdf{n}", b"x") for n in range(3)]
    for secret, labels in zip(
        made, ({}, {"cert-manager.io/next-private-key": "true"}, {"a": "b"}), strict=True
    ):
        meta = msgspec.structs.replace(secret.metadata, labels=labels)
        await scene.world.create(SECRETS, msgspec.structs.replace(secret, metadata=meta))
    of_user = msgspec.structs.replace(made[0].metadata, name="web-password", labels={})
    await scene.world.create(SECRETS, Secret(metadata=of_user, data={"password": b"x"}))
    await scene.world.start_controllers()
    assert await own_secrets(scene) == {"web", "web-password"}


def without_owners(body: dict[str, Any]) -> None:
    body["metadata"].pop("ownerReferences", None)


def with_another_key(body: dict[str, Any]) -> None:
    body["data"] = {}


def without_annotations(body: dict[str, Any]) -> None:
    body["metadata"]["annotations"] = {}


def with_a_duration(body: dict[str, Any]) -> None:
    body["spec"]["duration"] = "1h0m0s"


@pytest.mark.parametrize(
    ("plural", "change", "part"),
    [
        ("secrets", without_owners, "the owner reference of Secret"),
        ("secrets", with_another_key, "its data of Secret"),
        ("certificaterequests", without_owners, "the owner reference of CertificateRequest"),
        ("certificaterequests", without_annotations, "certificate-revision, "),
        ("certificaterequests", with_a_duration, "spec.duration of CertificateRequest"),
    ],
    ids=["key without owner", "key without data", "no owner", "no annotations", "another duration"],
)
async def test_an_object_that_a_webhook_makes_useless_is_made_again_at_growing_intervals(
    scene: Scene, plural: str, change: Callable[[dict[str, Any]], object], part: str
) -> None:
    webhook = Webhook(scene.world, plural, change)
    await scene.issue()
    await scene.world.advance(timedelta(hours=6))
    # After 1, 2, 4, 8, 16, 32 and 60 minutes, and each hour from then on.
    assert webhook.created == 11
    assert part in (await scene.world.condition("web", "Issuing")).message
    webhook.change = lambda _: None
    await scene.world.advance(timedelta(hours=1))
    assert await scene.world.is_ready("web")
    assert await own_secrets(scene) == {"web"}
    assert len(await scene.requests()) == 1


async def test_a_target_that_is_stored_without_its_annotations_is_written_at_growing_intervals(
    scene: Scene,
) -> None:
    webhook = Webhook(scene.world, "secrets/web", without_annotations)
    await scene.issue()
    await scene.world.advance(timedelta(hours=2))
    assert webhook.writes == 7
    message = (await scene.world.condition("web", "Issuing")).message
    assert 'the annotation cert-manager.io/certificate-name of Secret "web"' in message
    webhook.change = lambda _: None
    await scene.world.advance(timedelta(hours=1))
    assert await scene.world.is_ready("web")
    assert len(await scene.requests()) == 1


async def test_annotations_that_a_certificate_may_not_have_are_not_written_in_a_loop(scene: Scene) -> None:
    await scene.world.start_controllers(enabled="*,-certificaterequests-approver")
    webhook = Webhook(scene.world, "certificates", without_annotations)
    await scene.issue()
    await mark(scene.world, "web-1", "Denied", reason="policy.example")
    before = webhook.writes
    await scene.world.advance(timedelta(minutes=55))
    assert webhook.writes - before < 5
    status = (await scene.world.certificate("web")).status
    assert status.failed_issuance_attempts == 1
