"""What the failure of an Order, or a request that cannot be ordered, means for the next attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from certwright.acme.protocol.client import Registry
from certwright.acme.protocol.errors import Problem
from certwright.acme.protocol.messages import TlsOptions, Transport
from certwright.issuers.acme import ACME
from certwright.issuers.contract import AcmeTools, Failed, Outcome, Pending, SigningRequest, Tools
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.executor import Inline
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.acme import Order, OrderSpec, OrderStatus
from certwright.resources.causes import Cause
from certwright.resources.issuer import ACMEIssuer, IssuerSpec
from certwright.resources.names import ACME_PROBLEM
from certwright.resources.references import IssuerReference, SecretKeySelector
from certwright.resources.request import CertificateRequest, CertificateRequestSpec
from issuers.conftest import view
from support.world import START

KEY = generate(KeyPlan.of("ECDSA"))
SPEC = IssuerSpec(
    acme=ACMEIssuer(
        server="https://ca.example/directory", private_key_secret_ref=SecretKeySelector(name="account")
    )
)


async def sign(status: OrderStatus, problem: str = "", **plan: Any) -> Outcome:
    """The issuer's answer to a request whose Order is in that state, by a problem of that type."""
    csr = build_csr(CsrPlan(**(plan or {"dns_names": ("web.example.com",)})), KEY)
    reference = IssuerReference(name="my-issuer")
    request = CertificateRequest(spec=CertificateRequestSpec(issuer_ref=reference, request=csr))

    async def ensure_order(_request: CertificateRequest, spec: OrderSpec) -> Order:
        annotations = {ACME_PROBLEM: problem} if problem else {}
        meta = ObjectMeta(name="web-1-1", namespace="default", annotations=annotations)
        return Order(metadata=meta, spec=spec, status=status)

    async def nothing(_name: str) -> Mapping[str, bytes] | None:
        return None

    async def keep(_name: str, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return data

    def no_transport(_: TlsOptions) -> Transport:
        raise AssertionError("an Order is looked at, not the server")

    acme = AcmeTools(
        registry=Registry(no_transport, now=lambda: START), create_secret=keep, ensure_order=ensure_order
    )
    tools = Tools(get_secret=nothing, executor=Inline(), now=lambda: START, acme=acme)
    return await ACME().sign(view(SPEC), SigningRequest(request, nothing), tools)


def says(kind: str) -> str:
    """An Order's reason, as it is made of a server's problem."""
    return Problem(type=f"urn:ietf:params:acme:error:{kind}", detail="we do not like it").sentence


@pytest.mark.parametrize(
    ("kind", "cause", "field"),
    [
        ("rejectedIdentifier", Cause.INVALID_REQUEST, "spec.dnsNames"),
        ("unsupportedIdentifier", Cause.INVALID_REQUEST, "spec.ipAddresses"),
        ("badPublicKey", Cause.INVALID_REQUEST, "spec.privateKey"),
        ("badCSR", Cause.INVALID_REQUEST, "spec.dnsNames"),
        ("invalidProfile", Cause.INVALID_REQUEST, "spec.acme.profile"),
        ("rateLimited", Cause.RATE_LIMITED, ""),
        ("serverInternal", Cause.UNAVAILABLE, ""),
        # Mended outside of the spec: a record, a firewall, a web server.
        ("dns", Cause.UNKNOWN, ""),
        ("connection", Cause.UNKNOWN, ""),
        ("unauthorized", Cause.UNKNOWN, ""),
        ("caa", Cause.UNKNOWN, ""),
        ("tomorrowsType", Cause.UNKNOWN, ""),
    ],
)
async def test_the_type_of_the_problem_is_the_cause(kind: str, cause: Cause, field: str) -> None:
    outcome = await sign(OrderStatus(state="errored", reason=says(kind)), problem=kind)
    assert isinstance(outcome, Failed)
    assert outcome.cause is cause
    assert field in outcome.advice


@pytest.mark.parametrize("kind", ["rateLimited", "serverInternal"])
async def test_an_order_that_waits_for_its_server_says_so(kind: str) -> None:
    outcome = await sign(OrderStatus(state="pending", reason=says(kind)))
    assert isinstance(outcome, Pending)
    assert outcome.message.endswith(says(kind))


async def test_an_order_that_goes_on_is_not_told() -> None:
    outcome = await sign(OrderStatus(state="pending"))
    assert isinstance(outcome, Pending)
    assert not outcome.is_announced


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"common_name": "other.example.com", "dns_names": ("web.example.com",)}, "spec.commonName"),
        ({"email_addresses": ("a@example.com",), "dns_names": ("web.example.com",)}, "spec.emailAddresses"),
        ({"uris": ("spiffe://x",)}, "spec.dnsNames"),
    ],
)
async def test_what_acme_cannot_prove_names_the_field(plan: dict[str, Any], field: str) -> None:
    outcome = await sign(OrderStatus(), **plan)
    assert isinstance(outcome, Failed)
    assert outcome.cause is Cause.INVALID_REQUEST
    assert field in outcome.advice
