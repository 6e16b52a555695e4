from __future__ import annotations

import msgspec
import pytest

from certwright.kube.client import discovery
from certwright.kube.client.discovery import UnknownKind
from certwright.kube.util.http_messages import Request, Response
from kube.client.peers import Peer


def resource(name: str, kind: str, *short: str, namespaced: bool = True) -> dict[str, object]:
    return {
        "name": name,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": namespaced,
        "shortNames": short,
    }


def group(name: str, *versions: str) -> dict[str, object]:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


ANSWERS: dict[str, object] = {
    "/apis": {
        "groups": [
            group("cert-manager.io", "v1"),
            group("broken.example.com", "v1"),
            group("other.example.com", "v2", "v1"),
        ]
    },
    "/api/v1": {
        "resources": [
            resource("secrets", "Secret"),
            resource("namespaces", "Namespace", "ns", namespaced=False),
            resource("namespaces/status", "Namespace"),
        ]
    },
    "/apis/cert-manager.io/v1": {
        "resources": [
            resource("certificates", "Certificate", "cert", "certs"),
            resource("certificates/status", "Certificate"),
            resource("certificaterequests", "CertificateRequest", "cr"),
        ]
    },
    "/apis/other.example.com/v2": {"resources": [resource("certificates", "Certificate", "secrets")]},
    "/apis/other.example.com/v1": {"resources": [resource("oldthings", "OldThing")]},
}


class Server(Peer):
    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        if "broken" in request.target:
            return Response(503, {}, b"{}")
        answer = ANSWERS.get(request.target)
        return Response(404, {}, b"{}") if answer is None else Response(200, {}, msgspec.json.encode(answer))


@pytest.mark.parametrize(
    ("word", "resource"),
    [
        ("secrets", "secrets"),
        ("secret", "secrets"),
        ("Secret", "secrets"),
        ("ns", "namespaces"),
        ("certificates", "certificates.cert-manager.io"),
        ("cert", "certificates.cert-manager.io"),
        ("CertificateRequest", "certificaterequests.cert-manager.io"),
        ("certificate.cert-manager.io", "certificates.cert-manager.io"),
        ("certificates.other.example.com", "certificates.other.example.com"),
        ("certificates.v1.cert-manager.io", "certificates.cert-manager.io"),
        ("oldthings.v1.other.example.com", "oldthings.other.example.com"),
    ],
)
async def test_a_word_means_a_kind(word: str, resource: str) -> None:
    assert (await discovery.resolve(Server().client(), word)).resource == resource


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("certificat", 'the server has no kind "certificat"; did you mean "certificate"?'),
        ("pods", 'the server has no kind "pods"'),
        (
            "certificates.cert-manager.oi",
            'the server has no kind "certificates.cert-manager.oi"; did you mean '
            '"certificates.cert-manager.io"?',
        ),
    ],
)
async def test_an_unknown_word_is_answered_with_what_may_have_been_meant(word: str, sentence: str) -> None:
    with pytest.raises(UnknownKind) as caught:
        await discovery.resolve(Server().client(), word)
    assert str(caught.value) == sentence


async def test_a_manifest_names_its_kind() -> None:
    client = Server().client()
    kind = await discovery.kind_for(client, "cert-manager.io/v1", "Certificate")
    assert (kind.plural, kind.namespaced, kind.short_names) == ("certificates", True, ("cert", "certs"))
    assert not (await discovery.kind_for(client, "v1", "Namespace")).namespaced


@pytest.mark.parametrize(
    ("api_version", "kind", "sentence"),
    [
        (
            "cert-manager.io/v1",
            "Certificat",
            '"Certificat" in cert-manager.io/v1; did you mean "Certificate"?',
        ),
        ("cert-manager.io/v1alpha2", "Certificate", 'that version; did you mean "cert-manager.io/v1"?'),
        ("zzz", "Certificate", 'the server has no kind "Certificate" in zzz'),
        ("trust.cert-manager.io/v1alpha1", "Bundle", 'no kind "Bundle" in trust.cert-manager.io/v1alpha1|'),
    ],
)
async def test_a_manifest_of_an_unknown_kind(api_version: str, kind: str, sentence: str) -> None:
    with pytest.raises(UnknownKind) as caught:
        await discovery.kind_for(Server().client(), api_version, kind)
    # "|": nothing follows.
    assert sentence in f"{caught.value}|"


async def test_all_kinds_in_their_preferred_version_without_the_group_that_is_down() -> None:
    kinds = await discovery.all_resources(Server().client())
    assert [f"{kind.resource}@{kind.version}" for kind in kinds] == [
        "secrets@v1",
        "namespaces@v1",
        "certificates.cert-manager.io@v1",
        "certificaterequests.cert-manager.io@v1",
        "certificates.other.example.com@v2",
    ]
