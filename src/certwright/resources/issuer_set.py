"""IssuerSet and ClusterIssuerSet: issuers in order of preference; the first that can sign a request does.

Rules over these fields are in `issuer_set_rules.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from certwright.kube.api.docs import doc
from certwright.kube.api.meta import Condition, ObjectMeta, Struct
from certwright.resources.issuer_ref import IssuerReference

MOST_MEMBERS: Final = 16
"""Members of a set, at most: each is checked for each request."""


class IssuerSetSpec(Struct, frozen=True, kw_only=True):
    """The members of the set."""

    issuers: Annotated[
        tuple[IssuerReference, ...],
        doc(
            "Issuers and ClusterIssuers of cert-manager.io, the preferred one first. An IssuerSet names "
            "Issuers of its own namespace and ClusterIssuers; a ClusterIssuerSet names ClusterIssuers only.",
            minItems=1,
            maxItems=MOST_MEMBERS,
        ),
    ]


class IssuerSetStatus(Struct, frozen=True, kw_only=True):
    """Which member signs now."""

    active: Annotated[
        IssuerReference | None,
        doc("The member that new requests are sent to first; none while none can sign."),
    ] = None
    return_time: Annotated[
        datetime | None,
        doc("When the set returns to the preferred member, if that works until then."),
    ] = None
    conditions: Annotated[tuple[Condition, ...], doc("Ready: at least one member can sign.")] = ()


class IssuerSet(Struct, frozen=True, kw_only=True):
    """Issuers of which the first that can sign a request of its namespace does."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSetSpec, doc("The members of the set.")]
    status: Annotated[IssuerSetStatus, doc("Which member signs now; written by the controllers.")] = (
        IssuerSetStatus()
    )


class ClusterIssuerSet(Struct, frozen=True, kw_only=True):
    """ClusterIssuers of which the first that can sign a request does, for all namespaces."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSetSpec, doc("The members of the set.")]
    status: Annotated[IssuerSetStatus, doc("Which member signs now; written by the controllers.")] = (
        IssuerSetStatus()
    )
