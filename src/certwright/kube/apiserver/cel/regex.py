"""CEL's `find` and `findAll`: regular expressions in linear time (RE2's syntax)."""

from __future__ import annotations

from itertools import islice

from certwright.kube.util.patterns import find_all as all_matches


def find(text: str, pattern: str) -> str:
    """The first match, or an empty text. Raises `ValueError` for an invalid pattern."""
    return next(all_matches(pattern, text), "")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """The matches from left to right, at most `limit` where that is not negative."""
    return list(islice(all_matches(pattern, text), limit if limit >= 0 else None))
