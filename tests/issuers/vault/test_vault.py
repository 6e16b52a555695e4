"""The `vault` issuer with a real OpenBao."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from certwright.issuers.contract import Pending, Signed
from certwright.issuers.vault.issuer import Vault
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.csr import CsrPlan
from certwright.resources.causes import Cause
from certwright.resources.issuer import VaultAppRole, VaultAuth, VaultClientCertificate, VaultKubernetes
from certwright.resources.references import SecretKeySelector, ServiceAccountRef
from issuers.vault.conftest import MakeSetup, VaultSetup
from support.openbao import Bao

PLAN = CsrPlan(common_name="web.example.org", dns_names=("web.example.org", "example.org"))


async def signed(setup: VaultSetup, plan: CsrPlan = PLAN) -> Signed:
    return await setup.signed(setup.request(plan))


async def test_a_server_that_works_is_verified_in_cert_managers_words(by_app_role: VaultSetup) -> None:
    checked = await by_app_role.issuer.check(by_app_role.view, by_app_role.tools)
    assert (checked.ready, checked.reason, checked.message) == (True, "VaultVerified", "Vault verified")


async def test_the_chain_leaves_the_root_out_and_the_root_is_the_ca(by_app_role: VaultSetup) -> None:
    outcome = await signed(by_app_role)
    (leaf,) = read_chain(outcome.chain_pem)
    assert leaf.dns_names == ("web.example.org", "example.org")
    assert read_certificate(outcome.ca_pem).common_name == "bao root"
    assert leaf.not_after - by_app_role.now > timedelta(0)


async def test_one_login_serves_all_certificates_of_a_lease(by_app_role: VaultSetup, bao: Bao) -> None:
    before = bao.count("auth/approle/login"), bao.count("pki/sign")
    await asyncio.gather(*(signed(by_app_role) for _ in range(20)))
    await by_app_role.issuer.check(by_app_role.view, by_app_role.tools)
    after = bao.count("auth/approle/login"), bao.count("pki/sign")
    assert (after[0] - before[0], after[1] - before[1]) == (1, 20)


async def test_a_token_is_renewed_before_its_lease_ends(by_app_role: VaultSetup, bao: Bao) -> None:
    await signed(by_app_role)
    logins, renewals = bao.count("auth/approle/login"), bao.count("auth/token/renew-self")
    by_app_role.now += timedelta(minutes=15)
    await signed(by_app_role)
    assert bao.count("auth/token/renew-self") == renewals + 1
    assert bao.count("auth/approle/login") == logins
    # The lease is over: only a login helps.
    by_app_role.now += timedelta(hours=3)
    await signed(by_app_role)
    assert bao.count("auth/approle/login") == logins + 1


async def test_a_token_that_was_revoked_is_replaced(by_app_role: VaultSetup, bao: Bao) -> None:
    await signed(by_app_role)
    bao.call("POST", "sys/leases/revoke-prefix/auth/approle/login", {})
    await signed(by_app_role)


async def test_a_changed_secret_is_used_at_the_next_request(by_app_role: VaultSetup) -> None:
    good = by_app_role.secrets["app-role"]
    by_app_role.secrets["app-role"] = {"secretId": b"wrong"}
    outcome = await by_app_role.pending(by_app_role.request(PLAN))
    assert outcome.cause is Cause.UNAVAILABLE
    assert "invalid role or secret ID" in outcome.message
    by_app_role.secrets["app-role"] = good
    await signed(by_app_role)


@pytest.mark.parametrize("path", ["pki/sign/none", "nowhere/sign/web"])
async def test_a_wrong_path_is_the_fault_of_the_issuer(make: MakeSetup, bao: Bao, path: str) -> None:
    setup = make(VaultAuth(token_secret_ref=SecretKeySelector(name="token")), path)
    setup.secrets["token"] = {"token": bao.root_token.encode()}
    outcome = await setup.pending(setup.request(PLAN))
    assert outcome.cause is Cause.UNAVAILABLE
    assert f'spec.vault.path of the issuer is "{path}"' in outcome.message


async def test_a_mount_that_is_missing_is_found_by_the_check(make: MakeSetup, bao: Bao) -> None:
    paths = ("pki/sign/web", "nowhere/sign/web")
    policy = " ".join(f'path "{path}" {{ capabilities = ["update"] }}' for path in paths)
    bao.call("POST", "sys/policies/acl/sign-web", {"policy": policy})
    setup = make(path="nowhere/sign/web")
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert not checked.ready
    assert "no PKI engine is mounted" in checked.message


async def test_a_policy_that_forbids_the_path_is_found_by_the_check(make: MakeSetup) -> None:
    setup = make(path="pki/sign/other")
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert (checked.ready, checked.reason) == (False, "VaultError")
    assert 'path "pki/sign/other" { capabilities = ["update"] }' in checked.message


async def test_a_sealed_server_is_waited_for(by_app_role: VaultSetup, bao: Bao) -> None:
    await signed(by_app_role)
    bao.seal()
    try:
        checked = await by_app_role.issuer.check(by_app_role.view, by_app_role.tools)
        outcome = await by_app_role.sign(by_app_role.request(PLAN))
    finally:
        bao.unseal()
    assert (checked.ready, checked.reason) == (False, "VaultError")
    assert checked.message.startswith("Failed to verify Vault is initialized and unsealed: ")
    assert "is sealed; unseal it" in checked.message
    assert checked.retry_after is not None
    assert isinstance(outcome, Pending)
    assert outcome.cause is Cause.UNAVAILABLE
    await signed(by_app_role)


async def test_a_namespace_of_the_server_is_used(make: MakeSetup, bao: Bao) -> None:
    bao.call("POST", "sys/namespaces/team1", {})
    bao.call("POST", "sys/mounts/pki", {"type": "pki"}, namespace="team1")
    bao.call("POST", "pki/root/generate/internal", {"common_name": "team1 root"}, namespace="team1")
    role = {"allow_any_name": True, "key_type": "any"}
    bao.call("POST", "pki/roles/web", role, namespace="team1")
    setup = make(VaultAuth(token_secret_ref=SecretKeySelector(name="token")), namespace="team1")
    setup.secrets["token"] = {"token": bao.root_token.encode()}
    assert read_certificate((await signed(setup)).ca_pem).common_name == "team1 root"


def client_pair(bao: Bao) -> dict[str, bytes]:
    """A Secret with a client certificate of the server's CA."""
    pair = bao.authority.issue_cert("certwright.example.org", common_name="certwright")
    return {"tls.crt": pair.cert_chain_pems[0].bytes(), "tls.key": pair.private_key_pem.bytes()}


