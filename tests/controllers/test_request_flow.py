"""The life of a CertificateRequest: who may decide what, in which order, and what never changes again."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.issuers import view_of
from certwright.controllers.requests import certificate_requests
from certwright.controllers.requests.issuer_lister import IssuerState
from certwright.controllers.requests.signing import Signing
from certwright.issuers.contract import Checked, IssuerView, Outcome, Pending, SigningRequest, Tools
from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Request
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, PrivateKey, encode_private_key, generate
from certwright.resources.issuer import IssuerSpec, VaultAuth, VaultIssuer
from certwright.resources.references import IssuerReference, SecretKeySelector
from certwright.resources.request import CertificateRequest, CertificateRequestSpec
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.external_issuer import external, mark
from controllers.scene import (
    CA,
    Scene,
    make_ca_issuer,
    make_certificate,
    make_cluster_issuer,
    make_issuer,
    make_secret,
)
from issuers.authority import new_root
from support.world import ADMIN, START, World, condition_of, make_world

BY_HAND = "*,-certificaterequests-approver"
KEY_NAME = "cert-manager.io/private-key-secret-name"
REFUSED = (errors.Invalid, errors.Forbidden)


def make_request(
    issuer: str = "ca",
    *,
    kind: str = "",
    group: str = "",
    key: PrivateKey | None = None,
    plan: CsrPlan | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> CertificateRequest:
    """A request by hand, named `mine`."""
    csr = build_csr(plan or CsrPlan(common_name="mine"), key or generate(KeyPlan.of("ECDSA")))
    meta = ObjectMeta(name="mine", namespace="default", annotations=annotations or {})
    reference = IssuerReference(name=issuer, kind=kind, group=group)
    return CertificateRequest(
        metadata=meta, spec=CertificateRequestSpec(issuer_ref=reference, request=csr, **spec)
    )


async def ask(world: World, request: CertificateRequest) -> CertificateRequest:
    """Create the request, let everything run, and see what became of it."""
    await world.add(CERTIFICATE_REQUESTS, request)
    return await mine(world)


async def mine(world: World) -> CertificateRequest:
    """The request by hand."""
    return await world.get(CERTIFICATE_REQUESTS, "mine")


def ready(request: CertificateRequest) -> tuple[str, str]:
    """Status and reason of Ready."""
    condition = conditions.find(request.status.conditions, "Ready")
    return (condition.status, condition.reason) if condition else ("", "")


def message(request: CertificateRequest) -> str:
    """The message of Ready."""
    return condition_of(request, "Ready").message


async def event_counts(world: World, name: str = "mine") -> list[tuple[str, str, int]]:
    """Type, reason and count of the Events about an object."""
    return [(e.type, e.reason, e.count) for e in await world.events() if e.involved_object.name == name]


# --- approval and denial ----------------------------------------------------------------------------------


async def test_a_request_that_was_denied_before_anybody_looked_is_never_approved() -> None:
    async with make_world(controllers=False) as world:
        await world.create(CERTIFICATE_REQUESTS, make_request())
        await mark(world, "mine", "Denied")
        await world.start_controllers()
        request = await mine(world)
        assert ready(request) == ("False", "Denied")
        assert request.status.failure_time == START
        assert not conditions.is_true(request.status.conditions, "Approved")


async def test_a_denial_ends_a_request_that_waits(world: World) -> None:
    await world.start_controllers(enabled=BY_HAND)
    assert ready(await ask(world, make_request("later"))) == ("", "")
    await mark(world, "mine", "Denied")
    assert ready(await mine(world)) == ("False", "Denied")
    await world.add(ISSUERS, make_issuer("later"))
    assert ready(await mine(world)) == ("False", "Denied")


@pytest.mark.parametrize("first", ["Approved", "Denied"])
async def test_a_decision_is_final(first: str, world: World) -> None:
    await world.start_controllers(enabled=BY_HAND)
    await ask(world, make_request())
    await mark(world, "mine", first)
    other = {"Approved": "Denied", "Denied": "Approved"}[first]
    with pytest.raises(REFUSED):
        await mark(world, "mine", other)
    with pytest.raises(REFUSED):
        await mark(world, "mine", first, reason="another")
    status: dict[str, Any] = {"status": {"conditions": []}}
    with pytest.raises(REFUSED):
        await world.client.patch(CERTIFICATE_REQUESTS, "mine", "default", status, subresource="status")


async def test_nothing_of_a_request_ever_changes(scene: Scene) -> None:
    await ask(scene.world, make_request(annotations={KEY_NAME: "key", "mine": "1"}))
    for patch in (
        {"spec": {"duration": "1h"}},
        {"spec": {"isCA": True}},
        {"spec": {"username": "somebody"}},
        {"spec": {"issuerRef": {"name": "other"}}},
        {"metadata": {"annotations": {KEY_NAME: "other"}}},
        {"metadata": {"annotations": {"cert-manager.io/certificate-revision": "3"}}},
    ):
        with pytest.raises(REFUSED):
            await scene.world.client.patch(CERTIFICATE_REQUESTS, "mine", "default", patch)
    await scene.world.client.patch(
        CERTIFICATE_REQUESTS, "mine", "default", {"metadata": {"annotations": {"mine": "2"}}}
    )


async def test_a_request_that_somebody_calls_invalid_is_not_signed() -> None:
    async with make_world(enabled=BY_HAND) as world:
        scene = Scene(world)
        await world.create(ISSUERS, make_issuer("root"))
        await scene.issue(issuer="root")
        await mark(world, "web-1", "InvalidRequest", reason="NotToMyTaste")
        await mark(world, "web-1", "Approved")
        request = (await scene.requests())[0]
        assert request.status.certificate == b""
        certificate = await world.certificate("web")
        issuing = condition_of(certificate, "Issuing")
        assert (issuing.status, issuing.reason) == ("False", "NotToMyTaste")
        assert certificate.status.failed_issuance_attempts == 1


# --- which issuer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Issuer", "ClusterIssuer"])
async def test_a_request_waits_for_its_issuer_and_is_signed_when_it_comes(kind: str, world: World) -> None:
    namespace = "default" if kind == "Issuer" else "kube-system"
    request = await ask(world, make_request("late", kind=kind))
    assert ready(request) == ("False", "Pending")
    text = f'Referenced "{kind}" not found: {kind.lower()}.cert-manager.io "late" not found'
    assert message(request) == text
    if kind == "Issuer":
        await world.create(ISSUERS, make_ca_issuer("late", "ca"))
    else:
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("late", CA))
    await world.settle()
    assert "does not have a Ready status condition" in message(await mine(world))
    await world.add(SECRETS, make_secret("ca", new_root("Root").secret(), namespace))
    assert ready(await mine(world)) == ("True", "Issued")
    assert message(await mine(world)) == "Certificate fetched from issuer successfully"
    assert await event_counts(world) == [
        ("Normal", "cert-manager.io", 1),
        ("Normal", "IssuerNotFound", 1),
        ("Normal", "CertificateIssued", 1),
    ]


async def test_in_one_namespace_a_request_to_a_cluster_issuer_is_told_why_it_waits() -> None:
    async with make_world(namespace="default") as world:
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("ca", CA))
        request = await ask(world, make_request("ca", kind="ClusterIssuer"))
        assert ready(request) == ("False", "Pending")
        assert "--namespace" in message(request)


async def test_an_issuer_of_the_same_name_elsewhere_is_not_meant(world: World) -> None:
    await world.create(CLUSTER_ISSUERS, make_cluster_issuer("ca", CA))
    assert ready(await ask(world, make_request("ca"))) == ("False", "Pending")
    assert "issuer.cert-manager.io" in message(await mine(world))


async def test_a_signer_that_is_switched_off_leaves_the_request_to_others() -> None:
    async with make_world(enabled="*,-certificaterequests-issuer-ca") as world:
        await Scene(world).add_ca()
        request = await ask(world, make_request())
        assert [c.type for c in request.status.conditions] == ["Approved"]


async def test_a_corrected_ca_secret_wakes_its_issuer_and_those_who_wait(world: World) -> None:
    await world.create(ISSUERS, make_ca_issuer("ca", "ca"))
    await world.create(SECRETS, make_secret("ca", {"tls.crt": b"rubbish", "tls.key": b"rubbish"}))
    request = await ask(world, make_request())
    assert ready(request) == ("False", "Pending")
    assert "Error getting keypair for CA issuer" in message(request)
    root = new_root("Root")
    data = {name: msgspec.to_builtins(value) for name, value in root.secret().items()}
    await world.patch(SECRETS, "ca", {"data": data})
    request = await mine(world)
    assert ready(request) == ("True", "Issued")
    assert read_certificate(request.status.ca).common_name == "Root"
    assert [reason for _, reason, _ in await event_counts(world, "ca")] == [
        "ErrInitIssuer",
        "KeyPairVerified",
    ]


async def test_an_issuer_with_effects_outside_sees_a_request_only_once_its_approval_is_stored() -> None:
    seen: list[bool] = []

    class Outside:
        """Stands for an issuer that makes an order at somebody else's server."""

        async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
            return Checked(ready=True, reason="Ready", message="")

        async def sign(
            self,
            issuer: IssuerView,
            signing: SigningRequest,
            tools: Tools,
        ) -> Outcome:
            seen.append(conditions.is_true(signing.request.status.conditions, "Approved"))
            return Pending("Ordered", "in the post")

    request = certificate_requests.approve(make_request("outside"), START)
    view = view_of("Issuer", make_issuer("outside", IssuerSpec(vault=VAULT)))
    state = IssuerState(view, True, "")
    signing = Signing(lambda _: state, kinds=("vault",), now=lambda: START, issuers={"vault": Outside()})
    tools = Tools(get_secret=no_secret, executor=Inline(), now=lambda: START)
    asked = SigningRequest(request, get_secret=no_secret)
    answer = await signing.answer(request, tools, asked, is_stored=False)
    assert (answer.request, seen) == (request, [])
    answer = await signing.answer(request, tools, asked)
    assert (ready(answer.request), seen) == (("False", "Pending"), [True])


