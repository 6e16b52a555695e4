"""The rights in the manifests are enough for all that the controllers do, and none of them is too many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from acme.fake_ca import FakeCa, Refusal
from certwright.acme.protocol.messages import Action
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.controllers.acme.options import AcmeOptions, ClusterListener
from certwright.controllers.acme.routes.objects import HTTP_ROUTES
from certwright.controllers.cainjector.targets import KINDS as CA_TARGETS
from certwright.controllers.cainjector.targets import untyped as untyped_target
from certwright.kit.rate_limit import Rate
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources import names
from certwright.resources.certificate import PrivateKeySpec
from certwright.resources.delivery import Delivery, DeliverySpec
from certwright.resources.issuer import CAIssuer, IssuerSetSpec, IssuerSpec, SelfSignedIssuer
from certwright.resources.references import IssuerReference, LocalObjectReference
from certwright.resources.request import CertificateSigningRequest, CertificateSigningRequestSpec
from certwright.resources.table import (
    CERTIFICATE_SIGNING_REQUESTS,
    CERTIFICATES,
    CHALLENGES,
    CLUSTER_ISSUER_SETS,
    CLUSTER_ISSUERS,
    DELIVERIES,
    ISSUER_SETS,
    ISSUERS,
    ORDERS,
)
from controllers.acme.fake_world import Shown
from controllers.cainjector.test_cainjector import make as make_target
from controllers.scene import make_certificate, make_cluster_issuer, make_issuer
from controllers.shims.shim_scene import GATEWAY_KINDS, INGRESSES, listener, serve, untyped
from deploy.rights import (
    DEPLOY,
    NAMESPACE,
    Work,
    create_issuer,
    install,
    make_challenge,
    prove_by_routes,
    record,
    render,
    unneeded,
)
from issuers.authority import new_root
from issuers.venafi.conftest import secret_of, spec_of
from support.venafi.server import fake_venafi
from support.waiting import until
from support.world import World, make_world

MANIFESTS = pytest.mark.parametrize(
    ("name", "namespace", "lease"),
    [("kubernetes.yaml", None, "kube-system"), ("kubernetes-one-namespace.yaml", NAMESPACE, NAMESPACE)],
)
REPLICAS = ObjectKey(NAMESPACE, "certwright-http01")
KEPT = PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")

# Asked for by Kubernetes where the admission plugin OwnerReferencesPermissionEnforcement is on: who makes an
# object that its owner waits for must be allowed to change the owner's finalizers. Our server has none.
NEEDED_ELSEWHERE = {
    # OpenShift's own admission.
    ("create", "discovery.k8s.io/endpointslices/restricted"),
    ("create", "route.openshift.io/routes/custom-host"),
    ("update", "cert-manager.io/certificates/finalizers"),
    ("update", "cert-manager.io/certificaterequests/finalizers"),
    ("update", "acme.cert-manager.io/orders/finalizers"),
    ("update", "networking.k8s.io/ingresses/finalizers"),
    ("update", "gateway.networking.k8s.io/gateways/finalizers"),
    ("update", "gateway.networking.k8s.io/listenersets/finalizers"),
    ("update", "gateway.networking.x-k8s.io/xlistenersets/finalizers"),
}

# So that there is something to be remembered of the CA.
LIMITS = CaLimits(name="the CA", limits={"newOrders": Limit(Rate(300, timedelta(hours=3)))})


@asynccontextmanager
async def installed(text: str, patches: pytest.MonkeyPatch) -> AsyncIterator[Work]:
    """A world in which the manifests are installed."""
    async with make_world(controllers=False) as world:
        await install(world, text)
        await serve(world, *GATEWAY_KINDS, HTTP_ROUTES)
        work = Work(world)
        record(patches, work)
        yield work
        assert work.refused == []


async def issue(world: World) -> None:
    """Issue from a CA, renew, put a label back, clean up; answers get lost meanwhile."""
    client = world.client
    await world.create(ISSUERS, make_issuer("root", namespace=NAMESPACE))
    ca = make_certificate("ca", "root", is_ca=True, common_name="CA", dns_names=(), namespace=NAMESPACE)
    await world.create(CERTIFICATES, ca)
    await world.settle()
    by_ca = IssuerSpec(ca=CAIssuer(secret_name="ca"))
    await world.create(ISSUERS, make_issuer("ca", by_ca, namespace=NAMESPACE))
    await world.create(
        CERTIFICATES, make_certificate("web", "ca", namespace=NAMESPACE, revision_history_limit=1)
    )
    await world.advance(timedelta(minutes=1))
    assert await world.is_ready("web", NAMESPACE)
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
    status = {"status": {"conditions": [issuing]}}
    await client.patch(CERTIFICATES, "web", NAMESPACE, status, subresource="status")
    await world.settle()
    assert (await world.certificate("web", NAMESPACE)).status.revision == 2
    unlabelled = {"metadata": {"labels": {names.FAO_LABEL: None}}}
    await client.patch(SECRETS, "web", NAMESPACE, unlabelled)
    await world.settle()
    assert names.FAO_LABEL in (await world.secret("web", NAMESPACE)).metadata.labels
    await client.delete(CERTIFICATES, "web", NAMESPACE)
    await world.settle()


async def issue_for_ingresses(world: World) -> None:
    """Certificates of an Ingress, and of listeners; one is changed, and replaced."""
    annotations = {"cert-manager.io/issuer": "ca"}
    meta = {"name": "web", "namespace": NAMESPACE, "annotations": annotations}
    tls = [{"hosts": ["a.example.com"], "secretName": "of-ingress"}]
    await world.create(INGRESSES, {"metadata": meta, "spec": {"tls": tls, "rules": [{"host": "a"}]}})
    for kind in GATEWAY_KINDS:
        spec = {"listeners": [listener("b.example.com", f"of-{kind.singular}")]}
        await world.create(untyped(kind), {"metadata": meta, "spec": spec})
    await world.settle()
    for kind in GATEWAY_KINDS:
        assert await world.is_ready(f"of-{kind.singular}", NAMESPACE)
    for changed in ({"hosts": ["c.example.com"]}, {"secretName": "renamed"}):
        tls = [{**tls[0], **changed}]
        await world.client.patch(INGRESSES, "web", NAMESPACE, {"spec": {"tls": tls}})
        await world.settle()
    assert await world.is_ready("renamed", NAMESPACE)


async def inject_ca(world: World) -> None:
    """The CA of a Certificate in one object of each kind."""
    annotations = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/ca"}
    for kind in CA_TARGETS:
        made = make_target(kind, "it")
        made["metadata"]["annotations"] = annotations
        await world.create(untyped_target(kind), made)
    await world.settle()


async def issue_from_sets(world: World, *, also_of_the_cluster: bool) -> None:
    """Issue from a set of Issuers, and from one of ClusterIssuers; each set is created after the request, so
    that its member is recorded later."""
    sets: list[tuple[Kind[Any], ObjectMeta, IssuerReference]] = [
        (ISSUER_SETS, ObjectMeta(name="set", namespace=NAMESPACE), IssuerReference(name="ca"))
    ]
    if also_of_the_cluster:
        member = IssuerReference(name="root", kind="ClusterIssuer")
        sets.append((CLUSTER_ISSUER_SETS, ObjectMeta(name="set"), member))
    for kind, meta, member in sets:
        name, reference = kind.kind.lower(), IssuerReference(name="set", kind=kind.kind, group=kind.group)
        made = make_certificate(name, "set", namespace=NAMESPACE, issuer_ref=reference)
        await world.create(CERTIFICATES, made)
        await world.settle()
        await world.create(kind, kind.type(metadata=meta, spec=IssuerSetSpec(issuers=(member,))))
        await world.advance(timedelta(minutes=1))
        assert await world.is_ready(name, NAMESPACE)


async def prove(world: World, ca: FakeCa, shown: Shown) -> None:
    """Have one name proven, and a certificate of it again after it was lost. Another name is refused, tried
    again after an hour, and given up."""
    await create_issuer(world, ca, NAMESPACE)
    ca.verdicts["bad.example.org"] = Refusal("caa", "CAA forbids it")
    for name in ("good", "bad"):
        dns = (f"{name}.example.org",)
        asked = make_certificate(name, "acme", namespace=NAMESPACE, dns_names=dns, private_key=KEPT)
        await world.create(CERTIFICATES, asked)
    await world.advance(timedelta(hours=2))
    assert await world.is_ready("good", NAMESPACE)
    assert not await world.is_ready("bad", NAMESPACE)
    orders = [action for action, _ in ca.requests].count(Action.NEW_ORDER)
    assert orders > 2
    await world.client.patch(SECRETS, "good", NAMESPACE, {"data": {"tls.crt": ""}})
    await world.advance(timedelta(minutes=1))
    assert await world.is_ready("good", NAMESPACE)
    assert [action for action, _ in ca.requests].count(Action.NEW_ORDER) == orders
    await _end_theirs(world)
    for name in ("good", "bad"):
        await world.client.delete(CERTIFICATES, name, NAMESPACE)
    await world.advance(timedelta(minutes=5))
    assert shown.tokens == {}
    assert (await world.client.list(ORDERS)).items == []


async def outlast(world: World, ca: FakeCa, kind: str) -> None:
    """Have a certificate issued although the CA is away for a minute."""
    ca.is_away = True
    reference = IssuerReference(name="acme", kind=kind)
    asked = make_certificate("late", "acme", namespace=NAMESPACE, issuer_ref=reference)
    await world.create(CERTIFICATES, asked)
    await world.advance(timedelta(minutes=1))
    ca.is_away = False
    await world.advance(timedelta(minutes=2))
    assert await world.is_ready("late", NAMESPACE)
    await world.client.delete(CERTIFICATES, "late", NAMESPACE)
    await world.settle()


async def report_delivery(world: World) -> None:
    """A Delivery that no process serves."""
    spec = DeliverySpec(root="nginx", path="web", certificate_ref=LocalObjectReference(name="late"))
    await world.create(DELIVERIES, Delivery(metadata=ObjectMeta(name="web", namespace=NAMESPACE), spec=spec))
    await world.advance(timedelta(minutes=1))
    (condition,) = (await world.get(DELIVERIES, "web", NAMESPACE)).status.conditions
    assert condition.reason == "NoProcess"


async def _end_theirs(world: World) -> None:
    """Delete a Challenge that cert-manager has left, with its finalizer."""
    await world.create(CHALLENGES, make_challenge("theirs", NAMESPACE, names.ACME_FINALIZER))
    status = {"status": {"state": "valid", "presented": False, "processing": False}}
    await world.client.patch(CHALLENGES, "theirs", NAMESPACE, status, subresource="status")
    await world.client.delete(CHALLENGES, "theirs", NAMESPACE)
    await world.settle()
    left = (await world.client.list(CHALLENGES, NAMESPACE)).items
    assert "theirs" not in [obj.metadata.name for obj in left]


async def sign_for_kubernetes(world: World) -> None:
    """Sign a request of Kubernetes' own kind by a ClusterIssuer."""
    root = Secret(metadata=SecretMeta(name="ca", namespace=NAMESPACE), data=new_root("Root").secret())
    await world.create(SECRETS, root)
    by_ca = IssuerSpec(ca=CAIssuer(secret_name="ca"))
    await world.create(CLUSTER_ISSUERS, make_cluster_issuer("ca", by_ca))
    await world.create(ISSUERS, make_issuer("ca", by_ca, namespace=NAMESPACE))
    for kind, name in (("clusterissuers", "ca"), ("issuers", f"{NAMESPACE}.ca")):
        await _approved(world, kind, f"{kind}.cert-manager.io/{name}")
        await world.settle()
        signed = await world.get(CERTIFICATE_SIGNING_REQUESTS, kind)
        assert signed.status.certificate


