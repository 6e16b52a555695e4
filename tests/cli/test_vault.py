"""`certwright serve` issues from a real OpenBao."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.server import Server, running
from support.openbao import Bao, app_role, openbao

_GROUP = "/apis/cert-manager.io/v1/namespaces/default"
_CORE = "/api/v1/namespaces/default"
_RBAC_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"/apis/{_RBAC_GROUP}/v1"
_CONTROLLERS = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
_WITHIN_S = 120.0


@pytest.fixture
def bao() -> Iterator[Bao]:
    """A server of this test's own, whose data survives a kill."""
    with openbao(on_disk=True) as server:
        yield server


async def create(server: Server, path: str, body: dict[str, Any]) -> Any:
    answer = await server.ask("POST", path, body)
    assert answer.status == 201, answer.text
    return answer.json


def _kind(kind: str) -> dict[str, str]:
    return {"apiVersion": "cert-manager.io/v1", "kind": kind}


async def vault_issuer(server: Server, bao: Bao, auth: dict[str, Any], name: str = "vault") -> None:
    bundle = base64.b64encode(bao.ca_pem).decode()
    vault = {"server": bao.url, "path": "pki/sign/web", "caBundle": bundle, "auth": auth}
    body = {**_kind("Issuer"), "metadata": {"name": name}, "spec": {"vault": vault}}
    await create(server, f"{_GROUP}/issuers", body)


async def by_app_role(server: Server, bao: Bao) -> None:
    role, secret = app_role(bao)
    body = {"metadata": {"name": "app-role"}, "stringData": {"secretId": secret}}
    await create(server, f"{_CORE}/secrets", body)
    ref = {"name": "app-role", "key": "secretId"}
    await vault_issuer(server, bao, {"appRole": {"path": "approle", "roleId": role, "secretRef": ref}})


async def want(server: Server, name: str, issuer: dict[str, str] | None = None) -> None:
    spec = {
        "secretName": name,
        "dnsNames": [f"{name}.example.org"],
        "issuerRef": issuer or {"name": "vault"},
        "privateKey": {"algorithm": "ECDSA"},
    }
    body = {**_kind("Certificate"), "metadata": {"name": name}, "spec": spec}
    await create(server, f"{_GROUP}/certificates", body)


async def condition(server: Server, path: str, kind: str = "Ready") -> dict[str, Any]:
    conditions = (await server.ask("GET", path)).json.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == kind), {})


