"""Templates and static files of the pages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from certwright.diagnosis import words
from certwright.kube.util.encoding import visible
from certwright.kube.util.http_messages import Response

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


_COMMAND: Final = re.compile(r"`((?:certwright|kubectl) [A-Za-z0-9 ./:=_-]+)`")
"""A command in a sentence. Sentences may quote what a tenant has written: nothing else looks like one."""


def _coded(text: str) -> Markup:
    """The text with its commands, between backticks, as code elements."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(_plain(words.shortened(text))))))  # noqa: S704 - escaped


_REORDERING: Final = dict.fromkeys(
    (*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}"
)
"""Characters that change the order of the text after them. Source: Unicode Standard Annex 9, §2."""


def _plain(text: str) -> str:
    """The text without characters that let a part of it look like another text."""
    return text if text.isprintable() else visible(text).translate(_REORDERING)


def _printed(value: Any) -> Any:
    """What an expression of a template prints. Tenants write most texts, and may write megabytes."""
    return (
        _plain(words.shortened(value)) if isinstance(value, str) and not isinstance(value, Markup) else value
    )


def _with_query(query: Mapping[str, str], **changes: Any) -> str:
    """The query of an address with these fields changed; None removes a field."""
    fields = {**query, **{name: None if value is None else str(value) for name, value in changes.items()}}
    return f"?{urlencode({name: value for name, value in fields.items() if value})}"


@lru_cache(maxsize=1_000)
def _table_row(line: Hashable, root: str, is_report: bool) -> Markup:
    """A row of the table of certificates: from one rendering to the next most are the same."""
    macros: Any = environment().get_template("macros.html").module
    row: Markup = macros.table_row(line, root, is_report)
    return row


@cache
def environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("certwright.dashboard"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printed,
    )
    environment.globals |= {"static": static_path, "table_row": _table_row}
    environment.filters |= {
        "urlpart": lambda text: quote(str(text), safe=""),
        "at": words.at,
        "from_now": words.from_now,
        "rfc3339": lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "as_time": lambda value: datetime.fromtimestamp(value, UTC),
        "with_query": _with_query,
        "coded": _coded,
        "safe_svg": Markup,
        "whole": lambda text: escape(_plain(text)),
    }
    return environment


@cache
def static_files() -> dict[str, tuple[str, bytes]]:
    """By name with the digest of its content: the content type, and the content."""
    files: dict[str, tuple[str, bytes]] = {}
    for entry in resources.files("certwright.dashboard").joinpath("static").iterdir():
        stem, _, suffix = entry.name.rpartition(".")
        content = entry.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        files[f"{stem}.{digest}.{suffix}"] = (_TYPES[suffix], content)
    return files


def static_path(name: str) -> str:
    """The path below /ui/ of a static file: `static/app.0123456789ab.css`."""
    stem, _, suffix = name.rpartition(".")
    return next(
        f"static/{path}"
        for path in static_files()
        if re.fullmatch(rf"{stem}\.[0-9a-f]{{12}}\.{suffix}", path)
    )


def static_response(name: str) -> Response:
    if name not in static_files():
        return Response(404, {"content-type": "text/plain"}, b"there is no such file\n")
    content_type, content = static_files()[name]
    return Response(
        200, {"content-type": content_type, "cache-control": "public, max-age=31536000, immutable"}, content
    )