async def no_secret(_: str) -> None:
    """There is no Secret of any name."""
    return


VAULT = VaultIssuer(
    server="https://vault.example",
    path="pki/sign/x",
    auth=VaultAuth(token_secret_ref=SecretKeySelector(name="token", key="t")),
)


# --- requests to issuers of others ------------------------------------------------------------------------


async def test_a_certificate_follows_an_external_issuer(world: World) -> None:
    await external(world)
    pending = {"type": "Ready", "status": "False", "reason": "Pending", "message": "in the post"}
    strange = {"type": "Weather", "status": "Unknown", "reason": "Cloudy", "message": ""}
    await set_conditions(world, pending, strange)
    issuing = await world.condition("web", "Issuing")
    assert issuing.status == "True"
    assert issuing.message == 'Waiting for CertificateRequest "web-1": in the post'
    await sign_elsewhere(world)
    assert await world.is_ready("web")
    request = await world.get(CERTIFICATE_REQUESTS, "web-1")
    assert [c.type for c in request.status.conditions] == ["Approved", "Ready", "Weather"]
    secret = await world.secret("web")
    assert "ca.crt" not in secret.data
    assert secret.metadata.annotations["cert-manager.io/issuer-group"] == "example.com"
    assert secret.metadata.annotations["cert-manager.io/issuer-kind"] == "Thing"


