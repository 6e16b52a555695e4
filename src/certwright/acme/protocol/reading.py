"""Parsing of server responses: members of the right type, or an error sentence.

Unknown members are ignored, and unknown states are passed on as they are.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from certwright.acme.protocol.errors import NotAcme
from certwright.acme.protocol.messages import Response
from certwright.kit.outgoing import place_of
from certwright.kube.util.decoders import UNDECODABLE

Json = dict[str, Any]

_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9!#$&^_.+-]{1,40}/[a-zA-Z0-9!#$&^_.+-]{1,40}")


def read_object(response: Response, what: str) -> Json:
    """The JSON object in a response. Raises `NotAcme` with a sentence that names `what` was expected."""
    try:
        content = msgspec.json.decode(response.body)
    except UNDECODABLE:
        content = None
    if not isinstance(content, dict):
        # Nothing of the body: it may be an internal page, and tenants read this message.
        media_type = response.header("content-type").partition(";")[0].strip()
        shown = media_type if _MEDIA_TYPE.fullmatch(media_type) else "something"
        answer = f"answered HTTP status {response.status} with {shown if response.body else 'an empty body'}"
        raise NotAcme(f"{place_of(response.url)} {answer} instead of {what}")
    return content


def text(content: Json, name: str) -> str:
    """A string member, or the empty string."""
    value = content.get(name)
    return value if isinstance(value, str) else ""


def needed_text(content: Json, name: str, *, url: str, what: str) -> str:
    """A required string member. Raises `NotAcme` if it is missing."""
    value = text(content, name)
    if not value:
        raise NotAcme(f"{place_of(url)} answered with {what} that has no `{name}`")
    return value


def texts(content: Json, name: str) -> tuple[str, ...]:
    """A member that is a list of strings; drops other items."""
    value = content.get(name)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def objects(content: Json, name: str) -> list[Json]:
    """A member that is a list of objects; drops other items."""
    value = content.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def moment(content: Json, name: str) -> datetime | None:
    """A timestamp member (RFC 3339), or None."""
    value = text(content, name)
    try:
        parsed = datetime.fromisoformat(value) if value else None
    except ValueError:
        return None
    return parsed if parsed is None or parsed.tzinfo else parsed.replace(tzinfo=UTC)


def location(response: Response, what: str) -> str:
    """The `Location` header of a new resource. Raises `NotAcme` without one."""
    url = response.header("location")
    if not url:
        place = place_of(response.url)
        raise NotAcme(f"{place} answered {response.status} for {what}, but names no Location for it")
    return url
