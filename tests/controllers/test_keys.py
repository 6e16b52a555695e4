"""The next private key: made once, kept where the spec says so, and never by what an old copy says."""

from __future__ import annotations

import msgspec
import pytest

from certwright.controllers.cache.caches import Caches
from certwright.controllers.certificates.effects import Did, Effects
from certwright.controllers.certificates.keys import Keys
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret, SecretMeta
from certwright.kube.api.core_kinds import SECRETS
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import Condition
from certwright.kube.client.local import LocalTransport
from certwright.kube.client.rest import Client
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.keys import load_private_key
from certwright.resources.certificate import Certificate, CertificateStatus, PrivateKeySpec
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CERTIFICATES
from controllers.scene import Scene, make_certificate
from support.world import CONTROLLER

KEEP = PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")
ISSUING = Condition(type="Issuing", status="True", reason="DoesNotExist", message="x")


async def test_a_kept_key_stays_through_renewals(scene: Scene) -> None:
    await scene.issue(private_key=KEEP)
    before = (await scene.world.secret("web")).data["tls.key"]
    await scene.change_spec("web", dnsNames=["other.example.com"])
    assert (await scene.world.secret("web")).data["tls.key"] == before
    assert (await scene.world.certificate("web")).status.revision == 2


async def test_a_key_that_cannot_be_read_is_replaced_and_that_is_said(scene: Scene) -> None:
    meta = SecretMeta(name="web", namespace="default")
    rubbish = Secret(metadata=meta, data={"tls.key": b"rubbish", "tls.crt": b"rubbish"})
    await scene.world.create(SECRETS, rubbish)
    await scene.issue(private_key=KEEP)
    load_private_key((await scene.world.secret("web")).data["tls.key"])
    events = [e for e in await scene.world.events() if e.reason == "DecodeFailed"]
    assert [(e.type, e.count) for e in events] == [("Warning", 1)]
    assert "rubbish" not in events[0].message


async def test_a_kept_key_of_another_kind_blocks_until_it_may_be_replaced(scene: Scene) -> None:
    await scene.issue(private_key=KEEP)
    await scene.change_spec("web", privateKey={"algorithm": "Ed25519"})
    certificate = await scene.world.certificate("web")
    issuing = conditions.find(certificate.status.conditions, "Issuing")
    assert issuing is not None
    assert (issuing.status, certificate.status.revision) == ("True", 1)
    assert [e.count for e in await scene.world.events() if e.reason == "CannotRegenerateKey"] == [1]
    await scene.change_spec("web", privateKey={"rotationPolicy": "Always"})
    assert (await scene.world.certificate("web")).status.revision == 2


def hands_of(scene: Scene) -> tuple[Effects, Caches]:
    """What the steps may do, with local copies that follow nothing."""
    client = Client(LocalTransport(scene.world.recording.handle, CONTROLLER), user_agent="test")
    caches, clock = Caches(client, scene.world.clock), scene.world.clock
    return Effects(client, caches, Facts(), Inline(), Recorder(client, clock, "test")), caches


async def test_no_key_is_made_by_what_an_old_copy_of_the_certificate_says(scene: Scene) -> None:
    current = await scene.issue()
    effects, caches = hands_of(scene)
    status = CertificateStatus(conditions=(ISSUING,), next_private_key_secret_name="web-old")
    old = msgspec.structs.replace(
        current, status=status, metadata=msgspec.structs.replace(current.metadata, resource_version="1")
    )
    snapshot = Snapshot(certificate=old, now=scene.world.clock.now(), facts=Facts())
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.WROTE
    assert await scene.next_keys() == []
    assert caches.certificates.cache.get(current.metadata.key) == current


async def test_no_key_is_made_for_a_certificate_that_is_gone(scene: Scene) -> None:
    effects, _ = hands_of(scene)
    made = make_certificate("gone", "ca")
    status = CertificateStatus(conditions=(ISSUING,), next_private_key_secret_name="gone-x")
    gone: Certificate = msgspec.structs.replace(made, status=status)
    snapshot = Snapshot(certificate=gone, now=scene.world.clock.now(), facts=Facts())
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.WROTE
    assert await scene.next_keys() == []


async def test_a_certificate_that_is_being_deleted_gets_nothing(scene: Scene) -> None:
    await scene.issue()
    with_finalizer = {"metadata": {"finalizers": ["example.com/held"]}}
    await scene.world.client.patch(CERTIFICATES, "web", "default", with_finalizer)
    await scene.world.client.delete(CERTIFICATES, "web", "default")
    await scene.world.client.delete(SECRETS, "web", "default")
    await scene.world.settle()
    assert (await scene.world.certificate("web")).metadata.deletion_timestamp is not None
    assert await scene.next_keys() == []
    assert [request.metadata.name for request in await scene.requests("web")] == ["web-1"]
    with pytest.raises(NotFound):
        await scene.world.secret("web")


async def test_a_new_key_is_handed_on_and_one_that_is_there_already_is_judged_first(scene: Scene) -> None:
    current = await scene.issue()
    effects, caches = hands_of(scene)
    status = CertificateStatus(conditions=(ISSUING,), next_private_key_secret_name="web-new")
    issuing = msgspec.structs.replace(current, status=status)
    snapshot = Snapshot(certificate=issuing, now=scene.world.clock.now(), facts=Facts(), is_fresh=True)
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.HANDED_ON
    # As after a crash between the write and its news.
    assert await Keys(OperatorPolicy()).act(snapshot, effects) is Did.WROTE
    assert [key.metadata.name for key in caches.next_keys_of("default/web")] == ["web-new"]


async def test_a_secret_that_appears_in_the_moment_of_the_write_is_not_taken_unseen(scene: Scene) -> None:
    await scene.issue("elsewhere")
    theirs = (await scene.world.secret("elsewhere")).data
    handler = scene.world.recording.handler
    statuses: list[int] = []

    async def create_first(request: Request) -> Response:
        if request.user != CONTROLLER or request.method != "PATCH" or "/secrets/web" not in request.target:
            return await handler(request)
        if not statuses:
            meta = SecretMeta(name="web", namespace="default", annotations={"whose": "theirs"})
            await scene.world.create(SECRETS, Secret(metadata=meta, type="kubernetes.io/tls", data=theirs))
        response = await handler(request)
        statuses.append(response.status)
        return response

    scene.world.recording.handler = create_first
    await scene.world.create(CERTIFICATES, make_certificate("web", "ca"))
    await scene.world.settle()
    assert statuses == [409, 200]
    assert (await scene.world.secret("web")).metadata.annotations["whose"] == "theirs"
    assert await scene.world.is_ready("web")
