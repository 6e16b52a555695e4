"""The header `Retry-After`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

# A longer one is nonsense.
_LONGEST_WAIT: Final = timedelta(days=365)


def parse_retry_after(text: str, received_at: datetime) -> datetime | None:
    """The moment that a `Retry-After` header names, as seconds or as a date (RFC 9110 §10.2.3); None if it is
    missing or malformed. At most a year ahead."""
    text = text.strip()
    if not text:
        return None
    latest = received_at + _LONGEST_WAIT
    if text.isascii() and text.isdigit():
        return received_at + timedelta(seconds=int(text)) if len(text) < 9 else latest
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return min(moment if moment.tzinfo else moment.replace(tzinfo=UTC), latest)
