"""Our own API server takes every manifest, and the rights in them are enough."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from acme.fake_ca import FakeCa, Refusal
from certwright.acme.protocol.messages import Action
from certwright.client.local import LocalTransport
from certwright.client.rest import Client
from certwright.controllers.acme.wiring import AcmeOptions
from certwright.controllers.beside import ClusterSettings, beside_a_server
from certwright.controllers.manager import Controllers
from certwright.kit.exchange import Identity, Request, Response
from certwright.kit.tasks import TaskSet
from certwright.kit.workshop import Inline
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.core import Secret, SecretMeta
from certwright.resources.errors import AlreadyExists
from certwright.resources.issuer import CAIssuer, IssuerSpec
from certwright.resources.kinds import Kind
from certwright.resources.meta import ObjectMeta
from certwright.resources.signing_request import CertificateSigningRequest, CertificateSigningRequestSpec
from certwright.resources.table import (
    CERTIFICATE_SIGNING_REQUESTS,
    CERTIFICATES,
    CLUSTER_ISSUERS,
    ISSUERS,
    ORDERS,
    SECRETS,
)
from conformance.daemon import Daemon, running_daemon
from controllers.acme.fake_world import Shown
from controllers.scene import make_ca_issuer, make_certificate, make_cluster_issuer, make_issuer
from deploy.acme import create_issuer
from deploy.files import DEPLOY, Json, documents, render
from issuers.authority import new_root
from support.real import require
from support.world import World, make_world

# Kinds of programs that our server has nothing to do with: it runs no pods.
ELSEWHERE = {"Deployment", "PodDisruptionBudget", "ServiceMonitor", "PodMonitor"}
ACCOUNT = Identity(
    "system:serviceaccount:certwright:certwright",
    groups=("system:serviceaccounts", "system:serviceaccounts:certwright", "system:authenticated"),
)
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One server without controllers."""
    require("kubectl")
    with running_daemon(tmp_path_factory.mktemp("deploy"), "--controllers", "") as found:
        assert found.run("kubectl", "create", "namespace", "certwright").returncode == 0
        yield found


def dry_run(daemon: Daemon, objects: list[Json]) -> subprocess.CompletedProcess[str]:
    text = yaml.safe_dump_all(objects)
    return daemon.run(
        "kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=text
    )


@pytest.mark.parametrize("name", ["crds.yaml", "kubernetes.yaml", "kubernetes-one-namespace.yaml"])
def test_the_server_takes_the_plain_manifests(daemon: Daemon, name: str) -> None:
    objects = [one for one in documents((DEPLOY / name).read_text()) if one["kind"] not in ELSEWHERE]
    # The definitions are there already, as the server's own: applied with the fields of somebody else.
    done = dry_run(daemon, objects)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize(
    "words",
    [(), ("--set", "namespace=certwright"), ("--set", "shards=4,replicaCount=4,crds.enabled=true")],
    ids=["as it is", "one namespace", "shards and definitions"],
)
def test_the_server_takes_what_the_chart_renders(daemon: Daemon, words: tuple[str, ...]) -> None:
    objects = [one for one in documents(render(*words)) if one["kind"] not in ELSEWHERE]
    done = dry_run(daemon, objects)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


def _kind_of(obj: Json) -> Kind[Json]:
    kind = obj["kind"]
    plural = f"{kind.lower()}s"
    return Kind(RBAC, "v1", kind, plural, kind.lower(), not kind.startswith("Cluster"), dict[str, Any])


async def _install(world: World, text: str) -> None:
    for obj in documents(text):
        if obj["apiVersion"].startswith(RBAC):
            try:
                await world.create(_kind_of(obj), obj)
            except AlreadyExists:
                raise AssertionError(f"{obj['kind']} {obj['metadata']['name']} was there before") from None


async def _work(
    world: World, namespace: str | None, lease: str, **more: Any
) -> tuple[Any, TaskSet, list[str]]:
    """Controllers with the rights of `ACCOUNT`; the list gets what they were refused."""
    refused: list[str] = []

    async def handle(request: Request) -> Response:
        response = await world.server.handle(request)
        if response.status in (401, 403):
            refused.append(f"{request.method} {request.target}: {response.body.decode()}")
        return response

    def make(client: Client, mine: Any) -> Controllers:
        # Everything in one namespace, the Secrets of ClusterIssuers too.
        options: dict[str, Any] = {"namespace": namespace, "cluster_resource_namespace": "certwright"}
        options |= more
        return Controllers(client, world.clock, Inline(), mine=mine, **options)

    tasks = TaskSet()
    settings = ClusterSettings(identity="one", kube_api_qps=-1, leader_election_namespace=lease)
    transport = LocalTransport(handle, ACCOUNT)
    made = beside_a_server(transport, settings, clock=world.clock, make=make, tasks=tasks)
    made.start()
    return made, tasks, refused


NAMESPACES: Kind[Json] = Kind("", "v1", "Namespace", "namespaces", "namespace", False, dict[str, Any])
MANIFESTS = pytest.mark.parametrize(
    ("name", "namespace", "lease"),
    [
        ("kubernetes.yaml", None, "kube-system"),
        ("kubernetes-one-namespace.yaml", "certwright", "certwright"),
    ],
)


