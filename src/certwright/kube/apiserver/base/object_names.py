"""Name rules of objects.

A rule takes a name and returns the sentence that describes its error, or None.

Source: RFC 1123 §2.1; Kubernetes documentation, "Object Names and IDs"; apimachinery `pkg/util/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from certwright.kube.api.naming import (
    LABEL_MESSAGE,
    LABEL_PATTERN,
    MAX_LABEL,
    MAX_SUBDOMAIN,
    SUBDOMAIN_MESSAGE,
    SUBDOMAIN_PATTERN,
)

NameRule = Callable[[str], str | None]

_OF_SUBDOMAINS = re.compile("[-a-z0-9.]+")
_IS_1035_LABEL = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)

_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def _check(name: str, *, limit: int, pattern: re.Pattern[str], text: str) -> str | None:
    if len(name) > limit:
        return f"must be no more than {limit} characters"
    return None if pattern.fullmatch(name) else text


def dns_label(name: str) -> str | None:
    """At most 63 characters between dots: Namespaces."""
    return _check(name, limit=MAX_LABEL, pattern=LABEL_PATTERN, text=LABEL_MESSAGE)


def dns_subdomain(name: str) -> str | None:
    """At most 253 characters with dots: nearly all kinds."""
    return _check(name, limit=MAX_SUBDOMAIN, pattern=SUBDOMAIN_PATTERN, text=SUBDOMAIN_MESSAGE)


def dns_1035_label(name: str) -> str | None:
    """A label that begins with a letter: names of resources and kinds (RFC 1035 §2.3.1)."""
    return _check(name, limit=MAX_LABEL, pattern=_IS_1035_LABEL, text=_1035_TEXT)


def for_prefix(rule: NameRule) -> NameRule:
    """The rule for `generateName`: the suffix follows a final `-`, so it is checked as if completed."""

    def check(prefix: str) -> str | None:
        return rule(completed(prefix))

    return check


def completed(prefix: str) -> str:
    """A `generateName` as Kubernetes checks it: the final dash is removed, and the character before it."""
    # Go cuts bytes: half a character that remains is no letter of any name.
    encoded = prefix.encode(errors="replace")
    return (
        encoded[:-2].decode(errors="replace") + "a" if len(encoded) > 1 and prefix.endswith("-") else prefix
    )


def path_segment(name: str) -> str | None:
    """Any text that is valid between two slashes of a URL: roles and their bindings."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{mark}'" for mark in "/%" if mark in name), None)


def _may_be_subdomain(name: str) -> bool:
    """As `SUBDOMAIN_PATTERN`, which takes 20 times as long, and blocks all other Python code."""
    if not _OF_SUBDOMAINS.fullmatch(name) or any(pair in name for pair in ("..", ".-", "-.")):
        return False
    return name[0] not in "-." and name[-1] not in "-."


_FORMS: Mapping[NameRule, tuple[Callable[[str], object], str]] = {
    dns_label: (LABEL_PATTERN.fullmatch, LABEL_MESSAGE),
    dns_subdomain: (_may_be_subdomain, SUBDOMAIN_MESSAGE),
    dns_1035_label: (_IS_1035_LABEL.fullmatch, _1035_TEXT),
}


def problems(rule: NameRule, name: str) -> list[str]:
    """All errors of a name: one that is too long may contain invalid characters too."""
    errors = [text] if (text := rule(name)) else []
    has_form, message = _FORMS.get(rule, (None, ""))
    if errors and message not in errors and has_form is not None and not has_form(name):
        errors.append(message)
    return errors