async def set_conditions(world: World, *new: dict[str, Any], **status: Any) -> None:
    """Set conditions as another program does, on those that are there."""
    request = await world.get(CERTIFICATE_REQUESTS, "web-1")
    by_type = {c["type"]: c for c in msgspec.to_builtins(request.status.conditions)}
    by_type |= {c["type"]: c for c in new}
    body = {"status": {"conditions": list(by_type.values()), **status}}
    await world.patch(CERTIFICATE_REQUESTS, "web-1", body, subresource="status")


async def sign_elsewhere(world: World, *others: dict[str, Any], **sign: Any) -> None:
    """What an external issuer does in the end; it says nothing of its CA."""
    request = await world.get(CERTIFICATE_REQUESTS, "web-1")
    pem = new_root("AggregationProxy").sign(request.spec.request, **{"now": world.clock.now(), **sign})
    issued = {"type": "Ready", "status": "True", "reason": "Issued", "message": "here you are"}
    await set_conditions(world, issued, *others, certificate=msgspec.to_builtins(pem))


async def test_a_denial_counts_though_an_external_issuer_says_nothing_of_it(world: World) -> None:
    await world.start_controllers(enabled=BY_HAND)
    await external(world)
    await mark(world, "web-1", "Denied")
    request = await world.get(CERTIFICATE_REQUESTS, "web-1")
    assert [c.type for c in request.status.conditions] == ["Denied"]
    issuing = await world.condition("web", "Issuing")
    assert (issuing.status, issuing.reason) == ("False", "test")


