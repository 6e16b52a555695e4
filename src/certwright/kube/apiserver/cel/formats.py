"""CEL format library: `format.dns1123Label().validate(x)`.

Kubernetes returns an optional list; Python functions cannot return optionals to CEL, so the result is a value
with the functions of one: `hasValue`, `value`, `orValue`.

Source: apiserver `pkg/cel/library/format.go`; apimachinery `pkg/util/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.apiserver.cel.overloads import Function, Raw, member, plain

_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_NAME_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

_Problems = Callable[[str], list[str]]


def _of_rule(rule: object_names.NameRule) -> _Problems:
    def problems(text: str) -> list[str]:
        problem = rule(text)
        return [problem] if problem else []

    return problems


def _of_format(name: str, problem: str) -> _Problems:
    check = check_for(name)
    assert check is not None, "a format that schemas know"
    return lambda text: [] if check(text) else [problem]


def _label_value(text: str) -> list[str]:
    problems = ["must be no more than 63 characters"] if len(text) > 63 else []
    if text and not _NAME_PART.fullmatch(text):
        problems.append(_VALUE_TEXT)
    return problems


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and (wrong := object_names.dns_subdomain(prefix)):
        problems.append(f"prefix part {wrong}")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _NAME_PART.fullmatch(name):
        problems.append(_NAME_TEXT)
    return problems


_FORMATS: dict[str, _Problems] = {
    "dns1123Label": _of_rule(object_names.dns_label),
    "dns1123Subdomain": _of_rule(object_names.dns_subdomain),
    "dns1035Label": _of_rule(object_names.dns_1035_label),
    "dns1123LabelPrefix": _of_rule(object_names.for_prefix(object_names.dns_label)),
    "dns1123SubdomainPrefix": _of_rule(object_names.for_prefix(object_names.dns_subdomain)),
    "dns1035LabelPrefix": _of_rule(object_names.for_prefix(object_names.dns_1035_label)),
    "qualifiedName": _qualified_name,
    "labelValue": _label_value,
    "uri": _of_format("uri", "invalid URI for request"),
    "uuid": _of_format("uuid", "does not match the UUID format"),
    "byte": _of_format("byte", "invalid base64"),
    "date": _of_format("date", "invalid date"),
    "datetime": _of_format("datetime", "invalid datetime"),
}


def _constant(name: str) -> Callable[[], Raw]:
    return lambda: (name,)


def _named(name: str) -> Raw:
    return (name,) if name in _FORMATS else ()


def _validate(form: Raw, text: str) -> Raw:
    return tuple(_FORMATS[form[0]](text))


def _value(violations: Raw) -> list[str]:
    if not violations:
        raise ValueError("optional.none() dereference")
    return list(violations)


FORMAT_FUNCTIONS: dict[str, list[Function]] = {
    **{f"format.{name}": [plain(gives="Format", run=_constant(name))] for name in _FORMATS},
    "format.named": [plain("string", gives="Format", run=_named)],
    "validate": [member("Format", "string", gives="Violations", run=_validate)],
    "hasValue": [
        member("Violations", gives="bool", run=bool),
        member("Format", gives="bool", run=bool),
    ],
    "value": [
        member("Violations", gives="list(string)", run=_value),
        member("Format", gives="Format", run=lambda form: form),
    ],
    "orValue": [
        member(
            "Violations",
            "list(string)",
            gives="list(string)",
            run=lambda violations, other: list(violations) or other,
        )
    ],
}
