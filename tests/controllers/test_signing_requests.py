"""Kubernetes' CertificateSigningRequests, signed by our issuers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.acme.options import AcmeOptions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, PrivateKey, encode_private_key, generate
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    Signer,
    parse_signer_name,
)
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS, CLUSTER_ISSUERS, ISSUERS
from controllers.crashes import Unreliable
from controllers.external_issuer import admin_creates, grant, signer_rule
from controllers.scene import CA, SELF_SIGNED, make_ca_issuer, make_cluster_issuer, make_issuer, make_secret
from issuers.authority import new_root
from support.world import World, make_world

Handler = Callable[[Request], Awaitable[Response]]

BOTH = "*,certificatesigningrequests-issuer-ca,certificatesigningrequests-issuer-selfsigned"
CA_ISSUER = "issuers.cert-manager.io/default.ca"
CA_CLUSTER_ISSUER = "clusterissuers.cert-manager.io/ca"
SELF_SIGNER = "clusterissuers.cert-manager.io/self"
DURATION = "experimental.cert-manager.io/request-duration"
IS_CA = "experimental.cert-manager.io/request-is-ca"
KEY_NAME = "experimental.cert-manager.io/private-key-secret-name"
USAGES = ("digital signature", "key encipherment", "server auth")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world that signs, with a CA as Issuer and as ClusterIssuer."""
    async with make_world(enabled=BOTH) as made:
        for namespace in ("default", "kube-system"):
            await made.create(SECRETS, make_secret("ca", new_root("Root").secret(), namespace))
        await made.create(ISSUERS, make_ca_issuer("ca", "ca"))
        await made.create(CLUSTER_ISSUERS, make_cluster_issuer("self", SELF_SIGNED))
        await made.add(CLUSTER_ISSUERS, make_cluster_issuer("ca", CA))
        yield made


async def ask(
    world: World,
    signer: str = CA_CLUSTER_ISSUER,
    *,
    plan: CsrPlan | None = None,
    key: PrivateKey | None = None,
    annotations: dict[str, str] | None = None,
    approved: bool = True,
    client: Client | None = None,
    **spec: Any,
) -> CertificateSigningRequest:
    """Make the request `mine` (as the one whose client it is), approve it, and see what becomes of it."""
    plan = plan or CsrPlan(common_name="mine", dns_names=("a.example.com",), usages=USAGES)
    csr = build_csr(plan, key or generate(KeyPlan.of("ECDSA")))
    made = CertificateSigningRequest(
        metadata=ObjectMeta(name="mine", annotations=annotations or {}),
        spec=CertificateSigningRequestSpec(request=csr, signer_name=signer, **{"usages": USAGES, **spec}),
    )
    await (client or world.client).create(CERTIFICATE_SIGNING_REQUESTS, made)
    await world.settle()
    if approved:
        await decide(world, "Approved")
    return await mine(world)


async def decide(world: World, kind: str) -> None:
    """What `kubectl certificate approve` and `deny` do."""
    condition = {"type": kind, "status": "True", "reason": "KubectlApprove", "message": "by hand"}
    await world.patch(
        CERTIFICATE_SIGNING_REQUESTS, "mine", {"status": {"conditions": [condition]}}, subresource="approval"
    )


async def mine(world: World) -> CertificateSigningRequest:
    return await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")


def failed(request: CertificateSigningRequest) -> tuple[str, str]:
    """Reason and message of the condition Failed."""
    failures = [c for c in request.status.conditions if c.type == "Failed"]
    return (failures[0].reason, failures[0].message) if failures else ("", "")


async def event_counts(world: World) -> list[tuple[str, str, int]]:
    events = [e for e in await world.events() if e.involved_object.name == "mine"]
    assert {e.involved_object.kind for e in events} <= {"CertificateSigningRequest"}
    return [(e.type, e.reason, e.count) for e in events]


@pytest.mark.parametrize(
    ("name", "signer"),
    [
        ("issuers.cert-manager.io/ns.name", Signer("Issuer", "ns", "name")),
        ("issuers.cert-manager.io/ns.name.with.dots", Signer("Issuer", "ns", "name.with.dots")),
        ("clusterissuers.cert-manager.io/name.with.dots", Signer("ClusterIssuer", "", "name.with.dots")),
        ("issuers.cert-manager.io/name", None),
        ("issuers.cert-manager.io/.name", None),
        ("issuers.cert-manager.io/ns.", None),
        ("clusterissuers.cert-manager.io/", None),
        ("kubernetes.io/kube-apiserver-client", None),
        ("issuers.example.com/ns.name", None),
    ],
)
def test_a_signers_name_says_which_issuer_is_meant(name: str, signer: Signer | None) -> None:
    assert parse_signer_name(name) == signer


