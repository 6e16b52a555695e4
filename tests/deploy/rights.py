"""Which rights a walk through all that the controllers do takes, and which ones the manifests grant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from certwright.controllers.manager import Controllers
from certwright.controllers.replicas.cluster import ClusterSettings, beside_a_server
from certwright.controllers.settings import Settings
from certwright.kube.api.errors import AlreadyExists
from certwright.kube.api.kinds import Kind
from certwright.kube.apiserver.auth.rbac import RbacAuthorizer
from certwright.kube.apiserver.model.routes import Action
from certwright.kube.client.local import LocalTransport
from certwright.kube.client.rest import Client
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.kube.util.tasks import TaskSet
from deploy.files import Json, documents
from support.world import World

ACCOUNT = Identity(
    "system:serviceaccount:certwright:certwright",
    groups=("system:serviceaccounts", "system:serviceaccounts:certwright", "system:authenticated"),
)
NAMESPACE = "certwright"
RBAC = "rbac.authorization.k8s.io"
NAMESPACES: Kind[Json] = Kind("", "v1", "Namespace", "namespaces", "namespace", False, dict[str, Any])


class Right(NamedTuple):
    """A verb, on a resource (`group/resource/subresource`) of one namespace; empty: of all."""

    verb: str
    resource: str
    namespace: str


@dataclass(slots=True)
class Work:
    """Controllers with the rights of `ACCOUNT`; what they `used` of these, and what they were `refused`."""

    world: World
    used: set[Right] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    loses_answers: bool = False

    async def handle(self, request: Request) -> Response:
        """Pass a request on. While `loses_answers` each create is made twice: as by a proxy that has not
        heard the answer to the first one."""
        if self.loses_answers and request.method == "POST" and "/events" not in request.target:
            await self.world.server.handle(request)
        response = await self.world.server.handle(request)
        if response.status in (401, 403):
            self.refused.append(f"{request.method} {request.target}: {response.body.decode()}")
        return response

    def note(self, action: Action) -> None:
        """The controllers need this right."""
        if action.resource:
            self.used.add(Right(action.verb, _named(action), action.namespace))

    @asynccontextmanager
    async def at_work(self, namespace: str | None, lease: str, **options: Any) -> AsyncIterator[None]:
        """Controllers are running, as the only replica."""
        given = {"namespace": namespace, "cluster_resource_namespace": NAMESPACE} | options
        tasks = TaskSet()
        made = beside_a_server(
            LocalTransport(self.handle, ACCOUNT),
            ClusterSettings(identity="one", kube_api_qps=-1, leader_election_namespace=lease),
            clock=self.world.clock,
            make=lambda client, mine: self._make(client, mine, given),
            tasks=tasks,
        )
        made.start()
        try:
            yield
        finally:
            await made.close()
            await tasks.close()

    def _make(self, client: Client, mine: Any, options: dict[str, Any]) -> Controllers:
        return Controllers(client, self.world.clock, Inline(), Settings(**options), mine)


def record(patches: pytest.MonkeyPatch, work: Work) -> None:
    """Have the work hear of every right that `ACCOUNT` needs."""
    allows = RbacAuthorizer.allows

    def recorded(self: RbacAuthorizer, user: Identity, action: Action) -> bool:
        if user.name == ACCOUNT.name:
            work.note(action)
        return allows(self, user, action)

    patches.setattr(RbacAuthorizer, "allows", recorded)


async def install(world: World, text: str) -> None:
    """Create the roles and bindings of the manifests, and the namespace that they are for."""
    await world.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for obj in documents(text):
        if obj["apiVersion"].startswith(RBAC):
            try:
                await world.create(_kind_of(obj), obj)
            except AlreadyExists:
                raise AssertionError(f"{obj['kind']} {obj['metadata']['name']} was there before") from None


def unneeded(text: str, used: set[Right]) -> set[tuple[str, str]]:
    """What the manifests grant, and nobody used: verbs and resources."""
    return {
        (right.verb, right.resource)
        for right in granted(text)
        if not any(
            right.namespace in ("", used_right.namespace)
            for used_right in used
            if used_right[:2] == right[:2]
        )
    }


def granted(text: str) -> set[Right]:
    """What the manifests grant to the controllers."""
    objects = documents(text)
    roles = {
        (role["kind"], _place(role), role["metadata"]["name"]): role for role in objects if "rules" in role
    }
    rights: set[Right] = set()
    for binding in (obj for obj in objects if obj["kind"].endswith("RoleBinding")):
        reference = binding["roleRef"]
        namespace = _place(binding)
        place = namespace if reference["kind"] == "Role" else ""
        rules = roles[reference["kind"], place, reference["name"]]["rules"]
        rights |= {Right(verb, name, namespace) for rule in rules for verb, name in _of_rule(rule)}
    return rights


def _of_rule(rule: Json) -> Iterator[tuple[str, str]]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield verb, f"{group}/{resource}"


def _named(action: Action) -> str:
    parts = (action.group, action.resource, action.subresource)
    return "/".join(parts if action.subresource else parts[:2])


def _place(obj: Json) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _kind_of(obj: Json) -> Kind[Json]:
    kind = obj["kind"]
    plural = f"{kind.lower()}s"
    return Kind(RBAC, "v1", kind, plural, kind.lower(), not kind.startswith("Cluster"), dict[str, Any])