@MANIFESTS
async def test_the_rights_in_the_manifests_are_enough_for_acme(
    name: str, namespace: str | None, lease: str
) -> None:
    async with make_world(controllers=False) as world:
        await world.create(NAMESPACES, {"metadata": {"name": "certwright"}})
        await _install(world, (DEPLOY / name).read_text())
        ca, shown = FakeCa(world.clock.now), Shown()
        acme = AcmeOptions(make_transport=ca.transport, responder=shown)
        made, tasks, refused = await _work(world, namespace, lease, acme=acme)
        await create_issuer(world, ca, "certwright")
        # One name is proven. The other is refused, tried again after an hour, and given up.
        ca.verdicts["bad.example.org"] = Refusal("caa", "CAA forbids it")
        for one in ("good", "bad"):
            dns = (f"{one}.example.org",)
            asked = make_certificate(one, "acme", namespace="certwright", dns_names=dns)
            await world.create(CERTIFICATES, asked)
        await world.advance(timedelta(hours=2))
        assert refused == []
        assert await world.is_ready("good", "certwright")
        assert not await world.is_ready("bad", "certwright")
        assert [action for action, _ in ca.requests].count(Action.NEW_ORDER) > 2
        for one in ("good", "bad"):
            await world.client.delete(CERTIFICATES, one, "certwright")
        await world.advance(timedelta(minutes=5))
        assert shown.tokens == {}
        assert (await world.client.list(ORDERS)).items == []
        assert refused == []
        await made.close()
        await tasks.close()


@MANIFESTS
async def test_the_rights_in_the_manifests_are_enough_to_issue_renew_and_clean_up(
    name: str, namespace: str | None, lease: str
) -> None:
    async with make_world(controllers=False) as world:
        await world.create(NAMESPACES, {"metadata": {"name": "certwright"}})
        await _install(world, (DEPLOY / name).read_text())
        made, tasks, refused = await _work(world, namespace, lease)
        await world.create(ISSUERS, make_issuer("root", namespace="certwright"))
        ca = make_certificate(
            "ca", "root", is_ca=True, common_name="CA", dns_names=(), namespace="certwright"
        )
        await world.create(CERTIFICATES, ca)
        await world.settle()
        issuer = make_ca_issuer("ca", "ca")
        await world.client.create(
            ISSUERS,
            type(issuer)(metadata=make_issuer("ca", namespace="certwright").metadata, spec=issuer.spec),
        )
        await world.create(CERTIFICATES, make_certificate("web", "ca", namespace="certwright"))
        await world.settle()
        assert refused == []
        assert await world.is_ready("web", "certwright")
        issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
        status = {"status": {"conditions": [issuing]}}
        await world.client.patch(CERTIFICATES, "web", "certwright", status, subresource="status")
        await world.settle()
        assert (await world.certificate("web", "certwright")).status.revision == 2
        assert refused == []
        await made.close()
        await tasks.close()


async def test_the_rights_of_the_chart_are_enough_to_sign_kubernetes_requests() -> None:
    words = ("--set", "certificateSigningRequests.enabled=true,crds.enabled=false")
    text = render(*words)
    enabled = "*,certificatesigningrequests-issuer-ca,certificatesigningrequests-issuer-selfsigned"
    assert f"--controllers={enabled}\n" in text
    async with make_world(controllers=False) as world:
        await world.create(NAMESPACES, {"metadata": {"name": "certwright"}})
        await _install(world, text)
        made, tasks, refused = await _work(world, None, "kube-system", enabled=enabled)
        root = Secret(metadata=SecretMeta(name="ca", namespace="certwright"), data=new_root("Root").secret())
        await world.create(SECRETS, root)
        await world.create(
            CLUSTER_ISSUERS, make_cluster_issuer("ca", IssuerSpec(ca=CAIssuer(secret_name="ca")))
        )
        usages = ("digital signature", "server auth")
        plan = CsrPlan(common_name="mine", dns_names=("a.example.com",), usages=usages)
        spec = CertificateSigningRequestSpec(
            request=build_csr(plan, generate(KeyPlan.of("ECDSA"))),
            signer_name="clusterissuers.cert-manager.io/ca",
            usages=usages,
        )
        request = CertificateSigningRequest(metadata=ObjectMeta(name="mine"), spec=spec)
        await world.create(CERTIFICATE_SIGNING_REQUESTS, request)
        approved = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "it may"}
        status = {"status": {"conditions": [approved]}}
        await world.client.patch(CERTIFICATE_SIGNING_REQUESTS, "mine", "", status, subresource="approval")
        await world.settle()
        assert refused == []
        assert (await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")).status.certificate
        await made.close()
        await tasks.close()


def test_a_replica_of_one_namespace_signs_no_kubernetes_requests() -> None:
    text = render("--set", "certificateSigningRequests.enabled=true,namespace=certwright")
    assert "certificatesigningrequests" not in text


def test_no_object_is_named_twice() -> None:
    for path in (DEPLOY / "kubernetes.yaml", DEPLOY / "kubernetes-one-namespace.yaml"):
        names = [
            (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
            for one in documents(Path(path).read_text())
        ]
        assert len(names) == len(set(names))