@pytest.mark.parametrize("signer", [CA_ISSUER, CA_CLUSTER_ISSUER])
async def test_an_approved_request_is_signed(signer: str, world: World) -> None:
    request = await ask(world, signer, approved=False)
    assert request.status.certificate == b""
    await decide(world, "Approved")
    request = await mine(world)
    (leaf,) = read_chain(request.status.certificate)
    assert leaf.issuer_text == "CN=Root"
    assert leaf.dns_names == ("a.example.com",)
    assert set(leaf.usages) == set(USAGES)
    assert leaf.not_after - leaf.not_before == timedelta(days=90)
    assert [c.type for c in request.status.conditions] == ["Approved"]
    assert await event_counts(world) == [("Normal", "WaitingApproval", 1), ("Normal", "CertificateIssued", 1)]


async def test_a_signed_request_is_left_alone_by_the_next_start(world: World) -> None:
    first = await ask(world)
    await world.start_controllers(enabled=BOTH)
    assert await mine(world) == first


async def test_a_denied_request_is_not_signed(world: World) -> None:
    await ask(world, approved=False)
    await decide(world, "Denied")
    assert (await mine(world)).status.certificate == b""


async def test_requests_to_other_signers_are_left_alone(world: World) -> None:
    request = await ask(world, "example.com/other")
    assert (request.status.certificate, failed(request)) == (b"", ("", ""))
    assert await event_counts(world) == []


async def test_without_being_asked_nothing_is_signed() -> None:
    async with make_world() as world:
        await world.create(ISSUERS, make_issuer("root"))
        request = await ask(world, "issuers.cert-manager.io/default.root", approved=True)
        assert request.status.certificate == b""
        assert await event_counts(world) == []


async def test_in_one_namespace_nothing_is_signed_for_the_cluster() -> None:
    async with make_world(enabled=BOTH, namespace="default") as world:
        await world.create(ISSUERS, make_issuer("root"))
        request = await ask(world, "issuers.cert-manager.io/default.root")
        assert request.status.certificate == b""


async def test_a_request_waits_for_its_issuer(world: World) -> None:
    await ask(world, "issuers.cert-manager.io/default.late")
    assert ("Warning", "IssuerNotFound", 1) in await event_counts(world)
    await world.add(ISSUERS, make_ca_issuer("late", "late"))
    assert ("Warning", "IssuerNotReady", 1) in await event_counts(world)
    await world.add(SECRETS, make_secret("late", new_root("Late").secret()))
    assert read_certificate((await mine(world)).status.certificate).issuer_text == "CN=Late"


async def test_whoever_may_not_reference_a_namespaced_issuer_is_refused(world: World) -> None:
    await world.create(ISSUERS, make_issuer("other"))
    body = await as_user(world, "jane", CA_ISSUER)
    assert failed(body) == (
        "DeniedReference",
        "Requester may not reference Namespaced Issuer default/ca",
    )
    assert ("Warning", "DeniedReference", 1) in await event_counts(world)


@pytest.mark.parametrize("name", ["ca", "*"])
async def test_whoever_may_reference_a_namespaced_issuer_gets_a_certificate(name: str, world: World) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [signer_rule("reference", name)]
    await admin_creates(world, f"{path}/roles", metadata={"name": "use-ca"}, rules=rules)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "use-ca"}
    jane = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    await admin_creates(
        world, f"{path}/rolebindings", metadata={"name": "use-ca"}, roleRef=ref, subjects=[jane]
    )
    assert (await as_user(world, "jane", CA_ISSUER)).status.certificate != b""


async def test_a_cluster_issuer_needs_no_reference(world: World) -> None:
    assert (await as_user(world, "jane", CA_CLUSTER_ISSUER)).status.certificate != b""


