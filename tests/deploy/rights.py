"""Which rights a walk through all that the controllers do takes, and which ones the manifests grant."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from acme.fake_ca import FakeCa
from certwright.controllers.acme.routes import objects
from certwright.controllers.manager import ControllerManager
from certwright.controllers.replicas.shards import ClusterSettings, beside_a_server
from certwright.controllers.settings import Settings
from certwright.kube.api import codec
from certwright.kube.api.errors import AlreadyExists
from certwright.kube.api.kinds import Kind, controller_reference
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.apiserver.auth.rbac import RbacAuthorizer
from certwright.kube.apiserver.model.routes import Action
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.kube.util.tasks import TaskSet
from certwright.resources.acme import Challenge, ChallengeSpec
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ISSUERS
from controllers.scene import make_certificate
from support.programs import tool
from support.world import World


async def create_issuer(world: World, ca: FakeCa, namespace: str = "default") -> None:
    """Make an Issuer `acme` that proves names by HTTP-01, and does not look for the proof itself. Without a
    namespace it is a ClusterIssuer."""
    spec = {
        "server": ca.directory,
        "privateKeySecretRef": {"name": "account"},
        "solvers": [{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}],
    }
    meta = {"name": "acme", "namespace": namespace}
    obj = {"apiVersion": ISSUERS.api_version, "kind": "Issuer", "metadata": meta, "spec": {"acme": spec}}
    if namespace:
        await world.create(ISSUERS, codec.from_dict(ISSUERS, obj))
    else:
        obj |= {"kind": "ClusterIssuer", "metadata": {"name": "acme"}}
        await world.create(CLUSTER_ISSUERS, codec.from_dict(CLUSTER_ISSUERS, obj))
    await world.settle()


async def prove_by_routes(world: World, ca: FakeCa, namespace: str) -> None:
    """Prove names by an Ingress that exists, and by an HTTPRoute. What an ended Challenge has left is
    removed."""
    solvers: list[Json] = [
        {"http01": {"ingress": {"name": "web"}}, "selector": {"dnsZones": ["edited.org"]}},
        {"http01": {"gatewayHTTPRoute": {"parentRefs": [{"name": "gate"}]}}},
    ]
    spec = {
        "server": ca.directory,
        "privateKeySecretRef": {"name": "routes-account"},
        "solvers": [{**solver, "waitInsteadOfSelfCheck": "0s"} for solver in solvers],
    }
    meta = {"name": "routes", "namespace": namespace}
    obj = {"apiVersion": ISSUERS.api_version, "kind": "Issuer", "metadata": meta, "spec": {"acme": spec}}
    await world.create(ISSUERS, codec.from_dict(ISSUERS, obj))
    dns_names = ("a.edited.org", "b.example.org")
    await world.create(
        CERTIFICATES, make_certificate("routed", "routes", namespace=namespace, dns_names=dns_names)
    )
    await _leave_objects(world, namespace)
    await world.advance(timedelta(hours=2))
    assert await world.is_ready("routed", namespace)
    for kind in (objects.PODS, objects.SERVICES, objects.INGRESSES, objects.HTTP_ROUTES):
        left = (await world.client.list(kind, namespace, labels=f"{objects.SOLVER_LABEL}=true")).items
        assert left == [], kind.kind
    await world.client.delete(CERTIFICATES, "routed", namespace)


def make_challenge(name: str, namespace: str, *finalizers: str) -> Challenge:
    """A Challenge that no Order of ours has made."""
    spec = ChallengeSpec(
        url=f"https://ca.example/{name}",
        authorization_url="https://ca.example/authorization",
        dns_name=f"{name}.example.org",
        type="HTTP-01",
        token="token",
        key="key",
        solver=Solver(),
        issuer_ref=IssuerReference(name="acme"),
    )
    return Challenge(metadata=ObjectMeta(name=name, namespace=namespace, finalizers=finalizers), spec=spec)


async def _leave_objects(world: World, namespace: str) -> None:
    """Objects as cert-manager's solver makes them, of a Challenge that has ended."""
    ended = await world.client.create(CHALLENGES, make_challenge("ended", namespace))
    status = {"status": {"state": "invalid"}}
    await world.client.patch(CHALLENGES, "ended", namespace, status, subresource="status")
    meta = {
        "name": "ended",
        "namespace": namespace,
        "labels": {objects.SOLVER_LABEL: "true"},
        "ownerReferences": [msgspec.to_builtins(controller_reference(CHALLENGES, ended.metadata))],
    }
    specs: dict[str, Json] = {
        "Pod": {"containers": [{"name": "acmesolver", "image": "acmesolver"}]},
        "Service": {"ports": [{"port": 8089}]},
        "Ingress": {"rules": [{"host": "ended.example.org"}]},
        "HTTPRoute": {},
    }
    for kind in (objects.PODS, objects.SERVICES, objects.INGRESSES, objects.HTTP_ROUTES):
        await world.create(kind, {"metadata": meta, "spec": specs[kind.kind]})


ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "certwright"
Json = dict[str, Any]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str) -> list[Json]:
    """The objects of a YAML stream."""
    return [document for document in yaml.load_all(text, _LOADER) if document]


def helm(*words: str) -> str:
    """What Helm prints. Without it the test is skipped."""
    command = [str(tool("helm", made_by="helm")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(*words: str) -> str:
    """The chart, with these further options of `helm template`."""
    where = ("--namespace", "certwright", "--kube-version", "1.34.0")
    return helm("template", "certwright", "deploy/helm/certwright", *where, *words)


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

    def _make(self, client: Client, mine: Any, options: dict[str, Any]) -> ControllerManager:
        return ControllerManager(client, self.world.clock, Inline(), Settings(**options), mine)


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
