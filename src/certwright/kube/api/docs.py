"""Descriptions of fields: `Annotated[str, doc("what it is")]`.

Annotations are strings until they are evaluated (`from __future__ import annotations`), so the texts cost
nothing at start; `crds.py` reads them for `kubectl explain`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def doc(text: str, **schema: Any) -> Meta:
    """`text` becomes the field's description in the schema; `schema` holds further OpenAPI keywords for it.

    The keywords (`enum`, `pattern`, `minLength`, `format`, `default` …) are enforced by the API server, not
    when an object is decoded, so that an unknown value of a newer version survives a round trip. Four of
    them are ours: `needed` puts a field into the schema's `required` or keeps it out (a field without default
    is there by itself), `items={…}` adds keywords to the elements of a list, `map_keys` names the keys of a
    list that is merged like a map, and `atomic=True` marks an object that is only replaced as a whole.
    """
    return Meta(description=text, extra_json_schema=schema or None)
