"""The annotation `venafi.cert-manager.io/custom-fields` of requests and issuers: a JSON array of
`{name, value, type}`.

Source: cert-manager `pkg/controller/certificaterequests/venafi/custom_fields.go` (what wins).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from certwright.issuers.venafi.calls import mapping
from certwright.issuers.venafi.products import CustomField
from certwright.resources.names import VENAFI_CUSTOM_FIELDS

_TYPES: Final = ("", "Plain")
_SHAPE: Final = 'write a JSON array such as [{"name": "Owner", "value": "web team"}]'


class BadCustomFields(ValueError):
    """The annotation cannot be used. The message is one sentence with the fix."""


def merge(issuers: Sequence[CustomField], requests: Sequence[CustomField]) -> tuple[CustomField, ...]:
    """All fields; of a name that both set, the request's values alone."""
    named = {field.name for field in requests}
    return (*(field for field in issuers if field.name not in named), *requests)


def parse_custom_fields(annotations: Mapping[str, str]) -> tuple[CustomField, ...]:
    """The custom fields in an object's annotations. Raises `BadCustomFields`."""
    text = annotations.get(VENAFI_CUSTOM_FIELDS, "")
    if not text:
        return ()
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCustomFields(f"the annotation {VENAFI_CUSTOM_FIELDS} is not JSON; {_SHAPE}") from error
    if not isinstance(listed, list):
        raise BadCustomFields(f"the annotation {VENAFI_CUSTOM_FIELDS} is not a JSON array; {_SHAPE}")
    return tuple(map(_field, listed))


def _field(item: object) -> CustomField:
    name, value, kind = (mapping(item).get(key, "") for key in ("name", "value", "type"))
    if not isinstance(name, str) or not name or not isinstance(value, str):
        raise BadCustomFields(
            f'an item of the annotation {VENAFI_CUSTOM_FIELDS} has no "name" and "value" of text; {_SHAPE}'
        )
    if kind not in _TYPES:
        raise BadCustomFields(
            f'the type of "{name}" in the annotation {VENAFI_CUSTOM_FIELDS} is not Plain; leave it out'
        )
    return CustomField(name, value)
