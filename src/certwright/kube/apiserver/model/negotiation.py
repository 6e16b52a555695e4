"""Content negotiation: the representations that a client accepts, and the representation of the answer.

Source: RFC 9110 §12.5.1; Kubernetes documentation, "Kubernetes API Concepts", alternate representations.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from certwright.kube.api.errors import NotAcceptable, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


class Shape(enum.Enum):
    """The shape of an answer."""

    WHOLE = "whole"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"


class Form(NamedTuple):
    """A shape, its version of `meta.k8s.io`, and the media type of the answer.

    `plural`: the client accepts the list form of the shape, which no single object has.
    """

    shape: Shape
    version: str = "v1"
    wire: str = JSON
    plural: bool = False


WHOLE = Form(Shape.WHOLE)
WIRES = (JSON, YAML, PROTOBUF)
"""The media types of answers."""
_TRANSFORMS = frozenset(("as", "g", "v"))
_SHAPES = {
    "Table": Shape.TABLE,
    "PartialObjectMetadata": Shape.PARTIAL,
    "PartialObjectMetadataList": Shape.PARTIAL,
}


def _parse(part: str) -> tuple[str, dict[str, str], float] | None:
    """A range of an Accept header; None for a malformed one."""
    media, *rest = (piece.strip() for piece in part.split(";"))
    if media == "*":
        media = "*/*"
    if media.count("/") != 1:
        return None
    params = {name.strip(): value.strip() for name, _, value in (piece.partition("=") for piece in rest)}
    try:
        quality = float(params.pop("q", "1"))
    except ValueError:
        quality = 1.0
    return media, params, quality


def _shape(params: Mapping[str, str]) -> tuple[Shape, str] | None:
    """The shape and version of a range; None for an unknown one."""
    if params.get("stream", "watch") != "watch":
        return None
    if not _TRANSFORMS & params.keys():
        return Shape.WHOLE, "v1"
    shape, version = _SHAPES.get(params.get("as", "")), params.get("v", "")
    if shape is None or params.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    return shape, version


_Range = tuple[str, dict[str, str], float]


def _ranges(accept: str) -> list[_Range]:
    """The ranges in the order in which they are tried. A quality of 0 comes last but still counts."""
    ranges = [parsed for part in (accept or "*/*").split(",") if (parsed := _parse(part)) is not None]
    # No sort key expresses Kubernetes' order: a range with a type comes before a range without, whatever its
    # quality. So this repeats the steps of Go's sort of short slices.
    for end in range(1, len(ranges)):
        at = end
        while at and _goes_before(ranges[at], ranges[at - 1]):
            ranges[at - 1], ranges[at] = ranges[at], ranges[at - 1]
            at -= 1
    return ranges


def _goes_before(left: _Range, right: _Range) -> bool:
    if left[2] > right[2]:
        return True
    ours, theirs = left[0].split("/"), right[0].split("/")
    return any(mine != "*" and its == "*" for mine, its in zip(ours, theirs, strict=True))


@lru_cache(maxsize=512)
def negotiate(accept: str, *, custom: bool = True, stream: bool = False) -> Form:
    """The first form in order of preference that this server supports. Raises `NotAcceptable`.

    `custom`: of a kind defined by a CustomResourceDefinition. `stream`: as a stream of events.
    """
    form = next(_forms(accept, custom=custom), None)
    if form is None:
        raise _not_acceptable(WIRES)
    if stream and form.wire == YAML:
        # As in Kubernetes: the remaining ranges are ignored.
        raise _not_acceptable((f"{JSON};stream=watch", f"{PROTOBUF};stream=watch"))
    return form


def _forms(accept: str, *, custom: bool) -> Iterator[Form]:
    for media, params, _ in _ranges(accept):
        shape = _shape(params)
        if shape is not None:
            for wire in WIRES if media in ("*/*", "application/*") else (media,):
                # Custom objects have a protobuf form only of their metadata; a Table has none.
                lacks_protobuf = shape[0] is Shape.TABLE or (shape[0] is Shape.WHOLE and custom)
                if wire in WIRES and not (wire == PROTOBUF and lacks_protobuf):
                    yield Form(*shape, wire, params.get("as", "").endswith("List"))


def _not_acceptable(media_types: tuple[str, ...]) -> NotAcceptable:
    return NotAcceptable("only the following media types are accepted: " + ", ".join(media_types))


@lru_cache(maxsize=512)
def plain_wire(accept: str, *, default: str = "") -> str:
    """The media type of a document with only one shape. Ranges that request another shape do not count.

    `default`: if no other is accepted. Raises `NotAcceptable` without one.
    """
    wires = (form.wire for form in _forms(accept, custom=False) if form.shape is Shape.WHOLE)
    wire = next(wires, default)
    if not wire:
        raise _not_acceptable(WIRES)
    return wire


def content_type(headers: Mapping[str, str]) -> str:
    """The media type of the body without parameters; JSON by default."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def unsupported(accepted: tuple[str, ...]) -> UnsupportedMediaType:
    """The 415 that lists the accepted media types."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