async def test_a_client_certificate_logs_in(make: MakeSetup, bao: Bao) -> None:
    role = {"certificate": bao.ca_pem.decode(), "token_policies": ["sign-web"]}
    bao.call("POST", "auth/cert/certs/certwright", role)
    method = VaultClientCertificate(secret_name="client", name="certwright")
    setup = make(VaultAuth(client_certificate=method))
    setup.secrets["client"] = client_pair(bao)
    await signed(setup)


async def test_a_token_of_a_service_account_is_requested_for_this_issuer_only(make: MakeSetup) -> None:
    account = ServiceAccountRef(name="signer", audiences=("extra",))
    setup = make(VaultAuth(kubernetes=VaultKubernetes(role="web", service_account_ref=account)))
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert setup.tokens == [("signer", ("extra", "vault://default/vault", setup.spec.server))]
    assert checked.message.startswith("Failed to initialize Vault client: Vault refuses the login: ")
    assert setup.token not in checked.message


async def test_an_unknown_ca_is_named_with_the_field(by_app_role: VaultSetup) -> None:
    by_app_role.change(msgspec.structs.replace(by_app_role.spec, ca_bundle=b""))
    checked = await by_app_role.issuer.check(by_app_role.view, by_app_role.tools)
    assert not checked.ready
    assert "is not trusted" in checked.message
    assert "spec.vault.caBundle" in checked.message


