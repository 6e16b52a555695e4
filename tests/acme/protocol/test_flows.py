"""The flows without a network: what they send, and how they take odd answers."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from acme.protocol.clients import NOW, answer, new_key, opened, session, unb64
from certwright.acme.protocol import account, challenges, exchange, orders
from certwright.acme.protocol.errors import Identifier, NotAcme, Refused
from certwright.acme.protocol.exchange import Directory, post
from certwright.acme.protocol.jws import AccountKey, read_mac_key
from certwright.acme.protocol.messages import Action, Flow, Request, Response
from certwright.pki import keys
from certwright.pki.errors import BadKey
from issuers.authority import new_root


def refused(name: str, status: int = 400, **headers: str) -> Response:
    """A refusal of that type."""
    return answer(status, {"type": f"urn:ietf:params:acme:error:{name}", "detail": "no"}, **headers)


def drive(flow: Flow[Any], *answers: Response) -> tuple[Any, list[Request]]:
    """What the flow returns when it gets these answers, and what it asked."""
    asked: list[Request] = []
    given = iter(answers)
    try:
        request = next(flow)
        while True:
            asked.append(request if isinstance(request, Request) else request.with_body(request.sign()))
            request = flow.send(next(given))
    except StopIteration as end:
        assert next(given, None) is None, "an answer was not asked for"
        return end.value, asked


def test_a_nonce_is_asked_for_once_and_then_comes_with_each_answer() -> None:
    acme_session = session()
    _, asked = drive(
        post(acme_session, Action.ORDER, "https://ca/o/1"),
        answer(replay_nonce="n1"),
        answer(replay_nonce="n2"),
    )
    assert [call.method for call in asked] == ["HEAD", "POST"]
    header, payload, _ = opened(asked[1].body)
    assert header == {"alg": "ES256", "nonce": "n1", "url": "https://ca/o/1", "kid": "https://ca/account/1"}
    assert payload == b""
    _, asked = drive(post(acme_session, Action.ORDER, "https://ca/o/1", {"a": 1}), answer())
    header, payload, _ = opened(asked[0].body)
    assert header["nonce"] == "n2"
    assert json.loads(payload) == {"a": 1}


def test_a_refused_nonce_is_replaced_at_once_by_the_one_that_came_with_the_refusal() -> None:
    acme_session = session()
    _, asked = drive(
        post(acme_session, Action.ORDER, "https://ca/o/1"),
        answer(replay_nonce="n1"),
        refused("badNonce", replay_nonce="n2"),
        refused("badNonce", replay_nonce="n3"),
        answer(),
    )
    assert [opened(call.body)[0]["nonce"] for call in asked[1:]] == ["n1", "n2", "n3"]


def test_a_server_that_refuses_every_nonce_is_given_up() -> None:
    acme_session = session()
    answers = [answer(replay_nonce="n"), *[refused("badNonce", replay_nonce="n")] * 5]
    with pytest.raises(NotAcme, match="refused 5 fresh nonces"):
        drive(post(acme_session, Action.ORDER, "https://ca/o/1"), *answers)


def test_the_signature_is_that_of_the_key() -> None:
    private = keys.generate(keys.KeyPlan.of("ECDSA", 256))
    key = AccountKey(private)
    header, payload, document = opened(key.sign({"nonce": "n", "jwk": key.public}, b"{}"))
    signature = unb64(document["signature"])
    raw = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
    public = private.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    signed = f"{document['protected']}.{document['payload']}".encode()
    public.verify(raw, signed, ec.ECDSA(hashes.SHA256()))
    assert set(header["jwk"]) == {"crv", "kty", "x", "y"}
    assert payload == b"{}"
    assert unb64(key.thumbprint)
    assert "d" not in key.public


def test_a_key_is_never_shown() -> None:
    key = new_key("RSA", 2048)
    assert repr(key) == f"AccountKey(RS256, thumbprint {key.thumbprint})"


def test_a_mac_key_is_read_in_the_forms_that_people_paste() -> None:
    plain = read_mac_key(b"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY")
    assert plain == b"0123456789abcdef0123456789abcdef"
    assert read_mac_key(b" MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n") == plain
    assert read_mac_key(b"a2lkLXNlY3JldC0x") == b"kid-secret-1"
    for wrong in (b"", b" ==\n", b"not base64 at all!", b"\xff"):
        with pytest.raises(BadKey):
            read_mac_key(wrong)


def test_registering_agrees_to_the_terms_and_shows_the_key() -> None:
    acme_session = session(kid="old")
    made, asked = drive(
        account.register(acme_session, ["mailto:a@b"]),
        answer(replay_nonce="n"),
        answer(201, {"status": "valid", "odd": 1}, location="https://ca/account/7"),
    )
    header, payload, _ = opened(asked[1].body)
    assert "kid" not in header
    assert json.loads(payload) == {"termsOfServiceAgreed": True, "contact": ["mailto:a@b"]}
    assert acme_session.kid == made.url == "https://ca/account/7"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("999999999999", 365 * 86400),
        ("-5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: int | None) -> None:
    retry_after = answer(retry_after=text).retry_after
    assert retry_after == (None if seconds is None else NOW + timedelta(seconds=seconds))


def test_a_refusal_carries_the_moment_that_the_server_named() -> None:
    with pytest.raises(Refused) as error:
        drive(
            orders.new_order(session(), [Identifier("dns", "a")]),
            answer(replay_nonce="n"),
            refused("rateLimited", 429, retry_after="3600"),
        )
    assert error.value.retry_after == NOW + timedelta(hours=1)


def test_an_order_of_tomorrow_is_read() -> None:
    body = {
        "status": "pondering",
        "finalize": "https://ca/f",
        "identifiers": [{"type": "onion", "value": "x"}, 5],
        "authorizations": ["https://ca/a/1", None],
        "expires": "2026-02-01T00:00:00Z",
        "error": {"type": "urn:ietf:params:acme:error:caa", "detail": "no"},
        "news": True,
    }
    order, _ = drive(
        orders.fetch_order(session(), "https://ca/o"),
        answer(replay_nonce="n"),
        answer(200, body, retry_after="5"),
    )
    assert order.status == "pondering"
    assert order.identifiers == (Identifier("onion", "x"),)
    assert order.authorizations == ("https://ca/a/1",)
    assert order.error.name == "caa"
    assert order.retry_after == NOW + timedelta(seconds=5)


@pytest.mark.parametrize("body", [b"<html>502</html>", b"", b"[]", b"{}", {"status": "pending"}])
def test_an_answer_that_is_no_order_is_told_as_such(body: Any) -> None:
    with pytest.raises(NotAcme, match="https://ca/"):
        drive(orders.fetch_order(session(), "https://ca/o"), answer(replay_nonce="n"), answer(200, body))


def test_a_new_order_without_a_place_is_refused() -> None:
    body = {"status": "pending", "finalize": "https://ca/f"}
    with pytest.raises(NotAcme, match="Location"):
        drive(orders.new_order(session(), []), answer(replay_nonce="n"), answer(201, body))


@pytest.mark.parametrize("body", [{}, {"newNonce": "x"}, {"newNonce": 1, "newAccount": "a", "newOrder": "o"}])
def test_a_page_that_is_no_directory_is_told_as_such(body: Any) -> None:
    with pytest.raises(NotAcme, match="is not an ACME directory"):
        drive(exchange.fetch_directory("https://ca/dir"), answer(200, body))


def test_a_proxys_refusal_becomes_a_problem() -> None:
    with pytest.raises(Refused, match="503"):
        drive(exchange.fetch_directory("https://ca/dir"), answer(503, b"<html>busy</html>"))


def test_an_authorization_tells_the_error_of_its_challenge() -> None:
    body = {
        "status": "invalid",
        "identifier": {"type": "dns", "value": "a.org"},
        "wildcard": True,
        "challenges": [
            {"type": "http-01", "url": "u1", "token": "t1", "status": "pending"},
            {"type": "dns-01", "url": "u2", "token": "t2", "status": "invalid", "error": {"detail": "why"}},
        ],
    }
    authorization, _ = drive(
        orders.fetch_authorization(session(), "https://ca/a"),
        answer(replay_nonce="n"),
        answer(200, body),
    )
    assert authorization.wildcard
    assert authorization.error.detail == "why"
    assert [challenge.token for challenge in authorization.challenges] == ["t1", "t2"]


@pytest.mark.parametrize(
    "window",
    [
        None,
        {},
        {"start": "2026-01-02T00:00:00Z"},
        {"start": "2026-01-02T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
        {"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
        {"start": "yesterday", "end": "tomorrow"},
    ],
)
def test_a_window_without_sense_is_no_window(window: Any) -> None:
    places = Directory("d", "n", "a", "o", renewal_info="https://ca/ri/")
    with pytest.raises(NotAcme):
        drive(orders.fetch_renewal_info(places, "id"), answer(200, {"suggestedWindow": window}))


def test_a_chain_with_a_private_key_is_refused_and_another_is_made_anew() -> None:
    ca, nonce = new_root("Issuing CA"), answer(replay_nonce="n1")
    extra = b"-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n"
    with pytest.raises(NotAcme, match=r"only certificates are accepted"):
        drive(orders.download(session(), "https://ca/c"), nonce, answer(200, ca.pem + extra))
    spelled = b"issued for you\r\n" + ca.pem.replace(b"\n", b"\r\n")
    downloaded, _ = drive(orders.download(session(), "https://ca/c"), nonce, answer(200, spelled))
    assert downloaded.pem == ca.pem


def test_what_is_shown_where() -> None:
    # The example of RFC 8555 §8.1 has no digest; computed once with openssl.
    assert challenges.dns_name("example.org") == "_acme-challenge.example.org"
    # draft-ietf-acme-dns-account-label, its example.
    url = "https://example.com/acme/acct/ExampleAccount"
    assert challenges.dns_account_name("example.org", url) == "_ujmmovf2vn55tgye._acme-challenge.example.org"
    assert challenges.server_name("2001:db8::1").endswith(".ip6.arpa")
    assert challenges.server_name("192.0.2.1") == "1.2.0.192.in-addr.arpa"
    assert challenges.server_name("a.org") == "a.org"


def test_links_are_read_by_their_relation() -> None:
    response = Response(
        200,
        (
            ("link", '<https://ca/dir>;rel="index"'),
            ("link", '<https://ca/c/1,2>; rel="alternate", <https://ca/c/3>;rel=alternate'),
        ),
        b"",
        "u",
        NOW,
    )
    assert response.links("alternate") == ["https://ca/c/1,2", "https://ca/c/3"]
    assert response.links("up") == []
