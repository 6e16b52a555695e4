"""What the rights of a tenant (`edit` in one namespace) reach on a real server, and what they do not."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from certwright.kube.api.errors import ApiError, Forbidden, Unauthorized
from certwright.pki import csr, keys
from security.conftest import Json, Server, running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLUSTER = {
    "clusterissuers": "/apis/cert-manager.io/v1/clusterissuers",
    "clusterissuersets": "/apis/certwright.io/v1alpha1/clusterissuersets",
    "namespaces": "/api/v1/namespaces",
    "nodes' secrets": "/api/v1/secrets",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "definitions": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "webhooks": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "API services": "/apis/apiregistration.k8s.io/v1/apiservices",
    "signing requests": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
}
SLICES = "/apis/discovery.k8s.io/v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One for all tests of this module."""
    async with running_server(tmp_path_factory.mktemp("server")) as made:
        yield made


def request() -> str:
    """A signing request, as `spec.request` holds it."""
    key = keys.generate(keys.KeyPlan.of("ECDSA", 256))
    return base64.b64encode(csr.build_csr(csr.CsrPlan(dns_names=("a.example.com",)), key)).decode()


async def test_a_tenant_reads_no_secret_of_another_namespace(server: Server) -> None:
    await server.admin("team-b").create("Secret", "theirs", stringData={"password": "p"})
    tenant = server.tenant()
    tenant.namespace = "team-b"
    for attempt in (tenant.get("Secret", "theirs"), tenant.list("Secret"), tenant.delete("Secret", "theirs")):
        with pytest.raises(Forbidden):
            await attempt
    tenant.namespace = "kube-system"
    with pytest.raises(Forbidden):
        await tenant.list("Secret")


@pytest.mark.parametrize("path", CLUSTER.values(), ids=CLUSTER)
async def test_a_tenant_writes_and_lists_nothing_of_the_cluster(server: Server, path: str) -> None:
    tenant = server.tenant()
    with pytest.raises(Forbidden):
        await tenant._send("POST", path, {"metadata": {"name": "evil"}})
    if path != CLUSTER["namespaces"]:
        with pytest.raises(Forbidden):
            await tenant._send("GET", path)


async def test_a_tenant_composes_no_issuer_set(server: Server) -> None:
    """The author of a set decides which ClusterIssuers sign what was approved for the set."""
    members = {"issuers": [{"name": "public", "kind": "ClusterIssuer"}]}
    path = "/apis/certwright.io/v1alpha1/namespaces/team-a/issuersets"
    assert (await server.tenant()._send("GET", path))["items"] == []
    with pytest.raises(Forbidden):
        await server.tenant()._send("POST", path, {"metadata": {"name": "evil"}, "spec": members})


async def test_a_tenant_delivers_nothing_to_the_machine(server: Server) -> None:
    spec = {"root": "nginx", "path": "web", "certificateRef": {"name": "web"}, "hook": "reload"}
    path = "/apis/certwright.io/v1alpha1/namespaces/team-a/deliveries"
    assert (await server.tenant()._send("GET", path))["items"] == []
    with pytest.raises(Forbidden):
        await server.tenant()._send("POST", path, {"metadata": {"name": "evil"}, "spec": spec})


async def test_a_tenant_leads_no_ingress_controller_to_addresses_of_others(server: Server) -> None:
    """As since Kubernetes 1.22 (CVE-2021-25740)."""
    for path in ("/api/v1/namespaces/team-a/endpoints", f"{SLICES}/namespaces/team-a/endpointslices"):
        assert (await server.tenant()._send("GET", path))["items"] == []
        with pytest.raises(Forbidden):
            await server.tenant()._send("POST", path, {"metadata": {"name": "evil"}})


async def test_a_tenant_writes_no_order_and_no_challenge(server: Server) -> None:
    """As since cert-manager 1.21: they use the account and the solvers of an issuer."""
    for kind in ("Order", "Challenge"):
        with pytest.raises(Forbidden):
            await server.tenant().create(kind, "evil", spec={})


async def test_a_tenant_gives_nobody_rights(server: Server) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    with pytest.raises(Forbidden):
        await server.tenant().create("RoleBinding", "evil", roleRef=role, subjects=[])
    with pytest.raises(Forbidden):
        await server.tenant().patch("RoleBinding", "edit", {"subjects": []})


async def test_a_request_is_in_the_name_of_its_author_who_cannot_approve_it(server: Server) -> None:
    tenant = server.tenant()
    spec = {
        "request": request(),
        "issuerRef": {"name": "none"},
        "username": "kubernetes-admin",
        "groups": ["system:masters"],
    }
    made = await tenant.create("CertificateRequest", "mine", spec=spec)
    assert made["spec"]["username"] == "team-a"
    assert "system:masters" not in made["spec"]["groups"]
    for kind in ("Approved", "Denied"):
        condition: Json = {"type": kind, "status": "True", "reason": "me", "message": "me"}
        change = {"status": {"conditions": [condition]}}
        with pytest.raises(ApiError):
            await tenant.patch("CertificateRequest", "mine", change, part="status")


async def test_a_tenant_acts_as_no_other_user(server: Server) -> None:
    headers = {"impersonate-user": "kubernetes-admin", "impersonate-group": "system:masters"}
    with pytest.raises(Forbidden):
        await server.tenant().client.raw("GET", "/api/v1/secrets", headers=headers)


async def test_a_tenant_gets_tokens_of_its_own_service_accounts_only(server: Server) -> None:
    tenant = server.tenant()
    for namespace, name in (
        ("team-b", "default"),
        ("kube-system", "default"),
        ("cert-manager", "cert-manager"),
    ):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        with pytest.raises(Forbidden):
            await tenant._send("POST", path, body)


@pytest.mark.parametrize("path", ["/metrics", "/certwright/encryption", "/api/v1/nodes"])
async def test_a_tenant_sees_nothing_of_the_server_itself(server: Server, path: str) -> None:
    with pytest.raises(ApiError) as caught:
        await server.tenant()._send("GET", path)
    assert caught.value.code in (403, 404)


@pytest.mark.parametrize(
    "path", ["/", "/api", "/metrics", "/apis/cert-manager.io/v1/issuers", "/api/v1/secrets"]
)
async def test_without_credentials_nothing_is_answered(server: Server, path: str) -> None:
    text = server.kubeconfig.read_text().replace(server.admin_token, "no-such-token")
    config = server.folder / "nobody.kubeconfig"
    config.write_text(text)
    config.chmod(0o600)
    nobody = server._user(config, "team-a")
    with pytest.raises(Unauthorized):
        await nobody._send("GET", path)
