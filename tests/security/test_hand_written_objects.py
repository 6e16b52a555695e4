"""Objects that a tenant writes by hand where the controllers expect their own.

A controller that meets one MUST NOT fail unexpectedly, MUST NOT act on it again and again, and MUST issue
other Certificates as if it were not there. What the API server refuses cannot do harm; everything else is
stored before the healthy Certificate is, its status too.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certwright.kube.util.http_messages import Request
from controllers.acme.fake_world import fake_world
from issuers.authority import new_root
from support.world import ADMIN, World

Json = dict[str, Any]

VALUES: Final = (
    "",
    " ",
    "web",
    "web-1",
    "../../etc/passwd",
    "x" * 253,
    "-1",
    "0",
    "99999999999999999999999",
    "NaN",
    "true",
    "\u202eevil\n\x1b[31m",
    "{}",
    "[",
    "https://[::1",
    "file:///etc/passwd",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-02-30T25:61:61Z",
    "bm90IGEgY2VydGlmaWNhdGU=",
    base64.b64encode(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").decode(),
)
NUMBERS: Final = (-1, 0, 2**31 - 1, -(2**31))
ANNOTATIONS: Final = (
    "cert-manager.io/certificate-name",
    "cert-manager.io/certificate-revision",
    "cert-manager.io/private-key-secret-name",
    "cert-manager.io/issuer-name",
    "cert-manager.io/alt-names",
    "cert-manager.io/issue-temporary-certificate",
    "certwright.io/replaces",
    "certwright.io/spec-generation",
    "certwright.io/minimum-backoff",
)
TIMES: Final = ("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
ISSUER: Final = {"name": "acme", "kind": "ClusterIssuer"}
OWNER: Final = {
    "apiVersion": "cert-manager.io/v1",
    "kind": "Certificate",
    "name": "web",
    "uid": "00000000-0000-0000-0000-000000000000",
    "controller": True,
}
CERT_MANAGER, ACME = "/apis/cert-manager.io/v1", "/apis/acme.cert-manager.io/v1"

ALONE: Final = timedelta(seconds=1)
"""In which a Certificate becomes Ready when it is the only object."""


def signing_request(value: str) -> str:
    """A CSR that names the value where X.509 can: what is no CSR is refused by the API server."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value[:64] or "web")])
    names = x509.SubjectAlternativeName([x509.DNSName("web.example.com")])
    key = ec.generate_private_key(ec.SECP256R1())
    built = x509.CertificateSigningRequestBuilder(name).add_extension(names, critical=False)
    pem = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


def conditions(value: str) -> list[Json]:
    """Every condition that the controllers set, with one reason and message."""
    return [
        {"type": kind, "status": status, "reason": value or "None", "message": value}
        for kind, status in (
            ("Ready", "True"),
            ("Issuing", "True"),
            ("Approved", "True"),
            ("Denied", "False"),
        )
    ]


def certificate_requests() -> Iterator[tuple[str, Json]]:
    """With each value in each place of a CertificateRequest."""
    encoded = base64.b64encode
    for value, number in zip(VALUES, itertools.cycle(NUMBERS), strict=False):
        for owners in ([], [OWNER]):
            yield (
                f"{CERT_MANAGER}/namespaces/default/certificaterequests",
                {
                    "metadata": {
                        "annotations": dict.fromkeys(ANNOTATIONS, value),
                        "ownerReferences": owners,
                        "finalizers": ["example.com/kept"],
                    },
                    "spec": {"request": signing_request(value), "issuerRef": ISSUER},
                    "status": {
                        "conditions": conditions(value),
                        "certificate": encoded(value.encode()).decode(),
                        "ca": encoded(value.encode()).decode(),
                        "failureTime": TIMES[number % len(TIMES)],
                    },
                },
            )


def certificates() -> Iterator[tuple[str, Json]]:
    """With a status that no controller has written."""
    for value, number, time in zip(VALUES, itertools.cycle(NUMBERS), itertools.cycle(TIMES), strict=False):
        yield (
            f"{CERT_MANAGER}/namespaces/default/certificates",
            {
                "metadata": {"annotations": dict.fromkeys(ANNOTATIONS, value)},
                "spec": {"secretName": "web", "dnsNames": ["web.example.com"], "issuerRef": ISSUER},
                "status": {
                    "conditions": conditions(value),
                    "revision": number,
                    "failedIssuanceAttempts": number,
                    "nextPrivateKeySecretName": value,
                    **dict.fromkeys(("lastFailureTime", "notBefore", "notAfter", "renewalTime"), time),
                },
            },
        )


