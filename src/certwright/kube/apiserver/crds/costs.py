"""Cost limits of a definition's CEL rules, for each rule and for all together.

Source: Kubernetes documentation, "Resource use by validation functions"; apiextensions-apiserver
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, forbidden

_PER_RULE = 10_000_000
_TOGETHER = 100_000_000
_WORTH_A_WORD = _TOGETHER // 100
_NAMED = 4
_LIMIT = 2**64 - 1


def times(one: int | None, other: int | None) -> int | None:
    """The product of two bounds; None for no bound."""
    return None if one is None or other is None else min(one * other, _LIMIT)


class Budget:
    """The estimated cost of the rules of one schema."""

    def __init__(self) -> None:
        self._total = 0
        self._dear: list[tuple[int, str]] = []

    def spend(self, path: str, name: str, cost: int) -> list[FieldError]:
        """Count an expression; an error where it alone exceeds the limit."""
        self._total = min(self._total + cost, _LIMIT)
        if cost >= _WORTH_A_WORD:
            self._dear.append((cost, path))
        return [forbidden(path, _exceeds(name, cost, _PER_RULE))] if cost > _PER_RULE else []

    def errors(self, path: str) -> list[FieldError]:
        """The errors about the total: the most expensive expressions, then the sum."""
        if self._total <= _TOGETHER:
            return []
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        dearest = sorted(self._dear, key=lambda found: -found[0])[:_NAMED]
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        total = forbidden(path, _exceeds(name, self._total, _TOGETHER))
        return [*(forbidden(where, text) for _, where in dearest), total]


def _exceeds(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    # A factor of 1.0 would be no information.
    shown = f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x" if factor <= 100 else "more than 100x"
    return (
        f"{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, "
        "maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
