"""Which representation a client wants, and which one it sends.

Source: RFC 9110 §12.5.1; Kubernetes documentation, "Kubernetes API Concepts", alternate representations.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from certwright.resources.errors import NotAcceptable, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


class Shape(enum.Enum):
    """What an answer is made of."""

    WHOLE = "whole"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"


class Form(NamedTuple):
    """A shape, the version of `meta.k8s.io` that its objects say, and the media type it is sent as.

    `plural`: the list form of the shape was asked for, which no single object has.
    """

    shape: Shape
    version: str = "v1"
    wire: str = JSON
    plural: bool = False


WHOLE = Form(Shape.WHOLE)
WIRES = (JSON, YAML, PROTOBUF)
"""The media types that answers come in."""
_SHAPES = {
    "": Shape.WHOLE,
    "Table": Shape.TABLE,
    "PartialObjectMetadata": Shape.PARTIAL,
    "PartialObjectMetadataList": Shape.PARTIAL,
}


def _parse(part: str) -> tuple[str, dict[str, str], float]:
    media, *rest = (piece.strip() for piece in part.split(";"))
    params = {name.strip(): value.strip() for name, _, value in (piece.partition("=") for piece in rest)}
    try:
        quality = float(params.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return media.lower(), params, quality


def _wires(media: str) -> tuple[str, ...]:
    """The media types of a range, best first."""
    if media in ("", "*/*", "application/*"):
        return WIRES
    return (media,) if media in WIRES else ()


def _shape(params: Mapping[str, str]) -> tuple[Shape, str] | None:
    """The shape and version of an item of the list; None for what nobody knows."""
    shape = _SHAPES.get(params.get("as", ""))
    if shape is None or params.get("stream", "watch") != "watch":
        return None
    if shape is Shape.WHOLE:
        return shape, "v1"
    version = params.get("v", "")
    return (shape, version) if params.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1") else None


def _possible(shape: Shape, wire: str, *, custom: bool) -> bool:
    if wire == PROTOBUF:
        # Of a custom object only the metadata has a protobuf form; of a Table nothing.
        return shape is Shape.PARTIAL or (shape is Shape.WHOLE and not custom)
    return True


def _ranges(accept: str) -> list[tuple[str, dict[str, str], float]]:
    ranges = sorted((_parse(part) for part in accept.split(",")), key=lambda found: -found[2])
    return [found for found in ranges if found[2] > 0]


@lru_cache(maxsize=512)
def negotiate(accept: str, *, custom: bool = True, stream: bool = False) -> Form:
    """The first form in order of preference that this server can give. Raises `NotAcceptable`.

    `custom`: of a kind that came with a CustomResourceDefinition. `stream`: as events, one after the other.
    """
    form = next(_forms(accept, custom=custom), None)
    if form is None:
        raise _not_acceptable(WIRES)
    if stream and form.wire == YAML:
        # As Kubernetes does it: what stands next in the list is not looked at.
        raise _not_acceptable((f"{JSON};stream=watch", f"{PROTOBUF};stream=watch"))
    return form


def _forms(accept: str, *, custom: bool) -> Iterator[Form]:
    for media, params, _ in _ranges(accept):
        wanted = _shape(params)
        if wanted is not None:
            for wire in _wires(media):
                if _possible(wanted[0], wire, custom=custom):
                    yield Form(*wanted, wire, params.get("as", "").endswith("List"))


def _not_acceptable(media_types: tuple[str, ...]) -> NotAcceptable:
    return NotAcceptable("only the following media types are accepted: " + ", ".join(media_types))


@lru_cache(maxsize=512)
def plain_wire(accept: str) -> str:
    """The media type of a document of which there is no other shape. Raises `NotAcceptable`."""
    whole = (form.wire for form in _forms(accept, custom=False) if form.shape is Shape.WHOLE)
    wire = next(whole, None)
    if wire is None:
        raise _not_acceptable(WIRES)
    return wire


@lru_cache(maxsize=512)
def failure_wire(accept: str) -> str:
    """What the `Status` of a failure is sent as: what asks for another shape does not count."""
    whole = (form.wire for form in _forms(accept, custom=False) if form.shape is Shape.WHOLE)
    return next(whole, JSON)


def content_type(headers: Mapping[str, str]) -> str:
    """The media type of the body without parameters; JSON where the client does not say."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def unsupported(accepted: tuple[str, ...]) -> UnsupportedMediaType:
    """The 415 that lists what would have been read."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
