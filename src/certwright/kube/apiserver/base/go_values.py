"""Go formatting of values and types (`%v`, `%T`), for Kubernetes' messages.

Source: Go `fmt`; the values are those that `encoding/json` makes.
"""

from __future__ import annotations

from typing import Any

_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def type_of(value: Any) -> str:
    """`%T` of a JSON value."""
    return _TYPES[type(value)]


def shown(value: Any) -> str:
    """`%v` of a JSON value: `[a b]`, `map[k:v]`, `<nil>`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{shown(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(shown, value))}]"
    if isinstance(value, float):
        return number(value)
    return str(value)


def number(value: float) -> str:
    """`%v` of a number: the shortest form, with an exponent from 1e+21 on and below 1e-4."""
    if isinstance(value, int):
        return str(value)
    text = repr(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return text
