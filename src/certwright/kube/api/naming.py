"""Names: validation of names, labels and annotations in Kubernetes' own words; random suffixes and UIDs.

The messages are Kubernetes' because tools and people search for them.

Source: apimachinery `pkg/util/validation/validation.go`, `pkg/api/validation/objectmeta.go`;
RFC 1123 §2.1, RFC 1035 §2.3.1.
"""

from __future__ import annotations

import hashlib
import random
import re
import uuid
from collections.abc import Mapping
from typing import Final, Literal

from certwright.kube.api.errors import FieldError, invalid, too_long

NameRule = Literal["subdomain", "label"]

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = rf"({_QUALIFIED})?"

LABEL_PATTERN: Final = re.compile(_LABEL)
SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)
_qualified_re: Final = re.compile(_QUALIFIED)
_label_value_re: Final = re.compile(_LABEL_VALUE)

LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL}')"
)
SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
_QUALIFIED_MESSAGE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}')"
)
_LABEL_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    f"for validation is '{_LABEL_VALUE}')"
)

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_ANNOTATIONS_BYTES: Final = 256 * 1024
"""All keys and values of an object's annotations together."""


def check_name(name: str, *, rule: NameRule = "subdomain") -> str | None:
    """Why `name` is not a valid object name, or None."""
    return next(iter(_problems(name, _LABEL_RULE if rule == "label" else _SUBDOMAIN_RULE)), None)


def label_key_problems(key: str) -> list[str]:
    """All reasons why `key` is not a valid label or annotation key (a "qualified name"); empty: valid."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_QUALIFIED_MESSAGE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {text}" for text in _problems(prefix, _SUBDOMAIN_RULE)]
    if not name:
        problems.append("name part must be non-empty")
    return problems + [f"name part {text}" for text in _problems(name, _QUALIFIED_RULE)]


def check_label_key(key: str) -> str | None:
    """Why `key` is not a valid label or annotation key (a "qualified name"), or None."""
    return next(iter(label_key_problems(key)), None)


def label_value_problems(value: str) -> list[str]:
    """All reasons why `value` is not a valid label value; empty: valid."""
    return _problems(value, _LABEL_VALUE_RULE)


def check_label_value(value: str) -> str | None:
    """Why `value` is not a valid label value, or None."""
    return next(iter(label_value_problems(value)), None)


_Rule = tuple[re.Pattern[str], str, int]
_LABEL_RULE: Final[_Rule] = (LABEL_PATTERN, LABEL_MESSAGE, MAX_LABEL)
_SUBDOMAIN_RULE: Final[_Rule] = (SUBDOMAIN_PATTERN, SUBDOMAIN_MESSAGE, MAX_SUBDOMAIN)
_QUALIFIED_RULE: Final[_Rule] = (_qualified_re, _QUALIFIED_MESSAGE, MAX_LABEL)
_LABEL_VALUE_RULE: Final[_Rule] = (_label_value_re, _LABEL_VALUE_MESSAGE, MAX_LABEL)


def _problems(text: str, rule: _Rule) -> list[str]:
    pattern, message, limit = rule
    size = len(text.encode(errors="surrogatepass"))
    problems = [f"must be no more than {limit} bytes"] if size > limit else []
    # A failing match takes time in proportion to the text: no two repetitions can take the same character.
    if not pattern.fullmatch(text):
        problems.append(message)
    return problems


def check_labels(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """The errors of the labels at `path` (`metadata.labels`)."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += [invalid(path, key, problem) for problem in label_key_problems(key)]
        errors += [invalid(path, value, problem) for problem in label_value_problems(value)]
    return errors


def check_annotations(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    """The errors of the annotations at `path` (`metadata.annotations`): keys, and the total size."""
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        # Upper case is allowed in the prefix of an annotation's key, for backward compatibility.
        errors += [invalid(path, key, problem) for problem in label_key_problems(key.lower())]
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATIONS_BYTES:
        errors.append(too_long(path, MAX_ANNOTATIONS_BYTES))
    return errors


# Vowels are left out so that no words appear, and 0, 1, 3 so that nothing is misread
# (k8s.io/apimachinery/pkg/util/rand).
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_random = random.SystemRandom()


def new_uid() -> str:
    """A random (version 4) UUID in its usual text form."""
    return str(uuid.uuid4())


def random_suffix(length: int = 5) -> str:
    """`length` characters of `ALPHABET`, from the operating system's random source."""
    return "".join(_random.choices(ALPHABET, k=length))


def bounded_name(name: str, *, limit: int) -> str:
    """`name`, or where it is longer than `limit` its beginning and a hash of the whole.

    The same name always gives the same result, and two long names give different ones.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: limit - 17].rstrip('-.')}-{digest}"
