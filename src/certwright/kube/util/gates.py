"""Feature gates: parse and check `--feature-gates`.

Source: Kubernetes documentation, "Feature Gates"; component-base `featuregate`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


_NO_ALIASES: Mapping[str, str] = {}


def parse(text: str, known: Collection[str], aliases: Mapping[str, str] = _NO_ALIASES) -> dict[str, bool]:
    """Parse `--feature-gates A=true,B=false`; empty for an empty text. `aliases`: other names of gates.

    Raises `ValueError` with one sentence for a gate that is not `known`, a value that is no boolean, or two
    names of one gate with different values.
    """
    gates: dict[str, bool] = {}
    names: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for feature gate {name}: write {name}=true or {name}=false")
        if value not in _TRUE and value not in _FALSE:
            raise ValueError(f"invalid value of feature gate {name}={value}: it must be true or false")
        gate, is_on = aliases.get(name, name), value in _TRUE
        if names.setdefault(gate, name) != name and gates[gate] != is_on:
            raise ValueError(f"{names[gate]} and {name} are two names of one feature gate: give it one value")
        gates[gate] = is_on
    check(gates, known)
    return gates


def check(names: Collection[str], known: Collection[str]) -> None:
    """Raises `ValueError` with one sentence for a gate that is not `known`."""
    for name in names:
        if name not in known:
            raise ValueError(f"unrecognized feature gate: {name}; there are {', '.join(sorted(known))}")
