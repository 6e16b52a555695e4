"""Challenge: one proof of control of a name, for an ACME server (RFC 8555 §8).

Source: cert-manager `pkg/apis/acme/v1/types_challenge.go`; field texts are ours.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import field

from certwright.kube.api.docs import doc
from certwright.kube.api.meta import ObjectMeta, Struct
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.reasons import FINAL_STATES, STATES
from certwright.resources.solver import CHALLENGE_TYPES, Solver


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