async def as_user(world: World, user: str, signer: str) -> CertificateSigningRequest:
    """Let somebody without any rights but to make requests ask."""
    csrs = {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"]}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    await grant(world, "ask", [{"verbs": ["create"], **csrs}], subject)
    requester = Identity(user, groups=("system:authenticated",))
    client = Client(LocalTransport(world.server.handle, requester), user_agent="test")
    return await ask(world, signer, client=client)


@pytest.mark.parametrize(
    ("annotations", "spec", "life"),
    [
        ({DURATION: "72h"}, {}, timedelta(hours=72)),
        ({}, {"expiration_seconds": 3600}, timedelta(hours=1)),
        ({DURATION: "72h"}, {"expiration_seconds": 3600}, timedelta(hours=72)),
    ],
)
async def test_the_lifetime_is_the_annotations_or_the_fields(
    annotations: dict[str, str], spec: dict[str, Any], life: timedelta, world: World
) -> None:
    request = await ask(world, annotations=annotations, **spec)
    leaf = read_certificate(request.status.certificate)
    assert leaf.not_after - leaf.not_before == life


@pytest.mark.parametrize(
    ("text", "reason"),
    [("soon", "ErrorParseDuration"), ("5m", "InvalidDuration"), ("-1h", "InvalidDuration")],
)
async def test_a_lifetime_that_makes_no_sense_fails(text: str, reason: str, world: World) -> None:
    request = await ask(world, annotations={DURATION: text})
    assert failed(request)[0] == reason
    assert ("Warning", reason, 1) in await event_counts(world)


async def test_a_ca_is_asked_for_by_annotation(world: World) -> None:
    plan = CsrPlan(common_name="Below", is_ca=True, usages=USAGES)
    usages = (*USAGES, "cert sign")
    request = await ask(world, plan=plan, annotations={IS_CA: "true", DURATION: "2160h"}, usages=usages)
    assert read_certificate(request.status.certificate).may_sign


async def test_a_request_that_contradicts_itself_fails(world: World) -> None:
    request = await ask(world, plan=CsrPlan(common_name="Below", is_ca=True, usages=USAGES))
    assert failed(request)[0] == "SigningError"


async def test_a_deleted_ca_secret_is_waited_for(world: World) -> None:
    await world.client.delete(SECRETS, "ca", "kube-system")
    request = await ask(world)
    assert (request.status.certificate, failed(request)) == (b"", ("", ""))
    assert ("Warning", "IssuerNotReady", 1) in await event_counts(world)
    await world.add(SECRETS, make_secret("ca", new_root("New").secret(), "kube-system"))
    assert read_certificate((await mine(world)).status.certificate).issuer_text == "CN=New"


async def test_self_signed_takes_its_key_from_where_the_issuers_secrets_are(world: World) -> None:
    key = generate(KeyPlan.of("ECDSA"))
    request = await ask(world, SELF_SIGNER, key=key, annotations={KEY_NAME: "key"})
    assert request.status.certificate == b""
    assert ("Warning", "SecretNotFound", 1) in await event_counts(world)
    assert "Referenced secret kube-system/key not found" in [e.message for e in await world.events()]
    await world.add(SECRETS, make_secret("key", {"tls.key": b"rubbish"}, "kube-system"))
    assert ("Warning", "ErrorParsingKey", 1) in await event_counts(world)
    right = {"data": {"tls.key": msgspec.to_builtins(encode_private_key(key))}}
    await world.patch(SECRETS, "key", right, namespace="kube-system")
    leaf = read_certificate((await mine(world)).status.certificate)
    assert leaf.issuer_text == leaf.subject_text == "CN=mine"


async def test_self_signed_without_the_name_of_its_key_fails(world: World) -> None:
    request = await ask(world, SELF_SIGNER)
    text = f'Annotation "{KEY_NAME}" missing or reference empty'
    assert failed(request) == ("MissingAnnotation", text)


async def test_self_signed_with_another_key_fails(world: World) -> None:
    other = encode_private_key(generate(KeyPlan.of("ECDSA")))
    await world.create(SECRETS, make_secret("key", {"tls.key": other}, "kube-system"))
    assert failed(await ask(world, SELF_SIGNER, annotations={KEY_NAME: "key"}))[0] == "ErrorKeyMatch"


async def test_self_signed_without_a_subject_comes_with_a_warning(world: World) -> None:
    key = generate(KeyPlan.of("ECDSA"))
    await world.create(SECRETS, make_secret("key", {"tls.key": encode_private_key(key)}, "kube-system"))
    plan = CsrPlan(dns_names=("a.example.com",), usages=USAGES)
    request = await ask(world, SELF_SIGNER, plan=plan, key=key, annotations={KEY_NAME: "key"})
    assert request.status.certificate
    assert ("Warning", "BadConfig", 1) in await event_counts(world)


@pytest.mark.parametrize("seed", range(4))
async def test_an_unreliable_api_server_delays_but_changes_nothing(seed: int, world: World) -> None:
    await ask(world, CA_ISSUER, approved=False)
    handler = world.recording.handler
    world.recording.handler = Unreliable(handler, seed).handle
    await decide(world, "Approved")
    await world.advance(timedelta(minutes=30))
    world.recording.handler = handler
    first = await mine(world)
    assert first.status.certificate
    await world.start_controllers(enabled=BOTH)
    assert await mine(world) == first


async def test_a_request_that_is_deleted_while_it_waits_is_forgotten(world: World) -> None:
    await ask(world, "issuers.cert-manager.io/default.late")
    await world.client.delete(CERTIFICATE_SIGNING_REQUESTS, "mine")
    await world.create(ISSUERS, make_issuer("late"))
    await world.advance(timedelta(minutes=5))
    assert (await world.client.list(CERTIFICATE_SIGNING_REQUESTS)).items == []


async def test_an_ml_dsa_key_is_signed_behind_the_feature_gate(world: World) -> None:
    usages = ("digital signature", "server auth")
    plan = CsrPlan(common_name="mine", usages=usages)
    key = generate(KeyPlan.of("ML-DSA"))
    refused = await ask(world, CA_ISSUER, plan=plan, key=key, usages=usages)
    assert failed(refused)[0] == "NotAllowed"
    assert "ML-DSA is an alpha feature" in failed(refused)[1]
    await world.client.delete(CERTIFICATE_SIGNING_REQUESTS, "mine")
    await world.start_controllers(enabled=BOTH, acme=AcmeOptions(policy=OperatorPolicy(post_quantum=True)))
    signed = await ask(world, CA_ISSUER, plan=plan, key=key, usages=usages)
    assert read_certificate(signed.status.certificate).is_ml_dsa
