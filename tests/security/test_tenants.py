"""Two tenants side by side on a real server: neither learns of the other's objects, nor changes one."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from certwright.kube.api.errors import ApiError
from security.conftest import Json, Server, User, path_of, ready, running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

THEIRS, ABSENT = "theirs", "absent"
SELF_SIGNED: Json = {"selfSigned": {}}
KINDS = ("Certificate", "CertificateRequest", "Issuer", "Order", "Challenge", "Secret", "ConfigMap", "Event")
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
JSON = "application/json"
_META = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Attempt(NamedTuple):
    """A request of a tenant; `{one}` is the path of an object of the other, `{all}` that of the kind."""

    method: str
    target: str
    form: str = JSON
    accept: str = JSON
    body: str = ""


_CHANGE = '{"metadata":{"labels":{"a":"b"}}}'
ATTEMPTS = {
    "get": Attempt("GET", "{one}"),
    "get metadata": Attempt("GET", "{one}", accept=_META),
    "get protobuf": Attempt("GET", "{one}", accept="application/vnd.kubernetes.protobuf"),
    "get status": Attempt("GET", "{one}/status"),
    "list": Attempt("GET", "{all}"),
    "list by name": Attempt("GET", "{all}?fieldSelector=metadata.name%3D{name}"),
    "list of all namespaces": Attempt("GET", "{cluster}?fieldSelector=metadata.name%3D{name}"),
    "watch": Attempt("GET", "{all}?watch=true&fieldSelector=metadata.name%3D{name}"),
    "watch of all namespaces": Attempt("GET", "{cluster}?watch=true"),
    "create": Attempt("POST", "{all}", body='{"metadata":{"name":"{name}"}}'),
    "create without effect": Attempt("POST", "{all}?dryRun=All", body='{"metadata":{"name":"{name}"}}'),
    "update": Attempt("PUT", "{one}", body='{"metadata":{"name":"{name}","namespace":"team-a"}}'),
    "update status": Attempt("PUT", "{one}/status", body='{"metadata":{"name":"{name}"}}'),
    "merge patch": Attempt("PATCH", "{one}", MERGE, body=_CHANGE),
    "patch status": Attempt("PATCH", "{one}/status", MERGE, body='{"status":{}}'),
    "apply": Attempt("PATCH", "{one}?fieldManager=x&force=true", APPLY, body=_CHANGE),
    "delete": Attempt("DELETE", "{one}"),
    "delete if of that identity": Attempt("DELETE", "{one}", body='{"preconditions":{"uid":"x"}}'),
    "delete all": Attempt("DELETE", "{all}"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server on which team-b has a CA, a Certificate that is Ready, and one object of each kind."""
    async with running_server(tmp_path_factory.mktemp("server")) as made:
        await fill(made.tenant("team-b"))
        yield made


async def fill(tenant: User) -> None:
    """Create the objects of team-b."""
    issued = {"secretName": "ca", "issuerRef": {"name": "root"}, "privateKey": {"algorithm": "ECDSA"}}
    await tenant.create("Issuer", "root", spec=SELF_SIGNED)
    await tenant.create("Certificate", "ca", spec=issued | {"isCA": True, "commonName": "CA"})
    await tenant.create("Issuer", THEIRS, spec={"ca": {"secretName": "ca"}})
    spec = issued | {"secretName": THEIRS, "dnsNames": ["b.example.com"], "issuerRef": {"name": THEIRS}}
    await tenant.create("Certificate", THEIRS, spec=spec)
    await tenant.until("Certificate", THEIRS, lambda certificate: ready(certificate).get("status") == "True")
    await tenant.create("ConfigMap", THEIRS, data={"a": "b"})


