"""Vault issuers with the real controllers and API server, and a real OpenBao."""

from __future__ import annotations

from collections.abc import Callable

from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.certificate import PrivateKeySpec
from certwright.resources.issuer import IssuerSpec, VaultAppRole, VaultAuth, VaultIssuer
from certwright.resources.references import SecretKeySelector
from certwright.resources.request import CertificateSigningRequest, CertificateSigningRequestSpec
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS, CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.openbao import Bao, app_role
from support.world import ADMIN, LiveWorld, eventually, live_world

ENABLED = "*,certificatesigningrequests-issuer-vault"
ECDSA = PrivateKeySpec(algorithm="ECDSA")
USAGES = ("digital signature", "server auth")


async def add_issuer(world: LiveWorld, bao: Bao) -> None:
    role, secret = app_role(bao)
    meta = SecretMeta(name="app-role", namespace="default")
    await world.create(SECRETS, Secret(metadata=meta, data={"secretId": secret.encode()}))
    ref = SecretKeySelector(name="app-role", key="secretId")
    auth = VaultAuth(app_role=VaultAppRole(path="approle", role_id=role, secret_ref=ref))
    spec = VaultIssuer(auth=auth, server=bao.url, path="pki/sign/web", ca_bundle=bao.ca_pem)
    await world.create(ISSUERS, make_issuer("vault", IssuerSpec(vault=spec)))

    async def is_ready() -> bool:
        return conditions.is_true((await world.get(ISSUERS, "vault")).status.conditions, "Ready")

    await eventually(is_ready)


async def want(world: LiveWorld, name: str, domain: str = "example.org") -> None:
    """A Certificate of that issuer."""
    dns_names = (f"{name}.{domain}",)
    made = make_certificate(name, "vault", dns_names=dns_names, private_key=ECDSA)
    await world.create(CERTIFICATES, made)


async def test_two_hundred_certificates_take_one_login_and_one_call_each(bao: Bao) -> None:
    async with live_world() as world:
        before = bao.count("")
        await add_issuer(world, bao)
        logins, signed = bao.count("auth/approle/login"), bao.count("pki/sign/web")
        checked = bao.count("") - before
        writes = len(world.recording.object_writes())
        for number in range(200):
            await want(world, f"web-{number}")
        await eventually(lambda: world.have_issued(200), within_s=120)
        assert bao.count("pki/sign/web") - signed == 200
        assert bao.count("auth/approle/login") == logins
        # The login, the policies and the mount; and the two of `app_role`.
        assert checked == 3 + 2
        assert bao.count("") - before == checked + 200
        assert world.controllers is not None
        await world.controllers.flush()
        assert (len(world.recording.object_writes()) - writes) / 200 <= 9
        assert len(world.recording.event_writes()) / 200 <= 4


async def test_what_the_role_forbids_is_the_requests_fault_and_named_in_the_certificate(bao: Bao) -> None:
    async with live_world() as world:
        await add_issuer(world, bao)
        await want(world, "web", "example.com")

        async def has_failed() -> bool:
            return (await world.certificate("web")).status.last_failure_time is not None

        await eventually(has_failed)
        issuing = conditions.find((await world.certificate("web")).status.conditions, "Issuing")
        assert issuing is not None
        assert issuing.reason == "InvalidRequest"
        assert "web.example.com not allowed by this role" in issuing.message
        assert 'change spec.dnsNames ("web.example.com"), or what the role in Vault allows' in issuing.message
        # The issuer works on.
        await want(world, "right")
        await eventually(lambda: world.has_issued("right"))


def request_for(name: str) -> CertificateSigningRequest:
    """The request `mine`, of an administrator, who may reference every signer."""
    csr = build_csr(CsrPlan(dns_names=(name,), usages=USAGES), generate(KeyPlan.of("ECDSA")))
    spec = CertificateSigningRequestSpec(
        request=csr,
        signer_name="issuers.cert-manager.io/default.vault",
        usages=USAGES,
        username=ADMIN.name,
        expiration_seconds=3600,
    )
    return CertificateSigningRequest(metadata=ObjectMeta(name="mine"), spec=spec)