async def test_an_issuer_that_signs_in_spite_of_a_denial_is_not_followed(world: World) -> None:
    await world.start_controllers(enabled=BY_HAND)
    await external(world)
    denied = {"type": "Denied", "status": "True", "reason": "NotHere", "message": "no"}
    await sign_elsewhere(world, denied)
    issuing = await world.condition("web", "Issuing")
    assert (issuing.status, issuing.reason) == ("False", "NotHere")
    with pytest.raises(errors.NotFound):
        await world.secret("web")


# --- self-signed by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize("annotations", [{}, {KEY_NAME: ""}])
async def test_a_self_signed_request_needs_the_name_of_its_key(
    annotations: dict[str, str], world: World
) -> None:
    await world.create(ISSUERS, make_issuer("root"))
    request = await ask(world, make_request("root", annotations=annotations))
    assert ready(request) == ("False", "Failed")
    assert message(request) == f'Annotation "{KEY_NAME}" missing or reference empty'
    assert request.status.failure_time == START
    assert ("Warning", "MissingAnnotation", 1) in await event_counts(world)


async def test_a_self_signed_request_waits_for_its_key(world: World) -> None:
    key = generate(KeyPlan.of("ECDSA"))
    await world.create(ISSUERS, make_issuer("root"))
    request = await ask(world, make_request("root", key=key, annotations={KEY_NAME: "key"}))
    assert (ready(request), message(request)) == (
        ("False", "Pending"),
        "Referenced secret default/key not found",
    )
    await world.add(SECRETS, make_secret("key", {"tls.key": b"rubbish"}))
    assert message(await mine(world)).startswith('Failed to get key "key" referenced in annotation')
    right = {"data": {"tls.key": msgspec.to_builtins(encode_private_key(key))}}
    await world.patch(SECRETS, "key", right)
    request = await mine(world)
    assert ready(request) == ("True", "Issued")
    assert request.status.ca == request.status.certificate
    assert [reason for _, reason, _ in await event_counts(world)] == [
        "cert-manager.io",
        "MissingSecret",
        "CertificateIssued",
    ]


async def test_a_self_signed_request_with_another_key_fails(world: World) -> None:
    await world.create(ISSUERS, make_issuer("root"))
    other = encode_private_key(generate(KeyPlan.of("ECDSA")))
    await world.create(SECRETS, make_secret("key", {"tls.key": other}))
    request = await ask(world, make_request("root", annotations={KEY_NAME: "key"}))
    assert ready(request) == ("False", "Failed")
    assert message(request).endswith("CSR not signed by referenced private key")
    assert ("Warning", "ErrorKeyMatch", 1) in await event_counts(world)


async def test_a_self_signed_certificate_without_a_subject_comes_with_a_warning(world: World) -> None:
    key = generate(KeyPlan.of("ECDSA"))
    await world.create(ISSUERS, make_issuer("root"))
    await world.create(SECRETS, make_secret("key", {"tls.key": encode_private_key(key)}))
    plan = CsrPlan(dns_names=("a.example.com",))
    request = await ask(world, make_request("root", key=key, plan=plan, annotations={KEY_NAME: "key"}))
    assert ready(request) == ("True", "Issued")
    assert ("Warning", "BadConfig", 1) in await event_counts(world)
    await world.start_controllers()
    assert [reason for _, reason, _ in await event_counts(world)].count("BadConfig") == 1


@pytest.mark.parametrize("spec", [{"is_ca": True}, {"usages": ("client auth",)}], ids=["isCA", "usages"])
async def test_a_request_that_contradicts_its_csr_is_refused(spec: dict[str, Any], scene: Scene) -> None:
    plan = CsrPlan(common_name="mine", usages=("server auth",), encode_usages=True, is_ca=False)
    with pytest.raises(errors.Invalid, match=r"spec\.request"):
        await ask(scene.world, make_request(plan=plan, **spec))


