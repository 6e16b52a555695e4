"""Check that an applied configuration has the form of its type; reports every violation.

Source: structured-merge-diff `typed/validate`.
"""

from __future__ import annotations

from typing import Any

from certwright.kube.apiserver.base.json_values import wrong_type
from certwright.kube.apiserver.fieldmanager.fields_set import FieldsError, paths
from certwright.kube.apiserver.fieldmanager.fields_type import ATOMIC, Type
from certwright.kube.apiserver.fieldmanager.fields_walk import element_of

_SCALAR_NAMES = {"string": "a string", "numeric": "a number", "boolean": "a boolean"}
_SCALAR_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "numeric": (int, float), "boolean": (bool,)}


def check_typed(kind: Type, value: Any) -> None:
    """Raise `FieldsError`, whose text names every part of a value that does not have its type's form."""
    errors: list[str] = []
    _check(kind, value, "", errors)
    if len(errors) == 1:
        raise FieldsError(errors[0])
    if errors:
        raise FieldsError("\n  ".join(["errors:", *errors]))


def _check(kind: Type, value: Any, path: str, errors: list[str]) -> None:
    if value is None:
        return
    if type(value) is dict and kind.maps:
        _check_map(kind, value, path, errors)
    elif type(value) is list and kind.lists:
        _check_list(kind, value, path, errors)
    elif not _is_scalar(kind, value):
        errors.append(wrong_type(path, _form(kind), value))


def _check_map(kind: Type, value: dict[str, Any], path: str, errors: list[str]) -> None:
    for name, item in value.items():
        child = kind.child(name)
        if child is None:
            # Kubernetes checks such a map no further.
            errors.append(f"{path}.{name}: field not declared in schema")
            return
        # Most are texts.
        if type(item) is not str or child.scalar != "string":
            _check(child, item, f"{path}.{name}", errors)


def _check_list(kind: Type, value: list[Any], path: str, errors: list[str]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        place = f"[{index}]"
        if kind.lists != "atomic":
            try:
                element = element_of(kind, item)
            except FieldsError as error:
                errors.append(f"{path}: element {index}: {error}")
                return
            place = next(paths({element: {}}))
            if element in seen:
                errors.append(f"{path}: duplicate entries for key {place}")
            seen.add(element)
        _check(kind.item or ATOMIC, item, path + place, errors)


def _is_scalar(kind: Type, value: Any) -> bool:
    if kind.scalar == "untyped":
        return type(value) not in (dict, list)
    return type(value) in _SCALAR_TYPES.get(kind.scalar, ())


def _form(kind: Type) -> str:
    if kind.scalar:
        return _SCALAR_NAMES.get(kind.scalar, "a scalar")
    return "an object" if kind.maps else "a list"
