"""An issuer of another program: its kind, what approvers and issuers do to a request, and one at work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from certwright.kube.api import conditions, errors
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.kube.util.http_messages import Request, Response
from certwright.resources import causes
from certwright.resources.causes import Why
from certwright.resources.names import NOT_BEFORE
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.scene import make_certificate
from issuers.authority import new_root
from support.world import ADMIN, CONTROLLER, World


async def mark(world: World, name: str, kind: str, reason: str = "test", **status: Any) -> None:
    """Set a condition of a request as an approver or an external issuer does."""
    request = await world.get(CERTIFICATE_REQUESTS, name)
    new = Condition(type=kind, status="True", reason=reason, message=f"it is {kind}")
    if kind == "Failed":
        new = Condition(type="Ready", status="False", reason="Failed", message="the issuer said no")
    updated = conditions.with_condition(request.status.conditions, new, world.clock.now())
    await world.patch(
        CERTIFICATE_REQUESTS, name, {"status": {"conditions": updated, **status}}, subresource="status"
    )


async def admin_creates(world: World, path: str, **body: Any) -> None:
    """Create an object of a kind that has no struct."""
    request = Request("POST", path, body=msgspec.json.encode(body), user=ADMIN)
    response = await world.server.handle(request)
    assert response.status == 201, response.body


async def serve_external_kind(world: World) -> None:
    """Serve a kind of issuer that is not ours."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await admin_creates(world, path, metadata={"name": "things.example.com"}, spec=spec)


async def grant(world: World, name: str, rules: list[dict[str, Any]], subject: dict[str, str]) -> None:
    """Give a subject a ClusterRole with these rules."""
    path = "/apis/rbac.authorization.k8s.io/v1"
    meta = {"name": name}
    await admin_creates(world, f"{path}/clusterroles", metadata=meta, rules=rules)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta}
    await admin_creates(world, f"{path}/clusterrolebindings", metadata=meta, roleRef=ref, subjects=[subject])


def signer_rule(verb: str, *signers: str) -> dict[str, Any]:
    """The rule that allows `approve` or `reference` for signers."""
    resources = {"resources": ["signers"], "resourceNames": list(signers)}
    return {"verbs": [verb], "apiGroups": ["cert-manager.io"], **resources}


async def let_approve_external_kind(world: World) -> None:
    """What whoever installs such an issuer has to grant."""
    subject = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
    await grant(world, "approve-things", [signer_rule("approve", "things.example.com/*")], subject)


async def external(world: World) -> None:
    """A Certificate `web` whose issuer is somebody else's controller."""
    await serve_external_kind(world)
    await let_approve_external_kind(world)
    await ask_a_thing(world)


async def ask_a_thing(world: World) -> None:
    """A Certificate `web` that such an issuer is to sign."""
    await world.add(CERTIFICATES, make_certificate("web", "x", issuer_ref=ISSUER))


ISSUER = IssuerReference(name="x", kind="Thing", group="example.com")
ROOT = new_root("Somebody's CA")


class ExternalIssuer:
    """Stands in front of the API server and answers the CertificateRequests that the controllers make.

    `why` says of a moment how a request fails then; None: it is signed, for `life`. `asked` are the
    moments at which it was asked, with the namespace and name of the request.
    """

    def __init__(self, world: World, why: Callable[[datetime], Why | None], *, life: timedelta) -> None:
        self.asked: list[tuple[datetime, ObjectKey]] = []
        self._world = world
        self._why = why
        self._life = life
        self._handler = world.recording.handler
        self._answers: set[asyncio.Task[None]] = set()
        world.recording.handler = self.handle

    async def handle(self, request: Request) -> Response:
        """Serve; answer a new CertificateRequest a moment later."""
        response = await self._handler(request)
        path = request.target.partition("?")[0]
        if request.user == CONTROLLER and request.method == "POST" and path.endswith("/certificaterequests"):
            made = msgspec.json.decode(response.body)["metadata"] if response.status == 201 else None
            if made is not None:
                key = ObjectKey(made["namespace"], made["name"])
                self.asked.append((self._world.clock.now(), key))
                task = asyncio.create_task(self._answer(key))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
        return response

    async def _answer(self, key: ObjectKey) -> None:
        while True:
            try:
                request = await self._world.client.get(CERTIFICATE_REQUESTS, key.name, key.namespace)
                if (why := self._why(self._world.clock.now())) is not None and why.not_before is not None:
                    request = await self._name_time(key, why.not_before)
                await self._write(key, request, self._decide(request))
            except errors.Conflict:
                continue
            except errors.NotFound:
                return
            return

    async def _name_time(self, key: ObjectKey, moment: datetime) -> CertificateRequest:
        patch = {"metadata": {"annotations": {NOT_BEFORE: moment.isoformat()}}}
        return await self._world.client.patch(CERTIFICATE_REQUESTS, key.name, key.namespace, patch)

    def _decide(self, request: CertificateRequest) -> dict[str, Any]:
        now = self._world.clock.now()
        why = self._why(now)
        new = [Condition("Ready", "True", "Issued", "signed")]
        status: dict[str, Any] = {}
        if why is None:
            status["certificate"] = ROOT.sign(request.spec.request, now=now, duration=self._life)
        else:
            failure = causes.condition_of(why)
            new = [
                Condition("Ready", "False", "Failed", "the issuer said no"),
                *([failure] if failure else []),
            ]
        current_conditions = request.status.conditions
        for condition in new:
            current_conditions = conditions.with_condition(current_conditions, condition, now)
        return {"conditions": current_conditions, **status}

    async def _write(self, key: ObjectKey, request: CertificateRequest, status: dict[str, Any]) -> None:
        version = {"resourceVersion": request.metadata.resource_version}
        await self._world.client.patch(
            CERTIFICATE_REQUESTS,
            key.name,
            key.namespace,
            {"metadata": version, "status": status},
            subresource="status",
        )


async def add_external_issuer(
    world: World, why: Callable[[datetime], Why | None], *, life: timedelta = timedelta(days=90)
) -> ExternalIssuer:
    """That issuer in a world."""
    await serve_external_kind(world)
    await let_approve_external_kind(world)
    return ExternalIssuer(world, why, life=life)