async def test_the_server_is_verified_by_another_name_if_the_spec_gives_one(by_app_role: VaultSetup) -> None:
    by_app_role.change(msgspec.structs.replace(by_app_role.spec, server_name="bao.example.org"))
    await signed(by_app_role)
    by_app_role.change(msgspec.structs.replace(by_app_role.spec, server_name="other.example.org"))
    checked = await by_app_role.issuer.check(by_app_role.view, by_app_role.tools)
    assert "is not trusted" in checked.message
    assert "caBundle" not in checked.message


async def test_a_missing_secret_is_waited_for_and_named(by_app_role: VaultSetup) -> None:
    del by_app_role.secrets["app-role"]
    outcome = await by_app_role.pending(by_app_role.request(PLAN))
    assert (outcome.reason, outcome.secrets, outcome.cause) == ("SecretMissing", ("app-role",), None)
    assert 'the Secret "app-role" in spec.vault.auth.appRole.secretRef does not exist' in outcome.message


async def test_two_methods_are_refused_in_cert_managers_words(by_app_role: VaultSetup) -> None:
    auth = msgspec.structs.replace(by_app_role.spec.auth, token_secret_ref=SecretKeySelector(name="token"))
    by_app_role.change(msgspec.structs.replace(by_app_role.spec, auth=auth))
    checked = await by_app_role.issuer.check(by_app_role.view, by_app_role.tools)
    assert checked.message == (
        "Multiple auth methods cannot be set on the same Vault issuer; "
        "keep one of tokenSecretRef, appRole in spec.vault.auth"
    )


async def test_a_server_that_was_killed_is_waited_for(make: MakeSetup) -> None:
    setup = make()
    setup.change(msgspec.structs.replace(setup.spec, server="https://127.0.0.1:1"))
    outcome = await setup.pending(setup.request(PLAN))
    assert outcome.cause is Cause.UNAVAILABLE
    assert isinstance(setup.issuer, Vault)
    assert await setup.issuer.probe(setup.view, setup.tools) != ""


async def test_a_client_certificate_of_the_connection_logs_in_at_another_mount_path(
    make: MakeSetup, bao: Bao
) -> None:
    bao.call("POST", "sys/auth/mtls", {"type": "cert"})
    role = {"certificate": bao.ca_pem.decode(), "token_policies": ["sign-web"]}
    bao.call("POST", "auth/mtls/certs/certwright", role)
    setup = make(VaultAuth(client_certificate=VaultClientCertificate(mount_path="/v1/auth/mtls")))
    certificate = SecretKeySelector(name="client")
    setup.change(
        msgspec.structs.replace(
            setup.spec, client_cert_secret_ref=certificate, client_key_secret_ref=certificate
        )
    )
    setup.secrets["client"] = client_pair(bao)
    await signed(setup)


async def test_an_app_role_of_another_mount_path_logs_in(make: MakeSetup, bao: Bao) -> None:
    bao.call("POST", "sys/auth/teams/web", {"type": "approle"})
    bao.call("POST", "auth/teams/web/role/certwright", {"token_policies": ["sign-web"]})
    role = bao.call("GET", "auth/teams/web/role/certwright/role-id")["data"]["role_id"]
    secret = bao.call("POST", "auth/teams/web/role/certwright/secret-id", {})["data"]["secret_id"]
    ref = SecretKeySelector(name="teams", key="secretId")
    setup = make(VaultAuth(app_role=VaultAppRole(path="teams/web", role_id=role, secret_ref=ref)))
    setup.secrets["teams"] = {"secretId": secret.encode()}
    await signed(setup)


async def test_the_ca_of_the_server_comes_from_a_secret(by_app_role: VaultSetup, bao: Bao) -> None:
    ref = SecretKeySelector(name="vault-ca")
    by_app_role.change(msgspec.structs.replace(by_app_role.spec, ca_bundle=b"", ca_bundle_secret_ref=ref))
    by_app_role.secrets["vault-ca"] = {"ca.crt": bao.ca_pem}
    await signed(by_app_role)
