"""What every kind of issuer must do, whatever signs behind it.

A test of an implementation makes a `Setup` and runs each of `CHECKS` on a fresh one:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_it_behaves_as_an_issuer(check, setup): await check(setup)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

from msgspec.structs import replace

from certwright.issuers.contract import (
    Failed,
    Issuer,
    IssuerView,
    Outcome,
    Pending,
    Signed,
    SigningRequest,
    Tools,
)
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.executor import Inline
from certwright.pki import chain
from certwright.pki.certificates import read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, PrivateKey, encode_private_key, generate, public_key_der
from certwright.resources.names import PRIVATE_KEY_SECRET_NAME
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, CertificateRequestSpec

KEY_SECRET = "next-key"
PLAN = CsrPlan(common_name="web", dns_names=("web.example",), usages=("server auth", "digital signature"))

T = TypeVar("T", Signed, Failed, Pending)
Secrets = dict[str, dict[str, bytes]]


@dataclass
class Setup:
    """An implementation, an issuer of its kind that can sign, and the Secrets that it needs for it."""

    issuer: Issuer
    view: IssuerView
    secrets: Secrets = field(default_factory=dict)
    now: datetime = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)

    async def get_secret(self, name: str) -> Mapping[str, bytes] | None:
        """The data of a Secret; the issuer's and the request's lie in one namespace here."""
        return self.secrets.get(name)

    @property
    def tools(self) -> Tools:
        """What the issuer may use."""
        return Tools(get_secret=self.get_secret, executor=Inline(), now=lambda: self.now)

    def request(self, plan: CsrPlan = PLAN, *, key: PrivateKey | None = None) -> SigningRequest:
        """An approved request for `plan`, whose key lies in the Secret that its annotation names."""
        key = key or generate(KeyPlan.of("ECDSA"))
        self.secrets[KEY_SECRET] = {"tls.key": encode_private_key(key)}
        return self.request_with(build_csr(plan, key), plan)

    def request_with(self, csr_pem: bytes, plan: CsrPlan = PLAN) -> SigningRequest:
        """The same with any bytes for a CSR."""
        request = CertificateRequest(
            metadata=ObjectMeta(
                name="web-1", namespace="default", annotations={PRIVATE_KEY_SECRET_NAME: KEY_SECRET}
            ),
            spec=CertificateRequestSpec(
                issuer_ref=IssuerReference(name=self.view.name, kind=self.view.kind),
                request=csr_pem,
                duration="24h",
                is_ca=plan.is_ca,
                usages=plan.usages,
            ),
        )
        return SigningRequest(request, self.get_secret)

    async def sign(self, signing: SigningRequest) -> Outcome:
        """The outcome for that request."""
        return await self.issuer.sign(self.view, signing, self.tools)

    async def outcome(self, kind: type[T], signing: SigningRequest | None) -> T:
        """The outcome for that request or a new one, which must be of this kind."""
        outcome = await self.sign(signing or self.request())
        assert isinstance(outcome, kind), outcome
        return outcome

    async def signed(self, signing: SigningRequest | None = None) -> Signed:
        """What is signed."""
        return await self.outcome(Signed, signing)

    async def failed(self, signing: SigningRequest | None = None) -> Failed:
        """Why the request can never succeed."""
        return await self.outcome(Failed, signing)

    async def pending(self, signing: SigningRequest | None = None) -> Pending:
        """What the request waits for."""
        return await self.outcome(Pending, signing)


async def a_good_issuer_is_ready(setup: Setup) -> None:
    """…and says so the same way each time it is asked."""
    first = await setup.issuer.check(setup.view, setup.tools)
    assert first.ready, first.message
    assert first.reason
    assert set(first.secrets) <= set(setup.secrets)
    assert await setup.issuer.check(setup.view, setup.tools) == first


async def it_signs_what_was_asked_for(setup: Setup) -> None:
    """Names, usages, key, dates; leaf first, and each certificate signed by the next."""
    key = generate(KeyPlan.of("ECDSA"))
    outcome = await setup.sign(setup.request(key=key))
    assert isinstance(outcome, Signed), outcome
    certificates = read_chain(outcome.chain_pem)
    leaf = certificates[0]
    assert leaf.public_key_der == public_key_der(key)
    assert (leaf.common_name, leaf.dns_names, leaf.is_ca) == ("web", ("web.example",), False)
    assert leaf.usages == ("digital signature", "server auth")
    assert leaf.not_before <= setup.now < leaf.not_after <= setup.now + timedelta(hours=24)
    for child, parent in pairwise(certificates):
        assert chain.is_issued_by(child, parent)


async def it_signs_again_when_it_is_asked_again(setup: Setup) -> None:
    """A controller that crashed before it wrote the answer down asks once more."""
    signing = setup.request()
    first, second = await setup.sign(signing), await setup.sign(signing)
    assert isinstance(first, Signed)
    assert isinstance(second, Signed)
    keys = [read_chain(outcome.chain_pem)[0].public_key_der for outcome in (first, second)]
    assert keys[0] == keys[1]


async def the_ca_it_names_is_where_the_chain_ends(setup: Setup) -> None:
    """…so that a client that trusts `ca.crt` accepts `tls.crt`."""
    outcome = await setup.sign(setup.request())
    assert isinstance(outcome, Signed)
    if outcome.ca_pem:
        top, ca = read_chain(outcome.chain_pem)[-1], read_chain(outcome.ca_pem)[0]
        assert top == ca or chain.is_issued_by(top, ca)


async def without_its_secrets_it_waits_and_says_for_what(setup: Setup) -> None:
    """A Secret may come a moment later: no failure, and no exception."""
    signing = setup.request()
    needed = list(setup.secrets)
    setup.secrets.clear()
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert checked.ready or checked.message
    outcome = await setup.sign(signing)
    if needed:
        assert isinstance(outcome, Pending), outcome
        assert set(outcome.secrets) & set(needed)
        assert any(name in outcome.message for name in outcome.secrets)


async def secrets_full_of_nonsense_are_no_exception(setup: Setup) -> None:
    """Whatever lies in a Secret: a typed outcome with a sentence."""
    signing = setup.request()
    original = {name: dict(data) for name, data in setup.secrets.items()}
    for nonsense in (b"", b"\xff\x00", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        for name, data in original.items():
            for key in data:
                setup.secrets = {n: dict(d) for n, d in original.items()}
                setup.secrets[name][key] = nonsense
                checked = await setup.issuer.check(setup.view, setup.tools)
                assert checked.ready or checked.message
                outcome = await setup.sign(signing)
                assert isinstance(outcome, Signed) or outcome.message
    setup.secrets = {name: {} for name in original}
    assert not isinstance(await setup.sign(signing), Signed) or not original


async def a_request_that_cannot_be_signed_fails_for_good(setup: Setup) -> None:
    """Garbage, a forged signature, and a contradiction between the CSR and the request around it."""
    good = setup.request()
    usages = replace(PLAN, usages=("client auth",))
    contradiction = setup.request_with(good.request.spec.request, usages)
    for signing in (setup.request_with(b"nonsense"), setup.request_with(b""), contradiction):
        outcome = await setup.sign(signing)
        assert isinstance(outcome, Failed), outcome
        assert outcome.reason
        assert outcome.message


async def no_outcome_shows_a_private_key(setup: Setup) -> None:
    """Neither what it answers nor what it keeps can be printed into a log by accident."""
    outcomes: list[object] = [
        await setup.sign(setup.request()),
        await setup.issuer.check(setup.view, setup.tools),
    ]
    setup.secrets = {name: {"tls.key": data["tls.key"][:-40]} for name, data in setup.secrets.items()}
    outcomes += [await setup.sign(setup.request()), await setup.issuer.check(setup.view, setup.tools)]
    for printed in map(repr, [*outcomes, setup.issuer, setup.request()]):
        assert "PRIVATE KEY" not in printed


CHECKS: tuple[Callable[[Setup], Awaitable[None]], ...] = (
    a_good_issuer_is_ready,
    it_signs_what_was_asked_for,
    it_signs_again_when_it_is_asked_again,
    the_ca_it_names_is_where_the_chain_ends,
    without_its_secrets_it_waits_and_says_for_what,
    secrets_full_of_nonsense_are_no_exception,
    a_request_that_cannot_be_signed_fails_for_good,
    no_outcome_shows_a_private_key,
)
