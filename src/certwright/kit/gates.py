"""Feature gates as text: behaviour that can be switched off, and on again.

Source: Kubernetes documentation, "Feature Gates"; component-base `featuregate`.
"""

from __future__ import annotations

from collections.abc import Collection

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse(text: str, known: Collection[str]) -> dict[str, bool]:
    """What `--feature-gates A=true,B=false` says; empty for an empty text.

    Raises `ValueError` with one sentence for a gate that is not `known`, or a value that is no boolean.
    """
    found: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for feature gate {name}: write {name}=true or {name}=false")
        if value not in _TRUE and value not in _FALSE:
            raise ValueError(f"invalid value of feature gate {name}={value}: it must be true or false")
        found[name] = value in _TRUE
    check(found, known)
    return found


def check(names: Collection[str], known: Collection[str]) -> None:
    """Raises `ValueError` with one sentence for a gate that is not `known`."""
    for name in names:
        if name not in known:
            raise ValueError(f"unrecognized feature gate: {name}; there are {', '.join(sorted(known))}")