async def answer(user: User, attempt: Attempt, kind: str, name: str) -> tuple[int, str]:
    """The status and text of the server's answer, without the name in it."""
    single, every, cluster = path_of(kind, "team-b", name), path_of(kind, "team-b"), path_of(kind)

    def fit(text: str) -> str:
        places = {"{one}": single, "{all}": every, "{cluster}": cluster, "{name}": name}
        for place, value in places.items():
            text = text.replace(place, value)
        return text

    headers = {"content-type": attempt.form, "accept": attempt.accept}
    body = fit(attempt.body).encode()
    try:
        await user.client.raw(attempt.method, fit(attempt.target), body=body, headers=headers)
    except ApiError as error:
        return error.code, str(error).replace(name, "NAME")
    return 200, ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_what_exists_and_what_does_not_are_refused_alike(
    server: Server, attempt: Attempt, kind: str
) -> None:
    tenant = server.tenant("team-a")
    answers = [await answer(tenant, attempt, kind, name) for name in (THEIRS, ABSENT)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 403, answers


async def test_a_refused_request_changes_nothing(server: Server) -> None:
    owner = server.tenant("team-b")
    before = [await owner.get(kind, THEIRS) for kind in ("Certificate", "Secret", "Issuer", "ConfigMap")]
    for attempt in ATTEMPTS.values():
        for kind in KINDS:
            await answer(server.tenant("team-a"), attempt, kind, THEIRS)
    after = [await owner.get(kind, THEIRS) for kind in ("Certificate", "Secret", "Issuer", "ConfigMap")]
    assert after == before


@pytest.mark.parametrize("name", ["team-b", "absent"])
async def test_the_other_namespace_cannot_be_told_from_one_that_does_not_exist(
    server: Server, name: str
) -> None:
    tenant = server.tenant("team-a")
    for method, path in (
        ("GET", f"/api/v1/namespaces/{name}"),
        ("DELETE", f"/api/v1/namespaces/{name}"),
        ("GET", f"/api/v1/watch/namespaces/{name}/secrets"),
        ("GET", f"/api/v1/namespaces/{name}/secrets"),
        ("GET", f"/api/v1/namespaces/team-a/../{name}/secrets"),
        ("GET", f"/api/v1/namespaces/team-a%2f..%2f{name}/secrets"),
        ("GET", f"//api/v1/namespaces/{name}/secrets"),
    ):
        with pytest.raises(ApiError) as caught:
            await tenant._send(method, path)
        assert caught.value.code in (403, 404), (path, caught.value)
        assert caught.value.code == 403 or "%2f" in path or "watch" in path or "//" in path, path


@pytest.mark.parametrize("namespace", ["team-b", "absent"])
async def test_an_object_of_another_namespace_is_not_stored_through_the_tenants_own(
    server: Server, namespace: str
) -> None:
    tenant = server.tenant("team-a")
    with pytest.raises(ApiError) as caught:
        await tenant.create("ConfigMap", "x", metadata={"namespace": namespace})
    assert caught.value.code == 400


@pytest.mark.parametrize("name", [THEIRS, ABSENT])
async def test_an_issuer_of_the_other_is_one_that_does_not_exist(server: Server, name: str) -> None:
    tenant = server.tenant("team-a")
    spec = {"secretName": name, "dnsNames": ["a.example.com"], "issuerRef": {"name": name}}
    await tenant.create("Certificate", f"by-{name}", spec=spec)
    request = await tenant.until("CertificateRequest", f"by-{name}-1", lambda request: bool(ready(request)))
    assert ready(request)["reason"] == "Pending"
    assert "not found" in ready(request)["message"] or "does not exist" in ready(request)["message"]


async def test_a_ca_key_of_the_other_is_a_secret_that_does_not_exist(server: Server) -> None:
    tenant = server.tenant("team-a")
    outcomes = []
    for name in ("ca", ABSENT):
        await tenant.create("Issuer", f"with-{name}", spec={"ca": {"secretName": name}})
        made = await tenant.until("Issuer", f"with-{name}", lambda issuer: bool(ready(issuer)))
        outcomes.append((ready(made)["status"], ready(made)["reason"], ready(made)["message"]))
    assert outcomes[0][0] == "False"
    assert [
        text.replace(f'"{name}"', "NAME") for text, name in zip(outcomes[0], ("ca",) * 3, strict=True)
    ] == [text.replace(f'"{ABSENT}"', "NAME") for text in outcomes[1]]


@pytest.mark.parametrize("name", ["team-b/theirs", "../team-b/theirs", "../../team-b/secrets/theirs"])
async def test_a_secret_name_is_no_path(server: Server, name: str) -> None:
    spec = {"secretName": name, "dnsNames": ["a.example.com"], "issuerRef": {"name": "i"}}
    with pytest.raises(ApiError, match=r"spec\.secretName: Invalid value"):
        await server.tenant("team-a").create("Certificate", "path", spec=spec)


async def test_an_owner_of_another_namespace_is_none(server: Server) -> None:
    """A reference by uid neither deletes the owner, nor delays its deletion in the foreground."""
    owner, tenant = server.tenant("team-b"), server.tenant("team-a")
    made = await owner.create("ConfigMap", "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made["metadata"]["uid"]}
    meta = {"ownerReferences": [reference | {"blockOwnerDeletion": True}], "finalizers": ["a.dev/kept"]}
    await tenant.create("ConfigMap", "dependent", metadata=meta)
    body = json.dumps({"propagationPolicy": "Foreground"}).encode()
    path = path_of("ConfigMap", "team-b", "owner")
    await owner.client.raw("DELETE", path, body=body, headers={"content-type": JSON})
    await owner.until_gone("ConfigMap", "owner")


FORGED: Json = {
    "annotations": {
        "cert-manager.io/certificate-name": THEIRS,
        "cert-manager.io/certificate-revision": "7",
        "cert-manager.io/private-key-secret-name": THEIRS,
        "cert-manager.io/issuer-name": THEIRS,
        "cert-manager.io/allow-direct-injection": "true",
        "cert-manager.io/inject-ca-from": "team-b/theirs",
        "certwright.io/spec-generation": "1",
        "certwright.io/replaces": "a.b",
    },
    "labels": {
        "controller.cert-manager.io/fao": "true",
        "cert-manager.io/next-private-key": "true",
        "certwright.io/acme-limits": "true",
    },
}


async def test_marks_of_the_controllers_reach_no_object_of_the_other(server: Server) -> None:
    owner, tenant = server.tenant("team-b"), server.tenant("team-a")
    certificate, secret = await owner.get("Certificate", THEIRS), await owner.get("Secret", THEIRS)
    uid = certificate["metadata"]["uid"]
    reference = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "name": THEIRS, "uid": uid}
    meta = FORGED | {"ownerReferences": [reference | {"controller": True}]}
    request = (await owner.get("CertificateRequest", f"{THEIRS}-1"))["spec"]["request"]
    spec = {"request": request, "issuerRef": {"name": THEIRS}}
    for name in (THEIRS, f"{THEIRS}-1", f"{THEIRS}-2"):
        await tenant.create("CertificateRequest", name, metadata=meta, spec=spec)
        data = {"tls.crt": "bm8=", "tls.key": base64.b64encode(b"no").decode()}
        await tenant.create("Secret", name, metadata=meta, data=data)
        await tenant.create("ConfigMap", name, metadata=meta, data={"state.json": "[", "limits.json": "["})
    # Once a Certificate made later is Ready, the controllers have processed all of these.
    await owner.create("Certificate", "later", spec=certificate["spec"] | {"secretName": "later"})
    await owner.until("Certificate", "later", lambda obj: ready(obj).get("status") == "True")
    assert await owner.get("Certificate", THEIRS) == certificate
    assert await owner.get("Secret", THEIRS) == secret