def orders() -> Iterator[tuple[str, Json]]:
    """With each value in each place of an Order."""
    for value, state in zip(
        VALUES, itertools.cycle(("", "pending", "ready", "valid", "processing")), strict=False
    ):
        yield (
            f"{ACME}/namespaces/default/orders",
            {
                "metadata": {
                    "annotations": dict.fromkeys(ANNOTATIONS, value),
                    "ownerReferences": [OWNER | {"kind": "CertificateRequest", "name": "web-1"}],
                },
                "spec": {
                    "request": signing_request(value),
                    "dnsNames": ["web.example.com", value or "web.example.com"],
                    "issuerRef": ISSUER,
                },
                "status": {
                    "state": state,
                    "url": value,
                    "finalizeURL": value,
                    "certificate": base64.b64encode(value.encode()).decode(),
                    "authorizations": [
                        {
                            "url": value,
                            "identifier": value,
                            "wildcard": True,
                            "challenges": [{"url": value, "token": value, "type": value or "http-01"}],
                        }
                    ],
                },
            },
        )


def challenges() -> Iterator[tuple[str, Json]]:
    """With each value in each place of a Challenge."""
    for value, kind in zip(VALUES, itertools.cycle(("HTTP-01", "DNS-01")), strict=False):
        yield (
            f"{ACME}/namespaces/default/challenges",
            {
                "metadata": {
                    "finalizers": ["acme.cert-manager.io/finalizer"],
                    "ownerReferences": [OWNER | {"apiVersion": "acme.cert-manager.io/v1", "kind": "Order"}],
                },
                "spec": {
                    "url": value,
                    "authorizationURL": value,
                    "dnsName": value or "web.example.com",
                    "type": kind,
                    "token": value,
                    "key": value,
                    "solver": {"http01": {"ingress": {}}},
                    "issuerRef": ISSUER,
                },
                "status": {"state": "pending", "processing": True, "presented": True, "reason": value},
            },
        )


def secrets() -> Iterator[tuple[str, Json]]:
    """With the labels and annotations of the controllers' own Secrets."""
    root = {key: base64.b64encode(text).decode() for key, text in new_root("Foreign").secret().items()}
    for value in VALUES:
        for content in ({}, {"tls.crt": "bm8=", "tls.key": "bm8="}, root):
            yield (
                "/api/v1/namespaces/default/secrets",
                {
                    "metadata": {
                        "labels": {
                            "controller.cert-manager.io/fao": "true",
                            "cert-manager.io/next-private-key": "true",
                        },
                        "annotations": dict.fromkeys(ANNOTATIONS, value),
                        "ownerReferences": [OWNER],
                    },
                    "data": content,
                },
            )


KINDS: Final = {
    "CertificateRequest": certificate_requests,
    "Certificate": certificates,
    "Order": orders,
    "Challenge": challenges,
    "Secret": secrets,
}


async def send(world: World, method: str, path: str, body: Json) -> int:
    """The status of the answer."""
    form = "application/merge-patch+json" if method == "PATCH" else "application/json"
    encoded = msgspec.json.encode(body)
    response = await world.server.handle(Request(method, path, {"content-type": form}, encoded, ADMIN))
    return response.status


async def store(world: World, kind: str) -> int:
    """Store every object of the kind that the API server accepts; how many it did."""
    accepted = 0
    for number, (path, body) in enumerate(KINDS[kind]()):
        name = f"by-hand-{number}"
        version = path.split("/namespaces/")[0].removeprefix("/apis/").removeprefix("/api/")
        obj = body | {"apiVersion": version, "kind": kind, "metadata": body["metadata"] | {"name": name}}
        if await send(world, "POST", path, obj) != 201:
            continue
        accepted += 1
        for part, content in obj.get("status", {}).items():  # One by one: a refused field hides no other.
            await send(world, "PATCH", f"{path}/{name}/status", {"status": {part: content}})
    return accepted


def unexpected(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged with a traceback."""
    return [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("kind", KINDS)
async def test_healthy_certificates_are_issued_beside_them_and_nothing_loops(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_world() as fake:
        await fake.issuer()
        accepted = await store(fake.world, kind)
        assert accepted > 0
        await fake.issue("healthy")
        await fake.world.advance(ALONE)
        assert await fake.world.is_ready("healthy"), await fake.message_of(name="healthy")
        await fake.world.advance(timedelta(hours=2))
        fake.world.recording.writes.clear()
        await fake.world.advance(timedelta(hours=6))
        assert len(fake.world.recording.object_writes()) <= accepted
        assert unexpected(caplog) == []