async def until(server: Server, path: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The Ready condition once it is so."""
    async with asyncio.timeout(_WITHIN_S):
        while not is_so(current := await condition(server, path)):  # noqa: ASYNC110 - what a user would do
            await asyncio.sleep(0.05)
    return current


async def ready(server: Server, name: str) -> None:
    await until(server, f"{_GROUP}/certificates/{name}", lambda current: current.get("status") == "True")


async def test_certificates_wait_while_the_server_is_sealed_or_dead_and_then_go_on(
    tmp_path: Path, bao: Bao
) -> None:
    async with running(tmp_path, "--controllers", "*") as server:
        await by_app_role(server, bao)
        await want(server, "first")
        await ready(server, "first")
        bao.seal()
        await want(server, "sealed")
        await until(server, f"{_GROUP}/issuers/vault", lambda current: "sealed" in current.get("message", ""))
        bao.unseal()
        await ready(server, "sealed")
        bao.kill()
        await want(server, "dead")
        bao.start()
        bao.unseal()
        await ready(server, "dead")
    assert bao.count("pki/sign/web") >= 3


async def test_another_member_of_a_set_signs_while_the_server_is_dead(tmp_path: Path, bao: Bao) -> None:
    reference = {"name": "both", "kind": "IssuerSet", "group": "certwright.io"}
    async with running(tmp_path, "--controllers", "*") as server:
        await by_app_role(server, bao)
        fallback = {**_kind("Issuer"), "metadata": {"name": "fallback"}, "spec": {"selfSigned": {}}}
        await create(server, f"{_GROUP}/issuers", fallback)
        members = {"issuers": [{"name": "vault"}, {"name": "fallback"}]}
        body = {
            "apiVersion": "certwright.io/v1alpha1",
            "kind": "IssuerSet",
            "metadata": {"name": "both"},
            "spec": members,
        }
        await create(server, "/apis/certwright.io/v1alpha1/namespaces/default/issuersets", body)
        await want(server, "alive", reference)
        await ready(server, "alive")
        bao.kill()
        for number in range(3):
            await want(server, f"dead{number}", reference)
        for number in range(3):
            await ready(server, f"dead{number}")
        requests = (await server.ask("GET", f"{_GROUP}/certificaterequests")).json["items"]
        sent = {
            request["metadata"]["name"]: json.loads(
                request["metadata"]["annotations"]["certwright.io/issuer-set-member"]
            )["name"]
            for request in requests
        }
    assert sent.pop("alive-1") == "vault"
    assert set(sent.values()) == {"fallback"}


async def test_a_restart_signs_nothing_again(tmp_path: Path, bao: Bao) -> None:
    async with running(tmp_path, "--controllers", "*") as server:
        await by_app_role(server, bao)
        for name in ("a", "b", "c"):
            await want(server, name)
        for name in ("a", "b", "c"):
            await ready(server, name)
        server.kill()
        await server.start()
        await want(server, "d")
        await ready(server, "d")
    assert bao.count("pki/sign/web") == 4


async def test_a_service_account_logs_in_by_our_token_review(tmp_path: Path, bao: Bao) -> None:
    async with running(tmp_path, "--controllers", "*") as server:
        for name in ("reviewer", "signer"):
            await create(server, f"{_CORE}/serviceaccounts", {"metadata": {"name": name}})
        delegator = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        }
        reviewer = {"kind": "ServiceAccount", "name": "reviewer", "namespace": "default"}
        body = {"metadata": {"name": "reviewer"}, "roleRef": delegator, "subjects": [reviewer]}
        await create(server, f"{_RBAC}/clusterrolebindings", body)
        token = await create(server, f"{_CORE}/serviceaccounts/reviewer/token", {"spec": {}})
        bao.call(
            "POST",
            "auth/kubernetes/config",
            {
                "kubernetes_host": server.url,
                "kubernetes_ca_cert": server.ca_pem,
                "token_reviewer_jwt": token["status"]["token"],
                "disable_local_ca_jwt": True,
            },
        )
        role = {
            "bound_service_account_names": "signer",
            "bound_service_account_namespaces": "default",
            "audience": "vault://default/vault",
            "token_policies": ["sign-web"],
        }
        bao.call("POST", "auth/kubernetes/role/web", role)
        account = {"role": "web", "serviceAccountRef": {"name": "signer"}}
        await vault_issuer(server, bao, {"kubernetes": account})
        refused = await until(server, f"{_GROUP}/issuers/vault", bool)
        # As with cert-manager, the controllers get tokens only of ServiceAccounts that a Role names.
        assert 'no token of the ServiceAccount "signer"' in refused["message"]
        rule = {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "resourceNames": ["signer"],
            "verbs": ["create"],
        }
        await create(
            server, f"{_RBAC}/namespaces/default/roles", {"metadata": {"name": "tokens"}, "rules": [rule]}
        )
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tokens"}
        body = {"metadata": {"name": "tokens"}, "roleRef": ref, "subjects": [_CONTROLLERS]}
        await create(server, f"{_RBAC}/namespaces/default/rolebindings", body)
        await want(server, "web")
        await ready(server, "web")
        # The same with a token in a Secret.
        asked = {"spec": {"audiences": ["vault://default/vault"]}}
        token = await create(server, f"{_CORE}/serviceaccounts/signer/token", asked)
        secret = {"metadata": {"name": "jwt"}, "stringData": {"token": token["status"]["token"]}}
        await create(server, f"{_CORE}/secrets", secret)
        account = {"role": "web", "secretRef": {"name": "jwt"}, "mountPath": "/v1/auth/kubernetes"}
        await vault_issuer(server, bao, {"kubernetes": account}, name="by-secret")
        await want(server, "by-secret", {"name": "by-secret"})
        await ready(server, "by-secret")
