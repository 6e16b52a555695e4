"""How a field says what it means: `Annotated[str, doc("what it is")]`.

Annotations are strings until somebody asks (`from __future__ import annotations`), so the texts cost nothing
at start; `crds.py` reads them for `kubectl explain`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def doc(text: str, **schema: Any) -> Meta:
    """`text` becomes the field's description in the schema; `schema` holds further OpenAPI keywords for it.

    The keywords (`enum`, `pattern`, `minLength`, `format`, `default` …) are enforced by the API server, not
    when an object is decoded, so that an unknown value of a newer version survives a round trip. Two of them
    are ours: `optional=True` keeps a field without default out of the schema's `required`, and
    `items={…}` adds keywords to the elements of a list.
    """
    return Meta(description=text, extra_json_schema=schema or None)
