"""Who asks: impersonation, nobody in particular, ServiceAccounts' tokens; and the questions about it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certwright.kube.api.errors import Unauthorized
from certwright.kube.apiserver.auth.authentication import (
    ClientCertificates,
    FirstOf,
    StaticTokens,
    read_token_file,
)
from certwright.kube.apiserver.auth.tokens import TokenIssuer, load_or_make_key
from certwright.kube.util.http_messages import Identity, Request
from certwright.pki import keys
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyAlgorithm, KeyPlan
from kube.apiserver.callers import (
    ADMIN,
    CERTIFICATES,
    CRDS,
    EVE,
    SECRETS,
    Answer,
    Api,
    StartApi,
    as_user,
    grant,
    rule,
)

Json = dict[str, Any]

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
AUTHORIZATION, AUTHENTICATION = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
ISSUER = "https://kubernetes.default.svc.cluster.local"


TOKENS = StaticTokens({"secret-token": ADMIN, "eves-token": EVE})


# --- credentials ------------------------------------------------------------------------------------------


def client_certificate(common_name: str, *groups: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    if common_name:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(x509.Name(attributes))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


def bearer(token: str) -> Request:
    return Request("GET", "/", headers={"authorization": f"Bearer {token}"})


def test_a_known_token_names_its_user() -> None:
    user = TOKENS(bearer("eves-token"))
    assert user is not None
    assert (user.name, user.groups) == ("eve", ("staff", "system:authenticated"))


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer ", "Bearer"])
def test_without_a_token_nothing_is_said(header: str) -> None:
    assert TOKENS(Request("GET", "/", headers={"authorization": header})) is None


def test_a_wrong_token_is_refused() -> None:
    with pytest.raises(Unauthorized):
        TOKENS(bearer("wrong"))


def test_a_client_certificate_names_user_and_groups() -> None:
    der = client_certificate("admin", "system:masters", "staff")
    authenticator = ClientCertificates()
    for _ in range(2):
        user = authenticator(Request("GET", "/", peer_certificate=der))
        assert user is not None
        assert user.name == "admin"
        assert set(user.groups) == {"system:masters", "staff", "system:authenticated"}
    assert authenticator(Request("GET", "/")) is None
    assert authenticator(Request("GET", "/", peer_certificate=client_certificate("", "staff"))) is None


async def test_strangers_are_not_let_in(start_api: StartApi) -> None:
    api = await start_api(authenticator=FirstOf(ClientCertificates(), TOKENS), user=None)
    for headers in ({}, {"authorization": "Bearer wrong"}):
        for path in (SECRETS, "/api", "/version", "/healthz/etcd", "/nothing"):
            answer = await api.call("GET", path, None, **headers)
            assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")
            assert answer.message == "Unauthorized"
    assert (await api.call("GET", SECRETS, None, authorization="Bearer secret-token")).status == 200


async def test_users_without_rights_may_only_look_at_what_is_served(start_api: StartApi) -> None:
    api = await start_api(authenticator=TOKENS, user=None)
    as_eve = {"authorization": "Bearer eves-token"}
    for path in ("/api", "/apis", "/version", "/healthz", "/openapi/v3"):
        assert (await api.call("GET", path, None, **as_eve)).status == 200
    listing = await api.call("GET", SECRETS, None, **as_eve)
    assert (listing.status, listing.json["reason"]) == (403, "Forbidden")
    assert listing.message == (
        'secrets is forbidden: User "eve" cannot list resource "secrets" in API group "" '
        'in the namespace "default"'
    )
    status = await api.call("PATCH", f"{CERTIFICATES}/web/status", {}, **as_eve)
    assert status.message == (
        'certificates.cert-manager.io "web" is forbidden: '
        'User "eve" cannot patch resource "certificates/status" in API group "cert-manager.io" '
        'in the namespace "default"'
    )
    assert status.json["details"] == {"name": "web", "group": "cert-manager.io", "kind": "certificates"}
    crds = await api.call("POST", CRDS, {}, **as_eve)
    assert crds.message.endswith("at the cluster scope")
    post = await api.call("POST", "/version", {}, **as_eve)
    assert post.message == 'forbidden: User "eve" cannot post path "/version"'


# --- acting as somebody else ------------------------------------------------------------------------------


async def whoami(api: Api, **headers: str) -> Json:
    answer = await api.ok("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, **headers)
    user: Json = answer["status"]["userInfo"]
    return user


async def test_the_admin_may_act_as_anybody(api: Api) -> None:
    assert await whoami(api, impersonate_user="jane") == {
        "username": "jane",
        "groups": ["system:authenticated"],
    }
    shown = await whoami(
        api,
        impersonate_user="jane",
        impersonate_group="a\nb, c",
        impersonate_uid="7",
        impersonate_extra_reason="audit",
    )
    assert shown == {
        "username": "jane",
        "uid": "7",
        "groups": ["a", "b, c", "system:authenticated"],
        "extra": {"reason": ["audit"]},
    }
    robot = await whoami(api, impersonate_user="system:serviceaccount:team:robot")
    assert robot["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:team",
        "system:authenticated",
    ]
    user = await whoami(api, impersonate_user="system:serviceaccount:team:bot:x")
    assert user["groups"] == ["system:authenticated"]
    nobody = api.call("GET", SECRETS, None, impersonate_user="system:anonymous")
    assert 'User "system:anonymous" cannot list' in (await nobody).message


async def test_who_is_acted_as_has_only_his_own_rights(api: Api) -> None:
    refused = await api.call("GET", SECRETS, None, impersonate_user="jane")
    assert (refused.status, refused.message) == (
        403,
        'secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" '
        'in the namespace "default"',
    )


@pytest.mark.parametrize(
    ("headers", "resource", "name", "where"),
    [
        ({"user": "jane"}, "users", "jane", ""),
        ({"user": "bob", "group": "system:masters"}, "groups", "system:masters", ""),
        ({"user": "system:serviceaccount:team:robot"}, "serviceaccounts", "robot", "team"),
        *(
            ({"user": f"system:serviceaccount:{rest}"}, "users", f"system:serviceaccount:{rest}", "")
            for rest in ("team:bot:x", "team:bot,system:masters", "team:", ":bot", "team", "Team:bot")
        ),
        ({"user": "bob", "uid": "7"}, "uids.authentication.k8s.io", "7", ""),
        ({"user": "bob", "extra_scope": "all"}, "userextras.authentication.k8s.io", "all", ""),
    ],
)
async def test_acting_as_somebody_is_a_right(
    api: Api, headers: dict[str, str], resource: str, name: str, where: str
) -> None:
    await grant(api, rule("impersonate", "users", resourceNames=["bob"]))
    eve = as_user(api, EVE)
    assert (await whoami(eve, impersonate_user="bob"))["username"] == "bob"
    sent = {f"impersonate_{part}": value for part, value in headers.items()}
    refused = await eve.call("GET", SECRETS, None, **sent)
    plural, _, group = resource.partition(".")
    subresource = "/scope" if plural == "userextras" else ""
    scope = f'in the namespace "{where}"' if where else "at the cluster scope"
    assert (refused.status, refused.message) == (
        403,
        f'{resource} "{name}" is forbidden: User "eve" cannot impersonate resource "{plural}{subresource}" '
        f'in API group "{group}" {scope}',
    )


async def test_a_group_without_a_user_is_refused(api: Api) -> None:
    for header in ("impersonate_group", "impersonate_uid", "impersonate_extra_x"):
        assert (await api.call("GET", SECRETS, None, **{header: "x"})).status == 500


# --- nobody in particular -----------------------------------------------------------------------------


async def test_strangers_may_look_at_health_where_they_are_let_in(api: Api, start_api: StartApi) -> None:
    tokens = StaticTokens({"good": EVE})
    for anonymous in (False, True):
        open_api = await start_api(authenticator=tokens, anonymous=anonymous, user=None)
        assert (await open_api.call("GET", "/version")).status == (200 if anonymous else 401)
    refused = await open_api.call("GET", SECRETS)
    assert 'User "system:anonymous" cannot list resource "secrets"' in refused.message
    assert (await open_api.call("GET", "/api")).message == (
        'forbidden: User "system:anonymous" cannot get path "/api"'
    )
    # Wrong credentials are not the same as none.
    assert (await open_api.call("GET", "/healthz", None, authorization="Bearer bad")).status == 401


async def test_health_needs_no_credentials_and_says_strangers_no_reasons(start_api: StartApi) -> None:
    api = await start_api(authenticator=StaticTokens({"good": ADMIN}), user=None)
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
        assert (await api.call("GET", path)).status == 200
    for path in ("/readyz/etcd", "/livez/ping", "/readyz/../api", "/metrics", "/version"):
        assert (await api.call("GET", path)).status in (401, 404)
    await api.server.close()
    shown = {}
    for name, headers in (("anonymous", {}), ("admin", {"authorization": "Bearer good"})):
        answer = await api.call("GET", "/readyz?verbose", None, **headers)
        assert answer.status == 500
        shown[name] = answer.body.decode()
    assert "[-]shutdown failed: reason withheld" in shown["anonymous"]
    assert "[-]shutdown failed: process is shutting down" in shown["admin"]


async def test_the_operator_can_close_the_health_paths(start_api: StartApi) -> None:
    api = await start_api(authenticator=StaticTokens({"good": ADMIN}), user=None)
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:public-info-viewer"
    assert (await api.call("DELETE", binding, None, authorization="Bearer good")).status == 200
    assert (await api.call("GET", "/livez")).status == 403


def test_a_token_file_is_read_as_kubernetes_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t1,eve,1,"staff,system:masters"\nt2, bob ,2\n\nt3,ann,3,one\n')
    assert read_token_file(file) == {
        "t1": Identity("eve", uid="1", groups=("staff", "system:masters")),
        "t2": Identity("bob", uid="2"),
        "t3": Identity("ann", uid="3", groups=("one",)),
    }
    file.write_text("good,eve,1\nhidden,bob\n")
    with pytest.raises(ValueError, match="line 2: a line needs at least 3 columns") as caught:
        read_token_file(file)
    assert "hidden" not in str(caught.value)
    file.write_text(",eve,1\n")
    with pytest.raises(ValueError, match="must not be empty"):
        read_token_file(file)


# --- ServiceAccounts --------------------------------------------------------------------------------------


async def account(api: Api, name: str = "robot") -> Json:
    return await api.ok("POST", ACCOUNTS, {"metadata": {"name": name}})


async def token(api: Api, name: str = "robot", **spec: Any) -> str:
    answer = await api.ok("POST", f"{ACCOUNTS}/{name}/token", {"spec": spec})
    return str(answer["status"]["token"])


def claims_of(token: str) -> Json:
    part = token.split(".")[1]
    claims: Json = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


async def stranger(api: Api, token: str, path: str = "/api") -> Answer:
    """What somebody with this token is answered."""
    return await Api(api.server, api.clock, api.store, None).call(
        "GET", path, None, authorization=f"Bearer {token}"
    )


async def test_a_token_request_is_answered_as_by_kubernetes(api: Api) -> None:
    uid = (await account(api))["metadata"]["uid"]
    answer = await api.call("POST", f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 900}})
    assert answer.status == 201
    document = answer.json
    now = int(api.clock.now().timestamp())
    assert (document["kind"], document["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert document["spec"] == {"audiences": [ISSUER], "expirationSeconds": 900, "boundObjectRef": None}
    assert document["status"]["expirationTimestamp"].endswith("Z")
    claims = claims_of(document["status"]["token"])
    assert claims.pop("jti")
    assert claims == {
        "iss": ISSUER,
        "aud": [ISSUER],
        "exp": now + 900,
        "iat": now,
        "nbf": now,
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}},
    }


async def test_a_token_speaks_for_its_account(api: Api) -> None:
    made = await account(api)
    speaks = {"authorization": f"Bearer {await token(api)}"}
    user_info = await whoami(Api(api.server, api.clock, api.store, None), **speaks)
    assert user_info["username"] == "system:serviceaccount:default:robot"
    assert user_info["uid"] == made["metadata"]["uid"]
    assert user_info["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    assert user_info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


@pytest.mark.parametrize(
    ("seconds", "status"),
    [
        pytest.param(-61, 401, id="more than a minute before it begins"),
        pytest.param(-59, 200, id="the clock of this server is less than a minute behind the issuer's"),
        pytest.param(659, 200, id="less than a minute after its end"),
        pytest.param(661, 401, id="more than a minute after its end"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_token_is_valid_in_its_time_with_a_minute_of_leeway(
    api: Api, seconds: int, status: int, *, is_known: bool
) -> None:
    await account(api)
    good = await token(api, expirationSeconds=600)
    if is_known and seconds > 0:
        assert (await stranger(api, good)).status == 200
    api.clock.set_now(api.clock.now() + timedelta(seconds=seconds))
    assert (await stranger(api, good)).status == status


async def test_a_token_ends_with_its_account(api: Api) -> None:
    await account(api)
    good = await token(api)
    unseen = await token(api)
    assert (await stranger(api, good)).status == 200
    await api.ok("DELETE", f"{ACCOUNTS}/robot")
    for dead in (good, unseen):
        assert (await stranger(api, dead)).status == 401
    await account(api)
    for dead in (good, unseen):
        assert (await stranger(api, dead)).status == 401


async def test_a_token_ends_with_the_secret_that_it_is_bound_to(api: Api) -> None:
    await account(api)
    uid = (await api.secret("s"))["metadata"]["uid"]
    good = await token(api, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": uid})
    assert claims_of(good)["kubernetes.io"]["secret"] == {"name": "s", "uid": uid}
    assert (await stranger(api, good)).status == 200
    await api.ok("DELETE", f"{SECRETS}/s")
    assert (await stranger(api, good)).status == 401


async def test_a_token_for_others_is_not_for_us(api: Api) -> None:
    await account(api)
    assert (await stranger(api, await token(api, audiences=["vault"]))).status == 401
    assert (await stranger(api, await token(api, audiences=["vault", ISSUER]))).status == 200


async def test_only_our_own_signature_counts(api: Api) -> None:
    await account(api)
    good = await token(api)
    head, claims, signature = good.split(".")
    forged = TokenIssuer().sign({k: v for k, v in claims_of(good).items() if k != "iss"})
    plain = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    changed = base64.urlsafe_b64encode(json.dumps({**claims_of(good), "exp": 9e9}).encode()).decode()
    for wrong in (
        forged,
        f"{head}.{changed.rstrip('=')}.{signature}",
        f"{plain}.{claims}.",
        f"{head}.{claims}.",
        "a.b.c",
        "é.é.é",
    ):
        assert (await stranger(api, wrong)).status == 401


@pytest.mark.parametrize(
    ("spec", "status", "sentence"),
    [
        (
            {"expirationSeconds": 599},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: '
            "may not specify a duration less than 10 minutes",
        ),
        ({"expirationSeconds": 1 << 33}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"expirationSeconds": "x"}, 400, "cannot be handled as a TokenRequest"),
        ({"boundObjectRef": {"kind": "Secret", "name": "gone"}}, 404, 'secrets "gone" not found'),
        ({"boundObjectRef": {"kind": "Lease", "name": "x"}}, 400, "cannot bind token"),
        ({"boundObjectRef": {"kind": "Secret", "name": "s", "uid": "x"}}, 409, "does not match the UID"),
    ],
)
async def test_wrong_token_requests(api: Api, spec: Json, status: int, sentence: str) -> None:
    await account(api)
    await api.secret("s")
    answer = await api.call("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
    assert answer.status == status
    assert sentence in answer.message


async def test_a_token_is_somebodys_to_give(api: Api) -> None:
    assert (await api.call("POST", f"{ACCOUNTS}/gone/token", {"spec": {}})).status == 404
    await account(api)
    refused = await as_user(api, EVE).call("POST", f"{ACCOUNTS}/robot/token", {"spec": {}})
    assert 'User "eve" cannot create resource "serviceaccounts/token"' in refused.message


async def test_others_can_check_our_tokens(api: Api) -> None:
    document = await api.call("GET", "/.well-known/openid-configuration")
    assert document.json["issuer"] == ISSUER
    assert document.json["jwks_uri"] == f"{ISSUER}/openid/v1/jwks"
    keys = await api.call("GET", "/openid/v1/jwks")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    (key,) = keys.json["keys"]
    assert (key["kty"], key["crv"], key["alg"], key["use"]) == ("EC", "P-256", "ES256", "sig")
    assert "d" not in key
    await account(api)
    good = await token(api)
    assert (await stranger(api, good, "/openid/v1/jwks")).status == 200
    assert (await as_user(api, EVE).call("GET", "/openid/v1/jwks")).status == 403


def test_the_signing_key_stays(tmp_path: Path) -> None:
    path = tmp_path / "sa.key"
    one = TokenIssuer(load_or_make_key(path))
    other = TokenIssuer(load_or_make_key(path))
    assert other.verify(one.sign({"sub": "x"})) == {"iss": ISSUER, "sub": "x"}
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("no key")
    assert TokenIssuer(load_or_make_key(path)).verify(one.sign({"sub": "x"})) is None


# --- questions --------------------------------------------------------------------------------------------


async def may(api: Api, kind: str, spec: Json, namespace: str = "") -> Json:
    inside = f"/namespaces/{namespace}" if namespace else ""
    answer = await api.ok("POST", f"{AUTHORIZATION}{inside}/{kind}", {"spec": spec})
    status: Json = answer["status"]
    return status


LIST_SECRETS = {"verb": "list", "resource": "secrets", "namespace": "default"}


async def test_access_reviews(api: Api) -> None:
    await grant(api, rule("list", "secrets"), namespace="default")
    eve = as_user(api, EVE)
    asked = {"resourceAttributes": LIST_SECRETS}
    everywhere = {"resourceAttributes": {"verb": "list", "resource": "secrets"}}
    assert (await may(eve, "selfsubjectaccessreviews", asked))["allowed"] is True
    assert await may(eve, "selfsubjectaccessreviews", everywhere) == {"allowed": False}
    about = {"user": "eve", **asked}
    status = await may(api, "subjectaccessreviews", about)
    assert status["reason"].startswith('RBAC: allowed by RoleBinding "r')
    assert (await may(api, "localsubjectaccessreviews", about, "default"))["allowed"] is True
    path = {"user": "eve", "nonResourceAttributes": {"path": "/api", "verb": "get"}}
    assert (await may(api, "subjectaccessreviews", path))["allowed"] is False
    path["groups"] = ["system:authenticated"]
    assert (await may(api, "subjectaccessreviews", path))["allowed"] is True
    # Asking about others is a right of its own.
    assert (await eve.call("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": about})).status == 403


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"user": "eve"}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ({"resourceAttributes": LIST_SECRETS}, "at least one of user or group must be specified"),
        (
            {"user": "eve", "resourceAttributes": LIST_SECRETS, "nonResourceAttributes": {"path": "/x"}},
            "cannot be specified in combination with resourceAttributes",
        ),
    ],
)
async def test_wrong_access_reviews(api: Api, spec: Json, sentence: str) -> None:
    answer = await api.call("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    assert answer.status == 422
    assert sentence in answer.message


async def test_a_local_review_is_about_its_namespace(api: Api) -> None:
    spec = {"user": "eve", "resourceAttributes": {**LIST_SECRETS, "namespace": "other"}}
    path = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    answer = await api.call("POST", path, {"spec": spec})
    assert (answer.status, answer.message) == (
        400,
        "spec.resourceAttributes.namespace must match namespace: default",
    )


async def test_a_rules_review_lists_what_one_may(api: Api) -> None:
    await grant(api, rule("list", "secrets"), namespace="default")
    eve = as_user(api, EVE)
    status = await may(eve, "selfsubjectrulesreviews", {"namespace": "default"})
    mine = {"verbs": ["list"], "apiGroups": [""], "resources": ["secrets"]}
    assert mine in status["resourceRules"]
    assert any("/healthz" in r["nonResourceURLs"] for r in status["nonResourceRules"])
    assert status["incomplete"] is False
    other = await may(eve, "selfsubjectrulesreviews", {"namespace": "kube-system"})
    assert mine not in other["resourceRules"]
    all_rules = await may(as_user(api, ADMIN), "selfsubjectrulesreviews", {"namespace": "default"})
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in all_rules["resourceRules"]
    missing = await eve.call("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {}})
    assert (missing.status, missing.message) == (400, "no namespace on request")


async def test_token_reviews(start_api: StartApi) -> None:
    api = await start_api(authenticator=StaticTokens({"good": EVE}))
    await account(api)
    path = f"{AUTHENTICATION}/tokenreviews"

    async def review(**spec: Any) -> Json:
        status: Json = (await api.ok("POST", path, {"spec": spec}))["status"]
        return status

    status = await review(token="good")
    assert status["authenticated"] is True
    assert status["user"] == {"username": "eve", "groups": ["staff", "system:authenticated"]}
    assert status["audiences"] == [ISSUER]
    assert "authenticated" not in await review(token="bad")
    assert "authenticated" not in await review(token="good", audiences=["vault"])
    robots = await token(api, audiences=["vault", "db"])
    assert "authenticated" not in await review(token=robots)
    status = await review(token=robots, audiences=["db", "x"])
    assert status["user"]["username"] == "system:serviceaccount:default:robot"
    assert status["audiences"] == ["db"]


# --- approval -----------------------------------------------------------------------------------------


async def test_approval_needs_the_right_for_the_issuer(api: Api, start_api: StartApi) -> None:
    requests = CERTIFICATES.replace("certificates", "certificaterequests")
    await grant(api, rule("get update patch", "certificaterequests/status", "cert-manager.io"))
    eve = as_user(api, EVE)
    for number, (names, status) in enumerate(
        [
            ([], 403),
            (["issuers.cert-manager.io/other.ca"], 403),
            (["issuers.cert-manager.io/default.ca"], 200),
            (["issuers.cert-manager.io/*"], 200),
        ]
    ):
        name = f"r{number}"
        await certificate_request(api, requests, name)
        if names:
            await grant(api, rule("approve", "signers", "cert-manager.io", resourceNames=names))
        answer = await eve.call(
            "PATCH",
            f"{requests}/{name}/status",
            {"status": {"conditions": [APPROVED]}},
            content_type="application/merge-patch+json",
        )
        assert answer.status == status, answer.body
        if status == 403:
            assert answer.message.endswith(
                'status.conditions: Forbidden: user "eve" does not have permissions to set approved/denied '
                "conditions for issuer {ca Issuer cert-manager.io}"
            )


APPROVED = {
    "type": "Approved",
    "status": "True",
    "reason": "test",
    "message": "yes",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


SIGNING_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def encoded_csr(plan: CsrPlan) -> str:
    return base64.b64encode(build_csr(plan, keys.generate(KeyPlan(KeyAlgorithm.ECDSA, 256)))).decode()


async def signing_request(api: Api, name: str, signer: str, subject: str = "") -> Answer:
    plan = CsrPlan(literal_subject=subject) if subject else CsrPlan(dns_names=("a.example",))
    spec = {"request": encoded_csr(plan), "signerName": signer, "usages": ["client auth"]}
    return await api.call("POST", SIGNING_REQUESTS, {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize("name", ["example.com/it", "example.com/*"])
async def test_signing_requests_are_approved_and_signed_by_who_may(api: Api, name: str) -> None:
    assert (await signing_request(api, "x", "example.com/it")).status == 201
    await grant(
        api,
        rule(
            "get update patch",
            "certificatesigningrequests/approval certificatesigningrequests/status",
            "certificates.k8s.io",
        ),
    )
    eve = as_user(api, EVE)
    certificate = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
    for verb, part, status in (
        ("approve", "approval", {"conditions": [APPROVED]}),
        ("sign", "status", {"certificate": certificate}),
    ):
        target = f"{SIGNING_REQUESTS}/x/{part}"
        merge = "application/merge-patch+json"
        refused = await eve.call("PATCH", target, {"status": status}, content_type=merge)
        assert (refused.status, refused.message) == (
            403,
            'certificatesigningrequests.certificates.k8s.io "x" is forbidden: user not permitted to '
            f'{verb} requests with signerName "example.com/it"',
        )
        await grant(api, rule(verb, "signers", "certificates.k8s.io", resourceNames=[name]))
        allowed = await eve.call("PATCH", target, {"status": status}, content_type=merge)
        assert allowed.status in (200, 422), allowed.body  # 422: not a certificate


async def test_nobody_asks_for_a_master_key_as_a_client_certificate(api: Api) -> None:
    signer = "kubernetes.io/kube-apiserver-client"
    refused = await signing_request(api, "x", signer, "O=system:masters,CN=eve")
    assert refused.message.endswith(f"use of {signer} signer with system:masters group is not allowed")
    assert (await signing_request(api, "x", signer, "O=staff,CN=eve")).status == 201


async def certificate_request(api: Api, path: str, name: str) -> None:
    issuer = {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
    spec = {"request": encoded_csr(CsrPlan(dns_names=("a.example",))), "issuerRef": issuer}
    kind = {"apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest"}
    await api.ok("POST", path, {**kind, "metadata": {"name": name}, "spec": spec})