async def order_for_kubernetes(world: World) -> None:
    """Order a certificate for such a request, which is annotated with the ID of its order."""
    with fake_venafi() as fake:
        login = Secret(metadata=SecretMeta(name="login", namespace=NAMESPACE), data=secret_of("tpp", fake))
        await world.create(SECRETS, login)
        spec = IssuerSpec(venafi=spec_of("tpp", fake))
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("venafi", spec))
        await _approved(world, "ordered", "clusterissuers.cert-manager.io/venafi")
        await until(lambda: bool(fake.state.placed))


async def prove_for_kubernetes(world: World, ca: FakeCa, shown: Shown) -> None:
    """Order a certificate for such a request at an ACME server."""
    ca.sees = lambda challenge, _: challenge.token in shown.tokens
    await create_issuer(world, ca, "")
    await _approved(world, "proven", "clusterissuers.cert-manager.io/acme")
    await world.advance(timedelta(minutes=1))
    assert (await world.get(CERTIFICATE_SIGNING_REQUESTS, "proven")).status.certificate


async def _approved(world: World, name: str, signer: str) -> None:
    usages = ("digital signature", "server auth")
    plan = CsrPlan(common_name="a.example.com", dns_names=("a.example.com",), usages=usages)
    csr = build_csr(plan, generate(KeyPlan.of("ECDSA")))
    spec = CertificateSigningRequestSpec(request=csr, signer_name=signer, usages=usages)
    request = CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec)
    await world.create(CERTIFICATE_SIGNING_REQUESTS, request)
    approved = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "it may"}
    status = {"status": {"conditions": [approved]}}
    await world.client.patch(CERTIFICATE_SIGNING_REQUESTS, name, "", status, subresource="approval")


