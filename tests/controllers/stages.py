"""Stages of a certificate's life, each as something that happens and the end that it must come to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.resources.certificate import Keystores, PKCS12Keystore, PrivateKeySpec
from certwright.resources.names import ISSUE_TEMPORARY_CERTIFICATE
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from controllers.crashes import Ledger
from controllers.scene import Scene, make_certificate, make_issuer, make_secret
from support.world import make_world

Happens = Callable[[Scene], Awaitable[None]]

PASSWORD = {"create": True, "passwordSecretRef": {"name": "password", "key": "password"}}
STORES = {"jks": PASSWORD, "pkcs12": {**PASSWORD, "profile": "Modern2023"}}
FORMATS = [{"type": "DER"}, {"type": "CombinedPEM"}]
NEVER = PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")
BY_HAND = {"enabled": "*,-certificaterequests-approver"}


@dataclass(frozen=True)
class Stage:
    """`before` everything is at rest, then `happens`; that makes `writes` writes and leaves `revision`.

    `after` is what is done once the controllers run again.
    """

    name: str
    writes: int
    happens: Happens
    revision: int
    before: tuple[Happens, ...] = ()
    after: tuple[Happens, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    async def finish(self, scene: Scene) -> None:
        """What follows once the controllers run without trouble."""
        for happens in self.after:
            await happens(scene)


async def issue(scene: Scene) -> None:
    """A Certificate is created."""
    await scene.issue()


async def issue_never(scene: Scene) -> None:
    """One that keeps its key is created."""
    await scene.issue(private_key=NEVER)


async def issue_all_formats(scene: Scene) -> None:
    """One with key stores and further formats is created."""
    made = make_certificate("web", "ca")
    wire = msgspec.to_builtins(made.spec) | {"keystores": STORES, "additionalOutputFormats": FORMATS}
    spec = msgspec.convert(wire, type(made.spec))
    await scene.world.add(CERTIFICATES, msgspec.structs.replace(made, spec=spec))


async def issue_temporary(scene: Scene) -> None:
    """One that wants a temporary certificate is created, and its issuer a while later."""
    stores = Keystores(pkcs12=PKCS12Keystore(create=True, password="changeit"))
    notes = {ISSUE_TEMPORARY_CERTIFICATE: "true"}
    await scene.issue(issuer="later", keystores=stores, annotations=notes)
    await scene.world.add(ISSUERS, make_issuer("later"))


async def set_password(scene: Scene) -> None:
    """The Secret with the password of the key stores."""
    await scene.world.create(SECRETS, make_secret("password", {"password": b"one"}))


async def renewal_time(scene: Scene) -> None:
    """The moment of renewal comes."""
    renewal = (await scene.world.certificate("web")).status.renewal_time
    assert renewal is not None
    await scene.world.advance_to(renewal)


async def wait(scene: Scene) -> None:
    """Time for what waits an hour before it tries again."""
    await scene.world.advance(timedelta(hours=2, minutes=1))


async def change_all(scene: Scene) -> None:
    """The template, the formats and the key stores are changed: the Secret must be kept in step."""
    await scene.change_spec(
        "web",
        secretTemplate={"labels": {"app": "web"}, "annotations": {"note": "one"}},
        additionalOutputFormats=FORMATS,
        keystores=STORES,
    )


async def delete_secret(scene: Scene) -> None:
    """Somebody deletes the Secret."""
    await scene.world.delete(SECRETS, "web")


async def deny(scene: Scene) -> None:
    """Somebody denies the request that is there; an hour passes."""
    await decide(scene, "Denied")
    await scene.world.advance(timedelta(hours=1, minutes=1))


async def approve(scene: Scene) -> None:
    """Somebody approves whatever waits."""
    await decide(scene, "Approved")


async def decide(scene: Scene, verdict: str) -> None:
    """Write the condition into all undecided requests."""
    for request in (await scene.world.client.list(CERTIFICATE_REQUESTS, "default")).items:
        if any(condition.type in ("Approved", "Denied") for condition in request.status.conditions):
            continue
        made = {"type": verdict, "status": "True", "reason": "test", "message": "by hand"}
        current_conditions = [msgspec.to_builtins(condition) for condition in request.status.conditions]
        patch = {"status": {"conditions": [*current_conditions, made]}}
        await scene.world.client.patch(
            CERTIFICATE_REQUESTS, request.metadata.name, "default", patch, subresource="status"
        )
    await scene.world.settle()


async def replace_ca(scene: Scene) -> None:
    """The Certificate of the CA issuer is issued again."""
    await scene.world.renew("ca")


STAGES = [
    Stage("issuance", 7, issue, 1),
    Stage("key stores and formats", 7, issue_all_formats, 1, before=(set_password,)),
    Stage("temporary certificate", 12, issue_temporary, 1),
    Stage("renewal", 8, renewal_time, 2, before=(issue,)),
    Stage("renewal with the same key", 8, renewal_time, 2, before=(issue_never,)),
    Stage("upkeep", 2, change_all, 1, before=(set_password, issue)),
    Stage("deleted Secret", 8, delete_secret, 2, before=(issue,)),
    Stage("failure", 8, deny, 1, before=(issue,), after=(wait, approve), options=BY_HAND),
    Stage("new CA", 9, replace_ca, 1, before=(issue,)),
]


async def shape_of(scene: Scene) -> dict[str, Any]:
    """All that there is, without what differs from one run to the next: keys, dates, names by chance."""
    world = scene.world
    shape: dict[str, Any] = {}
    for secret in (await world.client.list(SECRETS, "default")).items:
        shape[f"Secret {secret.metadata.name}"] = (
            sorted(secret.data),
            secret.metadata.labels,
            secret.metadata.annotations,
            secret.data.get("ca.crt", b"").count(b"BEGIN"),
        )
    for request in (await world.client.list(CERTIFICATE_REQUESTS, "default")).items:
        shape[f"Request {request.metadata.name}"] = sorted(c.type for c in request.status.conditions)
    for certificate in (await world.client.list(CERTIFICATES, "default")).items:
        status = certificate.status
        shape[f"Certificate {certificate.metadata.name}"] = (
            [(c.type, c.status, c.reason, c.message) for c in status.conditions if c.type != "Ready"],
            conditions.is_true(status.conditions, "Ready"),
            (status.revision, status.next_private_key_secret_name, status.failed_issuance_attempts),
        )
    return shape


@asynccontextmanager
async def staged(stage: Stage) -> AsyncIterator[Scene]:
    """A world in which everything before the stage has happened."""
    async with make_world(**stage.options) as world:
        scene = Scene(world)
        await scene.add_ca()
        if stage.options:
            # Whoever decides by hand has to do so for the CA too.
            await approve(scene)
        for before in stage.before:
            await before(scene)
        yield scene


def keep_ledger(scene: Scene) -> Ledger:
    """Read all writes from now on."""
    recording = scene.world.recording
    ledger = Ledger(recording.handler)
    recording.handler = ledger.handle
    return ledger


_undisturbed: dict[str, dict[str, Any]] = {}


async def undisturbed(stage: Stage) -> dict[str, Any]:
    """What there is at the end of a stage in which nobody dies."""
    if stage.name not in _undisturbed:
        async with staged(stage) as scene:
            ledger = keep_ledger(scene)
            await stage.happens(scene)
            # So that no write of the stage is missing among those after which the process is killed.
            assert len(ledger.writes) == stage.writes, ledger.writes
            await stage.finish(scene)
            _undisturbed[stage.name] = await shape_of(scene)
    return _undisturbed[stage.name]