async def approved(world: LiveWorld, request: CertificateSigningRequest) -> None:
    await world.create(CERTIFICATE_SIGNING_REQUESTS, request)
    yes = {"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "by hand"}
    status = {"status": {"conditions": [yes]}}
    await world.client.patch(CERTIFICATE_SIGNING_REQUESTS, "mine", "", status, subresource="approval")


async def until(
    world: LiveWorld, so: Callable[[CertificateSigningRequest], bool]
) -> CertificateSigningRequest:
    """The request, once it is so."""

    async def is_so() -> bool:
        return so(await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine"))

    await eventually(is_so)
    return await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")


async def test_a_request_of_kubernetes_is_signed_for_the_time_that_it_names(bao: Bao) -> None:
    async with live_world(enabled=ENABLED) as world:
        await add_issuer(world, bao)
        await approved(world, request_for("mine.example.org"))
        request = await until(world, lambda obj: bool(obj.status.certificate))
        (leaf,) = read_chain(request.status.certificate)
        assert leaf.dns_names == ("mine.example.org",)
        assert 3600 <= (leaf.not_after - leaf.not_before).total_seconds() <= 3660


async def test_a_request_of_kubernetes_that_the_role_forbids_fails_with_cert_managers_reason(
    bao: Bao,
) -> None:
    async with live_world(enabled=ENABLED) as world:
        await add_issuer(world, bao)
        await approved(world, request_for("mine.example.com"))
        request = await until(world, lambda obj: obj.status.has("Failed"))
        (failed,) = [condition for condition in request.status.conditions if condition.type == "Failed"]
        assert failed.reason == "ErrorSigning"
        assert "mine.example.com not allowed by this role" in failed.message


async def test_a_request_of_kubernetes_waits_while_the_server_is_sealed(bao: Bao) -> None:
    async with live_world(enabled=ENABLED) as world:
        await add_issuer(world, bao)
        bao.seal()
        try:
            await approved(world, request_for("mine.example.org"))

            async def is_reported() -> bool:
                return any(recorded.reason == "ErrorSigning" for recorded in await world.events())

            await eventually(is_reported)
            (event,) = [event for event in await world.events() if event.reason == "ErrorSigning"]
            assert "sealed" in event.message
            assert not (await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")).status.has("Failed")
        finally:
            bao.unseal()
        await world.start_controllers(enabled=ENABLED)
        await until(world, lambda request: bool(request.status.certificate))


async def test_the_chain_of_an_intermediate_ca_is_sorted_and_ends_below_the_root(bao: Bao) -> None:
    bao.call("POST", "sys/mounts/below", {"type": "pki", "config": {"max_lease_ttl": "43800h"}})
    made = bao.call("POST", "below/intermediate/generate/internal", {"common_name": "below"})["data"]["csr"]
    signed = bao.call("POST", "pki/root/sign-intermediate", {"csr": made, "ttl": "43800h"})["data"]
    chain = "\n".join((signed["certificate"], signed["issuing_ca"]))
    bao.call("POST", "below/intermediate/set-signed", {"certificate": chain})
    bao.call("POST", "below/roles/web", {"allow_any_name": True, "key_type": "any", "require_cn": False})
    paths = ("below/sign/web", "pki/sign/web")
    policy = " ".join(f'path "{path}" {{ capabilities = ["update"] }}' for path in paths)
    bao.call("POST", "sys/policies/acl/sign-web", {"policy": policy})
    async with live_world() as world:
        await add_issuer(world, bao)
        patch = {"spec": {"vault": {"path": "below/sign/web"}}}
        await world.client.patch(ISSUERS, "vault", "default", patch)
        await want(world, "web")
        await eventually(lambda: world.has_issued("web"))
        secret = await world.secret("web")
        names = [certificate.common_name for certificate in read_chain(secret.data["tls.crt"])]
        assert names[1:] == ["below"]
        assert read_certificate(secret.data["ca.crt"]).common_name == "bao root"


async def test_the_check_is_repeated_when_a_secret_of_the_issuer_changes(bao: Bao) -> None:
    async with live_world() as world:
        await add_issuer(world, bao)
        await world.client.patch(SECRETS, "app-role", "default", {"data": {"secretId": "d3Jvbmc="}})

        async def is_refused() -> bool:
            condition = conditions.find((await world.get(ISSUERS, "vault")).status.conditions, "Ready")
            return condition is not None and "invalid role or secret ID" in condition.message

        await eventually(is_refused)
