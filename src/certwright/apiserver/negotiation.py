"""Which representation a client wants, and which one it sends.

Source: RFC 9110 §12.5.1; Kubernetes documentation, "Kubernetes API Concepts", alternate representations.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from certwright.resources.errors import NotAcceptable, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"


class Shape(enum.Enum):
    """What an answer is made of."""

    WHOLE = "whole"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"


class Form(NamedTuple):
    """A shape, and the version of `meta.k8s.io` that its objects say."""

    shape: Shape
    version: str = "v1"


WHOLE = Form(Shape.WHOLE)
_JSON_RANGES = frozenset({JSON, "application/*", "*/*", ""})
_SHAPES = {
    "": Shape.WHOLE,
    "Table": Shape.TABLE,
    "PartialObjectMetadata": Shape.PARTIAL,
    "PartialObjectMetadataList": Shape.PARTIAL,
}
_NOT_ACCEPTABLE = (
    "only the following media types are accepted: application/json, "
    "application/json;as=Table;g=meta.k8s.io;v=v1, "
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)


def _parse(part: str) -> tuple[str, dict[str, str], float]:
    media, *rest = (piece.strip() for piece in part.split(";"))
    params = {name.strip(): value.strip() for name, _, value in (piece.partition("=") for piece in rest)}
    try:
        quality = float(params.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return media.lower(), params, quality


def _form(media: str, params: Mapping[str, str]) -> Form | None:
    shape = _SHAPES.get(params.get("as", ""))
    if media not in _JSON_RANGES or shape is None:
        return None
    if shape is Shape.WHOLE:
        return WHOLE
    version = params.get("v", "")
    if params.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    return Form(shape, version)


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Form:
    """The first form in order of preference that this server can give. Raises `NotAcceptable`."""
    ranges = sorted((_parse(part) for part in accept.split(",")), key=lambda found: -found[2])
    for media, params, quality in ranges:
        form = _form(media, params)
        if form is not None and quality > 0:
            return form
    raise NotAcceptable(_NOT_ACCEPTABLE)


def content_type(headers: Mapping[str, str]) -> str:
    """The media type of the body without parameters; JSON where the client does not say."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def unsupported(accepted: tuple[str, ...]) -> UnsupportedMediaType:
    """The 415 that lists what would have been read."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
