"""Who may do what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certwright.kube.api.errors import Unauthorized
from certwright.kube.apiserver.auth.authentication import ClientCertificates, FirstOf, StaticTokens
from certwright.kube.util.http_messages import Identity, Request
from kube.apiserver.callers import ADMIN, CERTIFICATES, CRDS, SECRETS, StartApi

EVE = Identity("eve", groups=("staff",))
TOKENS = StaticTokens({"secret-token": ADMIN, "eves-token": EVE})


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
            assert (answer.status, answer.json["reason"], answer.message) == (
                401,
                "Unauthorized",
                "Unauthorized",
            )
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
