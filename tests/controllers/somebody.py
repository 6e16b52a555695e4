"""Somebody else's issuer that answers every request by itself: with a certificate, or as it is told to."""

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
from certwright.resources.table import CERTIFICATE_REQUESTS
from controllers.things import let_approve_things, serve_things
from issuers.authority import new_root
from support.world import CONTROLLER, World

ISSUER = IssuerReference(name="x", kind="Thing", group="example.com")
ROOT = new_root("Somebody's CA")


class Somebody:
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


async def move_in(
    world: World, why: Callable[[datetime], Why | None], *, life: timedelta = timedelta(days=90)
) -> Somebody:
    """That issuer in a world."""
    await serve_things(world)
    await let_approve_things(world)
    return Somebody(world, why, life=life)
