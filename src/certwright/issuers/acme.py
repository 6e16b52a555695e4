"""The `acme` issuer: an account at an ACME server (RFC 8555). Signing creates an Order and waits for it.

The ACME client is imported only if such an issuer exists, because it costs 25 MB.

Source: cert-manager `pkg/issuer/acme/setup.go` and `pkg/controller/certificaterequests/acme/acme.go` (reasons
and messages).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol.errors import PROBLEM_TYPES, Fault
from certwright.issuers import acme_account
from certwright.issuers.contract import (
    Checked,
    Failed,
    IssuerView,
    OrderChanged,
    Outcome,
    Pending,
    Signed,
    SigningRequest,
    SolverProblem,
    Tools,
)
from certwright.kit.outgoing import BadUrl, parse_server_url, quote
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrFacts, read_csr
from certwright.pki.errors import PkiError
from certwright.pki.sans import canonical_dns_name
from certwright.resources import reasons
from certwright.resources.acme import Order, order_spec
from certwright.resources.causes import Cause
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.names import ACME_PROBLEM
from certwright.resources.reasons import SOLVERS_NOT_VERIFIED

_OLD_SERVERS = ("acme-v01.api.letsencrypt.org", "acme-staging.api.letsencrypt.org")
_CHANGED_ORDER_RETRY = timedelta(minutes=10)

_CAUSES = {
    Fault.REQUEST: Cause.INVALID_REQUEST,
    Fault.LIMIT: Cause.RATE_LIMITED,
    Fault.SERVER: Cause.UNAVAILABLE,
}
"""Causes of a failed Order. The others are corrected outside of the spec: a DNS record, a firewall."""
_SHORTEST_RETRY = timedelta(seconds=1)
_MOST_SHOWN = 3


class ACME(msgspec.Struct, frozen=True):
    """Registers the ACME account, and orders certificates with it."""

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        """Whether the issuer has an account that can place orders."""
        spec = issuer.spec.acme
        assert spec is not None
        if (wrong := _wrong_url(spec)) is not None:
            return wrong
        if tools.acme is None:
            return Checked(
                ready=False, reason="InvalidConfig", message="ACME is switched off in this process"
            )
        checked = await acme_account.check(issuer, spec, tools, tools.acme)
        verify = tools.acme.verify_solvers
        if not checked.ready or verify is None:
            return checked
        return with_solvers(checked, spec, await verify(issuer, tools.get_secret), tools.now())

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """Create the Order if missing, and report its outcome."""
        request, spec = signing.request, issuer.spec.acme
        assert spec is not None
        try:
            csr = read_csr(request.spec.request)
        except PkiError as error:
            text = f"Failed to decode CSR in spec: {error}"
            return Failed("RequestParsingError", text, cause=Cause.INVALID_REQUEST)
        if (wrong := _not_orderable(csr)) is not None:
            return wrong
        if tools.acme is None:
            return Pending("OrderPending", "ACME is switched off in this process")
        wanted = order_spec(
            request, spec, common_name=csr.common_name, dns_names=csr.dns_names, ip_addresses=csr.ip_addresses
        )
        try:
            order = await tools.acme.ensure_order(request, wanted)
        except OrderChanged as changed:
            return Pending("OrderChanged", str(changed), retry_after=_CHANGED_ORDER_RETRY)
        return _outcome(order, csr)


def _wrong_url(spec: ACMEIssuer) -> Checked | None:
    try:
        host = parse_server_url(spec.server).hostname
    except BadUrl as error:
        uri = quote(spec.server)
        text = f'Failed to parse existing ACME server URI "{uri}": it {error} in spec.acme.server'
        return Checked(ready=False, reason="InvalidURL", message=text)
    if host in _OLD_SERVERS:
        text = (
            f"Your ACME server URL is set to a v1 endpoint ({spec.server}). You should update the "
            "spec.acme.server field to https://acme-v02.api.letsencrypt.org/directory"
        )
        return Checked(ready=False, reason="InvalidConfig", message=text)
    return None


def _not_orderable(csr: CsrFacts) -> Failed | None:
    if csr.is_ml_dsa:
        text = "ACME issuers do not order certificates for ML-DSA keys, which no public CA signs"
        return _impossible(text, "change spec.privateKey.algorithm to RSA or ECDSA, or use a CA issuer")
    names = (*csr.dns_names, *csr.ip_addresses)
    if csr.common_name and canonical_dns_name(csr.common_name) not in map(canonical_dns_name, names):
        return _impossible(
            "The CSR PEM requests a commonName that is not present in the list of dnsNames or ipAddresses. "
            "If a commonName is set, ACME requires that the value is also present in the list of dnsNames or "
            f'ipAddresses: "{csr.common_name}" does not exist in [{" ".join(csr.dns_names)}] or '
            f"[{' '.join(csr.ip_addresses)}]",
            f'add "{csr.common_name}" to spec.dnsNames, or take spec.commonName out',
        )
    if not names:
        text = "ACME proves DNS names and IP addresses; the request has neither"
        return _impossible(text, "add spec.dnsNames or spec.ipAddresses")
    for name in csr.dns_names:
        if name.endswith(".") or "*" in name.removeprefix("*."):
            text = f'"{name}" cannot be a name in an ACME order (RFC 8555 §7.1.3)'
            return _impossible(
                text, "change spec.dnsNames: no final dot, and * only as the whole first label"
            )
    if csr.email_addresses or csr.uris:
        others = ", ".join((*csr.email_addresses, *csr.uris))
        text = f"ACME proves DNS names and IP addresses only, not {others}"
        return _impossible(text, "take spec.emailAddresses and spec.uris out")
    return None


def _impossible(message: str, advice: str) -> Failed:
    return Failed("InvalidOrder", message, cause=Cause.INVALID_REQUEST, advice=advice)


def _outcome(order: Order, csr: CsrFacts) -> Outcome:
    status, name = order.status, order.metadata.name
    if status.state == "valid" and status.certificate:
        try:
            leaf: CertificateFacts = read_certificate(order.status.certificate)
        except PkiError as error:
            return Failed("OrderFailed", f"the order holds something that is not a certificate: {error}")
        if leaf.public_key_der != csr.public_key_der:
            return Failed("OrderFailed", "the order holds a certificate for another key")
        return Signed(order.status.certificate)
    if status.state in reasons.FINAL_STATES and status.state != "valid":
        why = f": {status.reason}" if status.reason else ""
        text = (
            f'Failed to wait for order resource "{name}" to become ready: order is in "{status.state}" state'
        )
        cause, advice = _cause_of(order, csr)
        return Failed("OrderFailed", text + why, cause=cause, advice=advice)
    text = f"Waiting on certificate issuance from order {order.metadata.namespace}/{name}"
    if not status.reason:
        return Pending("OrderPending", text, is_announced=False)
    return Pending("OrderPending", f"{text}: {status.reason}")


def _cause_of(order: Order, csr: CsrFacts) -> tuple[Cause, str]:
    """The cause of a failed Order, and what to do about it."""
    kind = order.metadata.annotations.get(ACME_PROBLEM, "")
    if kind == "malformed" and any("_" in name for name in csr.dns_names):
        # Public CAs refuse such names (RFC 5280 §4.2.1.6, "preferred name syntax"); private ones may not.
        return Cause.INVALID_REQUEST, "change spec.dnsNames: this CA refuses names with _"
    known = PROBLEM_TYPES.get(kind)
    return (
        (_CAUSES.get(known.fault, Cause.UNKNOWN), known.advice) if known is not None else (Cause.UNKNOWN, "")
    )


def with_solvers(
    account: Checked, spec: ACMEIssuer, problems: Sequence[SolverProblem], now: datetime
) -> Checked:
    """The verdict on an issuer whose account is ready. It is not Ready if no solver can be used; the others
    serve the names that they are for, and the message has the problems."""
    if not problems:
        return account
    shown = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:_MOST_SHOWN])
    if more := len(problems) - _MOST_SHOWN if len(problems) > _MOST_SHOWN else 0:
        shown += f"; and {more} more"
    moments = [problem.retry_at for problem in problems if problem.retry_at is not None]
    retry_after = max(min(moments) - now, _SHORTEST_RETRY) if moments else None
    if len(problems) < len(spec.solvers) or not all(problem.is_certain for problem in problems):
        return replace(account, message=f"{account.message}; but {shown}", retry_after=retry_after)
    message = f"Failed to verify solvers: {shown}"
    return replace(
        account, ready=False, reason=SOLVERS_NOT_VERIFIED, message=message, retry_after=retry_after
    )
