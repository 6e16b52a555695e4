"""The member of an IssuerSet that a request is sent to, and the annotation that records it.

The owner of a request may write the annotation: a member counts only while the set has it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from certwright.kube.util.decoders import json_decoder
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.names import GROUP, ISSUER_SET_MEMBER


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
