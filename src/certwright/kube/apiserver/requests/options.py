"""Parameters of writes, all checked before anything else.

Source: Kubernetes API reference, CreateOptions, UpdateOptions and PatchOptions v1 meta; apimachinery
`pkg/apis/meta/v1/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from certwright.kube.api.errors import (
    BadRequest,
    FieldError,
    forbidden,
    invalid,
    invalid_object,
    not_supported,
    required,
    too_long,
)
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.util.durations import parse_duration

MAX_MANAGER_BYTES = 128
_STRICTNESS = ("", "Ignore", "Strict", "Warn")
_MAX_PARAMETERS = 100


def check(call: Call, *, applies: bool = False) -> None:
    """Raise `Invalid` for invalid parameters of a create, update or patch.

    `applies`: the patch is a server-side apply, which must name its field manager and may be forced.
    """
    query = call.query
    if not query and not applies:
        return
    errors: list[FieldError] = []
    manager = query.get("fieldManager", "")
    if applies and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    elif call.verb == "patch" and not applies and "force" in query:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += check_manager(manager)
    if "dryRun" in query:
        errors += check_dry_run(values_of(call, "dryRun"))
    strictness = query.get("fieldValidation", "")
    if strictness not in _STRICTNESS:
        errors.append(not_supported("fieldValidation", strictness, _STRICTNESS))
    if errors:
        raise invalid_object("meta.k8s.io", f"{call.verb.capitalize()}Options", "", errors)


def values_of(call: Call, name: str) -> list[str]:
    """All values of a repeatable parameter."""
    query = call.request.target.partition("?")[2]
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    return [value for key, value in pairs if key == name]


def check_dry_run(values: list[str]) -> list[FieldError]:
    """The errors of `dryRun`: the only valid stage is `All`."""
    return [] if set(values) <= {"All"} else [not_supported("dryRun", values, ("All",))]


def check_manager(name: str, path: str = "fieldManager") -> list[FieldError]:
    """The errors of a field manager's name."""
    errors: list[FieldError] = []
    if len(name) <= MAX_MANAGER_BYTES and name.isprintable() and name.isascii():
        return errors
    if len(name.encode(errors="surrogatepass")) > MAX_MANAGER_BYTES:
        errors.append(too_long(path, MAX_MANAGER_BYTES))
    position = 0
    for mark in name:
        if not mark.isprintable():
            text = f"invalid character U+{ord(mark):04X} (at position {position})"
            errors.append(invalid(path, name, text))
        position += len(mark.encode(errors="surrogatepass"))
    return errors


def check_timeout(query: Mapping[str, str]) -> None:
    """Check that `timeout`, which every request may have, is a duration.

    It requests less time than a request has anyway. Raises `BadRequest`.
    """
    if timeout := query.get("timeout"):
        try:
            parse_duration(timeout)
        except ValueError as error:
            raise BadRequest(f"invalid timeout specified in the request URL - {error}") from None
