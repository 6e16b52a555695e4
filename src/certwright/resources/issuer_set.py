"""IssuerSet and ClusterIssuerSet: issuers in order of preference, and the annotation that records the member
that a request is sent to.

The owner of a request may write that annotation: a member counts only while the set has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec

from certwright.kube.api.meta import Condition, ObjectMeta, Struct, doc
from certwright.kube.util.decoders import json_decoder
from certwright.resources.names import GROUP, ISSUER_SET_MEMBER
from certwright.resources.references import IssuerReference

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
    """An ordered list of issuers. Each request of the namespace goes to the first member that can sign it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSetSpec, doc("The members of the set.")]
    status: Annotated[IssuerSetStatus, doc("Which member signs now; written by the controllers.")] = (
        IssuerSetStatus()
    )


class ClusterIssuerSet(Struct, frozen=True, kw_only=True):
    """An ordered list of ClusterIssuers. Each request goes to the first member that can sign it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSetSpec, doc("The members of the set.")]
    status: Annotated[IssuerSetStatus, doc("Which member signs now; written by the controllers.")] = (
        IssuerSetStatus()
    )


def read_member(annotations: Mapping[str, str]) -> IssuerReference | None:
    """The member that the annotations name; None without one, or for anything else."""
    text = annotations.get(ISSUER_SET_MEMBER, "")
    try:
        return json_decoder(IssuerReference).decode(text) if text else None
    except msgspec.DecodeError:
        return None


def write_member(member: IssuerReference) -> dict[str, str]:
    """The annotation for that member, with its defaults filled in."""
    value = {"name": member.name, "kind": member.kind_or_default, "group": GROUP}
    return {ISSUER_SET_MEMBER: msgspec.json.encode(value).decode()}