@MANIFESTS
async def test_the_rights_in_the_manifests_are_enough_and_each_is_needed(
    name: str, namespace: str | None, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (DEPLOY / name).read_text()
    async with installed(text, monkeypatch) as work:
        world, ca, shown = work.world, FakeCa(work.world.clock.now), Shown()
        acme = AcmeOptions(
            make_transport=ca.transport,
            responder=shown,
            cluster_listener=ClusterListener(addresses=("10.0.0.5",), port=8089, service=REPLICAS),
            limits={"ca.example": LIMITS},
        )
        work.loses_answers = True
        async with work.at_work(namespace, lease, acme=acme):
            if namespace is None:
                await world.create(
                    CLUSTER_ISSUERS, make_cluster_issuer("root", IssuerSpec(self_signed=SelfSignedIssuer()))
                )
            await issue(world)
            await issue_for_ingresses(world)
            await issue_from_sets(world, also_of_the_cluster=namespace is None)
            await prove(world, ca, shown)
            await prove_by_routes(world, ca, NAMESPACE)
            await outlast(world, ca, "Issuer")
            await report_delivery(world)
            if namespace is None:
                await inject_ca(world)
                await create_issuer(world, ca, "")
                await outlast(world, ca, "ClusterIssuer")
        assert unneeded(text, work.used) == NEEDED_ELSEWHERE


async def test_the_rights_of_the_chart_for_kubernetes_requests_are_enough_and_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = render("--set", "certificateSigningRequests.enabled=true,crds.enabled=false")
    kinds = ("acme", "ca", "selfsigned", "vault", "venafi")
    enabled = ",".join(("*", *(f"certificatesigningrequests-issuer-{kind}" for kind in kinds)))
    assert f"--controllers={enabled}\n" in text
    async with installed(text, monkeypatch) as work:
        ca, shown = FakeCa(work.world.clock.now), Shown()
        acme = AcmeOptions(make_transport=ca.transport, responder=shown)
        async with work.at_work(None, "kube-system", enabled=enabled, acme=acme):
            await sign_for_kubernetes(work.world)
            await prove_for_kubernetes(work.world, ca, shown)
            await order_for_kubernetes(work.world)
        groups = ("certificates.k8s.io", "authorization.k8s.io")
        assert {right for right in unneeded(text, work.used) if right[1].startswith(groups)} == {
            ("update", "certificates.k8s.io/certificatesigningrequests/finalizers")
        }