async def test_a_request_signed_with_another_key_is_refused(scene: Scene) -> None:
    request = make_request()
    der = bytearray(ssl.PEM_cert_to_DER_cert(request.spec.request.decode().replace(" REQUEST", "")))
    der[-1] ^= 1
    pem = ssl.DER_cert_to_PEM_cert(bytes(der)).replace("CERTIFICATE", "CERTIFICATE REQUEST")
    spec = msgspec.structs.replace(request.spec, request=pem.encode())
    with pytest.raises(errors.Invalid, match="signature of the signing request is wrong"):
        await ask(scene.world, msgspec.structs.replace(request, spec=spec))


# --- in mid-flight ----------------------------------------------------------------------------------------


async def test_a_request_that_is_deleted_while_it_waits_is_made_again(world: World) -> None:
    await world.add(CERTIFICATES, make_certificate("web", "late"))
    (first,) = await Scene(world).requests()
    await world.delete(CERTIFICATE_REQUESTS, "web-1")
    (second,) = await Scene(world).requests()
    assert second.metadata.uid != first.metadata.uid
    assert second.spec.request != b""
    await world.add(ISSUERS, make_issuer("late"))
    assert await world.is_ready("web")


async def test_a_certificate_that_came_too_late_is_a_failure(world: World) -> None:
    await external(world)
    await world.advance(timedelta(hours=2))
    await sign_elsewhere(world, now=START, duration=timedelta(hours=1))
    issuing = await world.condition("web", "Issuing")
    assert (issuing.status, issuing.reason) == ("False", "InvalidCertificate")
    assert "expired" in issuing.message


async def test_of_two_requests_for_one_revision_the_fitting_one_is_kept(world: World) -> None:
    await external(world)
    first = await world.get(CERTIFICATE_REQUESTS, "web-1")
    meta = msgspec.structs.replace(
        first.metadata, name="web-twin", uid="", resource_version="", creation_timestamp=None
    )
    csr = build_csr(CsrPlan(dns_names=("web.example.com",)), generate(KeyPlan.of("ECDSA")))
    twin = CertificateRequest(metadata=meta, spec=msgspec.structs.replace(first.spec, request=csr))
    await world.add(CERTIFICATE_REQUESTS, twin)
    assert [request.metadata.name for request in await Scene(world).requests()] == ["web-1"]


async def test_a_certificate_deleted_while_it_is_issued_takes_everything_with_it(world: World) -> None:
    await world.add(CERTIFICATES, make_certificate("web", "late"))
    await world.delete(CERTIFICATES, "web")
    await world.advance(timedelta(minutes=5))
    assert await Scene(world).requests() == []
    assert await Scene(world).next_keys() == []
    await world.add(ISSUERS, make_issuer("late"))
    with pytest.raises(errors.NotFound):
        await world.secret("web")


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
async def test_a_deleted_certificate_takes_its_requests_with_it_and_leaves_its_secret(
    policy: str, scene: Scene
) -> None:
    world = scene.world
    await scene.issue()
    before = await world.secret("web")
    path = f"/apis/cert-manager.io/v1/namespaces/default/certificates/web?propagationPolicy={policy}"
    response = await world.server.handle(Request("DELETE", path, user=ADMIN))
    assert response.status in (200, 202)
    await world.settle()
    await world.advance(timedelta(minutes=5))
    with pytest.raises(errors.NotFound):
        await world.certificate("web")
    assert await scene.requests() == []
    assert await world.secret("web") == before


# --- chains -----------------------------------------------------------------------------------------------


async def test_a_chain_of_three_cas_comes_with_its_leaf_and_the_root_as_ca(scene: Scene) -> None:
    for name, above in (("middle", "ca"), ("lowest", "middle")):
        await scene.issue(name, above, is_ca=True, common_name=name, dns_names=(), duration="8760h")
        await scene.world.add(ISSUERS, make_ca_issuer(name, name))
    await scene.issue("web", "lowest", common_name="web")
    secret = await scene.world.secret("web")
    names = [c.common_name for c in read_chain(secret.data["tls.crt"])]
    assert names == ["web", "lowest", "middle"]
    assert [c.common_name for c in read_chain(secret.data["ca.crt"])] == ["Test CA"]
