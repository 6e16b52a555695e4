"""Order and Challenge: an order at an ACME server (RFC 8555 §7.1.3), and one proof of control of a name (§8).

Source: cert-manager `pkg/apis/acme/v1/types_order.go`, `types_challenge.go`; field texts are ours.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import field

from certwright.kube.api.meta import ObjectMeta, Struct, doc
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.names import REPLACES
from certwright.resources.reasons import FINAL_STATES, STATES
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest
from certwright.resources.solver import CHALLENGE_TYPES, Solver


class OrderSpec(Struct, frozen=True, kw_only=True):
    """What is ordered. Never changes once the order exists."""

    request: Annotated[bytes, doc("The signing request (PKCS#10) as PEM or DER, base64-encoded.")]
    issuer_ref: Annotated[IssuerReference, doc("The ACME issuer whose server the order goes to.")]
    common_name: Annotated[str, doc("Common name of the request, if it has one.")] = ""
    dns_names: Annotated[tuple[str, ...], doc("DNS names to be proven.")] = ()
    ip_addresses: Annotated[tuple[str, ...], doc("IP addresses to be proven (RFC 8738).")] = ()
    duration: Annotated[str | None, doc("Requested lifetime, as a Go duration.")] = None
    profile: Annotated[str, doc("Certificate profile of the server to choose.")] = ""
    replaces: Annotated[str, doc("Identifier of the certificate that this one replaces (RFC 9773 §5).")] = ""


class ACMEChallenge(Struct, frozen=True, kw_only=True):
    """A challenge that the server offers for an authorization (RFC 8555 §8)."""

    url: Annotated[str, doc("URL of the challenge at the server.")]
    token: Annotated[str, doc("Token of the challenge.")]
    type: Annotated[str, doc("Type in the server's words, e.g. http-01 or dns-01.")]


class ACMEAuthorization(Struct, frozen=True, kw_only=True):
    """A name that is to be proven (RFC 8555 §7.1.4)."""

    url: Annotated[str, doc("URL of the authorization at the server.")]
    identifier: Annotated[str, doc("The name or address, without the `*.` of a wildcard.")] = ""
    wildcard: Annotated[bool | None, doc("Whether it is proven for the wildcard name.")] = None
    initial_state: Annotated[
        str,
        doc("State of the authorization when the order was made; `valid` needs no challenge.", enum=STATES),
    ] = ""
    challenges: Annotated[tuple[ACMEChallenge, ...], doc("The challenges that the server offers.")] = ()


class OrderStatus(Struct, frozen=True, kw_only=True):
    """What has become of the order."""

    url: Annotated[str, doc("URL of the order at the server.")] = ""
    finalize_url: Annotated[str, doc("URL that the signing request is sent to.")] = field(
        default="", name="finalizeURL"
    )
    authorizations: Annotated[tuple[ACMEAuthorization, ...], doc("The names to be proven.")] = ()
    certificate: Annotated[bytes, doc("The certificate as PEM with its chain, base64-encoded.")] = b""
    state: Annotated[str, doc("State of the order.", enum=STATES)] = ""
    reason: Annotated[str, doc("Why the order is in this state.")] = ""
    failure_time: Annotated[datetime | None, doc("When the order failed.")] = None

    @property
    def is_final(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL_STATES


class Order(Struct, frozen=True, kw_only=True):
    """One order at an ACME server."""

    metadata: Annotated[ObjectMeta, doc("Metadata of the object.", needed=True)] = ObjectMeta()
    spec: Annotated[OrderSpec, doc("What is ordered; never changes.")]
    status: Annotated[OrderStatus, doc("What has become of the order; written by the controllers.")] = (
        OrderStatus()
    )


class ChallengeSpec(Struct, frozen=True, kw_only=True):
    """What is to be proven, and how. Never changes once the challenge exists."""

    url: Annotated[str, doc("URL of the challenge at the server.")]
    authorization_url: Annotated[str, doc("URL of the authorization that it belongs to.")] = field(
        name="authorizationURL"
    )
    dns_name: Annotated[str, doc("The name or address to be proven, without the `*.` of a wildcard.")]
    wildcard: Annotated[bool, doc("Whether it is proven for the wildcard name.")] = False
    type: Annotated[str, doc("Type of the challenge.", enum=CHALLENGE_TYPES)]
    token: Annotated[str, doc("Token of the challenge; empty for DNS-PERSIST-01, which has none.")]
    key: Annotated[
        str,
        doc(
            "What is to be shown: the key authorization (HTTP-01) or the digest of it (DNS-01); empty for "
            "DNS-PERSIST-01."
        ),
    ]
    solver: Annotated[Solver, doc("The solver that shows it, copied from the issuer.")]
    issuer_ref: Annotated[IssuerReference, doc("The ACME issuer that the challenge is for.")]


class ChallengeStatus(Struct, frozen=True, kw_only=True):
    """How far the proof has come."""

    processing: Annotated[
        bool, doc("Whether the challenge is being worked on; false while it waits its turn.")
    ] = False
    presented: Annotated[bool, doc("Whether the proof is on show.")] = False
    presented_at: Annotated[datetime | None, doc("Since when the proof is on show.")] = None
    reason: Annotated[str, doc("Why the challenge is in this state.")] = ""
    state: Annotated[str, doc("State of the challenge.", enum=STATES)] = ""

    @property
    def is_final(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL_STATES


class Challenge(Struct, frozen=True, kw_only=True):
    """One proof that a name is ours, for an ACME server."""

    metadata: Annotated[ObjectMeta, doc("Metadata of the object.", needed=True)] = ObjectMeta()
    spec: Annotated[ChallengeSpec, doc("What is to be proven, and how; never changes.")]
    status: Annotated[ChallengeStatus, doc("How far the proof has come; written by the controllers.")] = (
        ChallengeStatus()
    )


def order_spec(
    request: CertificateRequest,
    issuer: ACMEIssuer,
    *,
    common_name: str,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[str, ...],
) -> OrderSpec:
    """The spec of the Order for a CertificateRequest; the names are those of its signing request."""
    names_replaced = issuer.renewal_information_source != "None"
    return OrderSpec(
        request=request.spec.request,
        issuer_ref=request.spec.issuer_ref,
        common_name=common_name,
        dns_names=dns_names,
        ip_addresses=ip_addresses,
        duration=request.spec.duration if issuer.enable_duration_feature else None,
        profile=issuer.profile,
        replaces=request.metadata.annotations.get(REPLACES, "") if names_replaced else "",
    )


# Names of Orders and Challenges are the same for the same content, so that none is created twice. Source:
# cert-manager `pkg/api/util/names.go` (`ComputeName`), `pkg/controller/acmeorders/util.go`.
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_STEM = 52


# An Order of a hundred names works out the names of all its Challenges whenever one of them gets on, and each
# takes 50 µs.
@lru_cache(maxsize=4096)
def fnv32(data: bytes) -> int:
    """FNV-1, 32 bits (Go's `hash/fnv.New32`)."""
    value = _OFFSET
    for byte in data:
        value = (value * _PRIME) & _MASK ^ byte
    return value


def order_name(request_name: str, spec: OrderSpec) -> str:
    """The name of the Order for a CertificateRequest: the start of the request's name, and a hash of the
    spec.

    The hash excludes the signing request and covers JSON as Go writes it: cert-manager finds its Orders by
    these names, and would order once more where it takes over from us.
    """
    rest = msgspec.json.encode(msgspec.structs.replace(spec, request=b""))
    return _name(request_name, b'{"request":null,' + rest[1:].removeprefix(b'"request":"",'))


def challenge_name(order: str, spec: ChallengeSpec) -> str:
    """The name of a Challenge of that Order."""
    return _name(order, msgspec.json.encode(spec))


def _name(prefix: str, content: bytes) -> str:
    # A name must not end in a mark; cert-manager cuts so as well.
    return f"{prefix[:_STEM].rstrip('-.')}-{fnv32(content)}"
