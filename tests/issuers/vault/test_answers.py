"""What the `vault` issuer makes of answers that a healthy server does not give."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from certwright.issuers.contract import Failed, Outcome, Pending, ServerTools, Tools
from certwright.issuers.vault.issuer import Vault
from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerTls, ServerUnreachable
from certwright.kube.util.executor import Inline
from certwright.resources.causes import Cause
from certwright.resources.issuer import VaultAuth, VaultIssuer
from certwright.resources.references import SecretKeySelector
from conformance.check_issuer import Setup
from issuers.vault.conftest import view_of

SPEC = VaultIssuer(
    auth=VaultAuth(token_secret_ref=SecretKeySelector(name="token")),
    server="https://vault.example",
    path="pki/sign/web",
)


@dataclass
class Answering:
    """An `HttpClient` that gives one answer, or raises."""

    answer: HttpAnswer | ServerUnreachable
    urls: list[str] = field(default_factory=list)

    async def send(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> HttpAnswer:
        """See `HttpClient`."""
        del method, body, headers
        self.urls.append(url)
        if isinstance(self.answer, ServerUnreachable):
            raise self.answer
        return self.answer


@dataclass
class FakeSetup(Setup):
    """A `vault` issuer with such a client."""

    client: HttpClient | None = None

    @property
    def tools(self) -> Tools:
        """What the issuer may use."""
        return Tools(self.get_secret, Inline(), lambda: self.now, servers=self.servers())

    def servers(self) -> ServerTools:
        """Always the same client, and no tokens."""

        def client(_tls: ServerTls, _fix: str) -> HttpClient:
            assert self.client is not None
            return self.client

        async def no_token(account: str, _audiences: object) -> str:
            raise AssertionError(account)

        return ServerTools(
            client=client, get_token=no_token, trusted_client=lambda _rules: client(ServerTls(), "")
        )


async def outcome_of(answer: HttpAnswer | ServerUnreachable) -> tuple[Setup, Outcome]:
    setup = FakeSetup(Vault(), view_of(SPEC), {"token": {"token": b"t"}}, client=Answering(answer))
    return setup, await setup.sign(setup.request())


def answer(status: int, body: object, *headers: tuple[str, str]) -> HttpAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpAnswer(status, headers, content)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (answer(200, b"<html>secret page</html>"), "no JSON"),
        (answer(200, {"data": {}}), "without a certificate"),
        (answer(200, {"data": {"certificate": "nonsense"}}), "not a certificate chain"),
        (answer(200, b"[" * 100_000), "no JSON"),
        (answer(302, b"", ("location", "https://internal")), "answered 302"),
        (answer(503, {"errors": ["Vault is sealed"]}), "Vault is sealed"),
        (answer(500, b"<html>secret page</html>"), "answered 500"),
        (answer(403, {"errors": ["permission denied"]}), 'capabilities = ["update"]'),
        (answer(404, {"errors": []}), 'spec.vault.path of the issuer is "pki/sign/web"'),
        (answer(400, {"errors": ["unknown role: web"]}), 'spec.vault.path of the issuer is "pki/sign/web"'),
        (ServerUnreachable("https://vault.example cannot be reached"), "cannot be reached"),
    ],
)
async def test_what_is_not_about_the_request_is_tried_again(
    response: HttpAnswer | ServerUnreachable, words: str
) -> None:
    _, outcome = await outcome_of(response)
    assert isinstance(outcome, Pending)
    assert outcome.cause is Cause.UNAVAILABLE
    assert outcome.retry_after is not None, "a request without a circuit breaker would wait for ever"
    assert words in outcome.message
    assert "secret page" not in outcome.message


async def test_a_rate_limit_is_obeyed() -> None:
    setup, outcome = await outcome_of(answer(429, {"errors": ["slow down"]}, ("retry-after", "90")))
    assert isinstance(outcome, Pending)
    assert (outcome.cause, outcome.not_before) == (Cause.RATE_LIMITED, setup.now + timedelta(seconds=90))


async def test_another_refusal_is_about_the_request() -> None:
    _, outcome = await outcome_of(answer(400, {"errors": ["key type not allowed", 7, {"a": 1}]}))
    assert isinstance(outcome, Failed)
    assert outcome.cause is Cause.INVALID_REQUEST
    assert "key type not allowed" in outcome.message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (200, ""),
        (429, ""),
        (472, ""),
        (473, ""),
        (501, "is not initialized; run `vault operator init`"),
        (503, "is sealed; unseal it"),
        (500, "answers its health check with 500"),
    ],
)
async def test_the_health_check_distinguishes_the_states_of_a_server(status: int, words: str) -> None:
    setup = FakeSetup(
        Vault(), view_of(SPEC), {"token": {"token": b"t"}}, client=Answering(answer(status, {}))
    )
    assert isinstance(setup.issuer, Vault)
    problem = await setup.issuer.probe(setup.view, setup.tools)
    assert words in problem
    assert bool(problem) == bool(words)


async def test_a_ready_issuer_is_checked_again_after_an_hour_and_a_broken_one_after_seconds() -> None:
    allowed = answer(200, {"capabilities": ["update"], "data": {"type": "pki"}})
    setup = FakeSetup(Vault(), view_of(SPEC), {"token": {"token": b"t"}}, client=Answering(allowed))
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert (checked.ready, checked.retry_after) == (True, timedelta(hours=1))
    setup.client = Answering(answer(503, {}))
    checked = await Vault().check(setup.view, setup.tools)
    assert (checked.ready, checked.retry_after) == (False, timedelta(seconds=15))
