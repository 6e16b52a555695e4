"""String formats that Kubernetes checks in the schema of a CustomResourceDefinition.

Unknown formats are ignored, as in Kubernetes. The table is strfmt's; the values that its functions accept
were recorded with the real package in `tests/kube/apiserver/data/formats.json`.

Source: kube-openapi `pkg/validation/strfmt` and `pkg/internal/third_party/govalidator`; Go `net/url`,
`net/mail`, `net`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from functools import cache

from certwright.kube.apiserver.base import object_names
from certwright.kube.util.caches import remembering
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.patterns import compile_pattern

_Accepts = Callable[[str], bool]


def _regex(pattern: str, flags: int = 0) -> _Accepts:
    compiled = re.compile(pattern, re.ASCII | flags)
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(version: str = "[0-9a-f]", variant: str = "[0-9a-f]") -> _Accepts:
    return _regex(
        rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}",
        re.IGNORECASE,
    )


# --- times ------------------------------------------------------------------------------------------------

_has_form_of_date = _regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_has_form_of_time = _regex(r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


def _date(text: str) -> bool:
    if not _has_form_of_date(text):
        return False
    try:
        # Go has a year 0, which was a leap year.
        date.fromisoformat(f"2000{text[4:]}" if text.startswith("0000") else text)
    except ValueError:
        return False
    return True


# Many objects contain the same time.
@remembering(most=1024, longest=35)
def _date_time(text: str) -> bool:
    # As in strfmt, which looks at the first two parts only, and accepts any character before a fraction.
    day, *rest = text.lower().split("t")
    return bool(rest) and _date(day) and _has_form_of_time(rest[0])


# The look-behind keeps a long row of digits from being tried at each of them.
_QUANTITY_OF_TIME = re.compile(r"(?<![0-9])([0-9]++)\s*+([A-Za-zµ]++)", re.ASCII)
_UNITS = frozenset(("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"))
_UNIT_PREFIXES = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _duration(text: str) -> bool:
    """A duration of Go or of Scala (`1d`, `4 weeks`); text around the latter is ignored, as in strfmt."""
    try:
        parse_duration(text)
    except ValueError:
        pass
    else:
        return True
    is_duration = False
    for digits, unit in _QUANTITY_OF_TIME.findall(text):
        significant = digits.lstrip("0")
        if len(significant) > 19 or int(significant or "0") >= 2**63:
            return False
        name = unit.lower()
        is_duration = is_duration or name in _UNITS or name.startswith(_UNIT_PREFIXES)
    return is_duration


# --- addresses --------------------------------------------------------------------------------------------

_LEADING_ZEROS = re.compile(r"(?<![0-9A-Fa-f])0+(?=[0-9A-Fa-f])")


def _is_ip(text: str) -> bool:
    """As Go's `net.ParseIP`, which knows no zones."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _ipv4(text: str) -> bool:
    # An IPv4 address in IPv6 is one as well; Kubernetes tolerates leading zeros.
    return "." in text and _is_ip(_LEADING_ZEROS.sub("", text))


def _cidr(text: str) -> bool:
    address, slash, prefix = text.partition("/")
    if not slash or not re.fullmatch("[0-9]+", prefix) or not _is_ip(_LEADING_ZEROS.sub("", address)):
        return False
    bits = prefix.lstrip("0") or "0"
    return len(bits) <= 3 and int(bits) <= (128 if ":" in address else 32)


_mac = _regex(
    "|".join(
        f"[0-9a-f]{{{digits}}}(?:{separator}[0-9a-f]{{{digits}}}){{{octets * 2 // digits - 1}}}"
        for octets in (6, 8, 20)
        for separator, digits in ((":", 2), ("-", 2), (r"\.", 4), ("", 2))
    ),
    re.IGNORECASE,
)


@cache
def _hostname_pattern() -> _Accepts:
    word = r"a-zA-Z0-9\p{S}\p{L}"
    label = rf"[{word}](([{word}-]{{0,61}}[{word}])?)"
    return compile_pattern(
        rf"^([{word}]((-?[{word}]{{0,62}})?)|({label}(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    )


def _hostname(text: str) -> bool:
    octets = text.encode(errors="replace")
    return (
        len(octets) <= 255
        and all(len(label) <= 63 for label in octets.split(b"."))
        and _hostname_pattern()(text)
    )


# --- URIs -------------------------------------------------------------------------------------------------

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_is_userinfo = _regex(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_is_port = _regex("(:[0-9]*)?")
_HOST = r"[A-Za-z0-9_.~!$&'()*+,;=:<>\"\[\]-]"
# A host escapes only bytes beyond ASCII, and the percent sign.
_is_host = _regex(rf"(?:{_HOST}|[^\x00-\x7f]|%[89a-fA-F][0-9a-fA-F]|%25)*")
_is_zone = _regex(rf"(?:{_HOST}|[^\x00-\x7f]|%[0-9a-fA-F]{{2}})+")


def _uri(text: str) -> bool:
    """As Go's `url.ParseRequestURI`: absolute, or a path from the root."""
    if text == "*":
        return True
    if text.startswith(":") or _CONTROL.search(text):
        return False
    scheme = match[1].lower() if (match := _SCHEME.match(text)) else ""
    rest = text[len(scheme) + 1 if scheme else 0 :].partition("?")[0]
    if not rest.startswith("/"):
        return bool(scheme)
    if scheme and rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        userinfo, _, host = authority.rpartition("@")
        if not _is_userinfo(userinfo) or _BAD_ESCAPE.search(userinfo) or not _is_authority(host):
            return False
    return _BAD_ESCAPE.search(rest) is None


def _is_authority(host: str) -> bool:
    if "[" in host:
        literal, bracket, port = host.rpartition("]")
        address, percent, zone = literal[1:].partition("%25")
        return bool(
            host.rfind("[") == 0
            and bracket
            and _is_port(port)
            and ":" in address
            and _is_ip(address)
            and (not percent or _is_zone(zone))
        )
    _, colon, port = host.rpartition(":")
    return _is_host(host) and (not colon or _is_port(colon + port))


# --- e-mail -----------------------------------------------------------------------------------------------

_ATOM = r"[^\x00-\x20\x7f()<>\[\]:;@\\,\".]+"
_QUOTED = r'"(?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])%s"'
_ADDR_SPEC = re.compile(
    rf"[ \t]*(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED % '+'})@[ \t]*"
    rf"(?:{_ATOM}(?:\.{_ATOM})*(?!\.)|\[([!-Z^-~\x80-\U0010ffff]*)\])"
)
_WORD = re.compile(rf"[ \t]*(?:{_QUOTED % '*'}|(?:{_ATOM}|\.)+)")


def _email(text: str) -> bool:
    """As Go's `mail.ParseAddress`: an address, perhaps with a name, or a group of one."""
    return _end_of_mailbox(text, 0) == len(text)


def _end_of_mailbox(text: str, at: int, *, in_group: bool = False) -> int:
    """Where the mailbox that starts `at` ends, with the comments behind it; -1: there is none."""
    if (end := _end_of_address(text, at)) >= 0:
        return _end_of_comments(text, end)
    start = at = len(text) - len(text[at:].lstrip(" \t"))
    while at >= 0 and (word := _WORD.match(text, at)):
        at = _end_of_comments(text, word.end())
    opening = text[at : at + 1] if at >= 0 else ""
    if opening == ":" and at > start and not in_group:
        end = _end_of_mailbox(text, at + 1, in_group=True)
        return _end_of_comments(text, end + 1) if end >= 0 and text[end : end + 1] == ";" else -1
    if opening != "<":
        return -1
    end = _end_of_address(text, at + 1)
    return _end_of_comments(text, end + 1) if end >= 0 and text[end : end + 1] == ">" else -1


def _end_of_address(text: str, at: int) -> int:
    match = _ADDR_SPEC.match(text, at)
    return match.end() if match and (match[1] is None or _is_ip(match[1])) else -1


def _end_of_comments(text: str, at: int) -> int:
    """Where spaces and comments, which may be nested, end; -1: a comment is not closed."""
    depth = 0
    while at < len(text):
        mark = text[at]
        if mark == "(":
            depth += 1
        elif mark == ")" and depth:
            depth -= 1
        elif mark == "\\" and depth:
            at += 1
        elif not depth and mark not in " \t":
            break
        at += 1
    return -1 if depth else at


# --- numbers ----------------------------------------------------------------------------------------------


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[ \t\n\f\r-]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(place * value for place, value in enumerate(values, 1)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[ \t\n\f\r-]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum((3 if place % 2 else 1) * int(digit) for place, digit in enumerate(digits)) % 10 == 0


_is_card_number = _regex(
    "4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)


def _creditcard(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _is_card_number(digits):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


_COLOR = "(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"
_WHITE = r"[ \t\n\f\r]*"

FORMATS: dict[str, _Accepts] = {
    "bsonobjectid": _regex("[0-9a-fA-F]{24}"),
    "byte": _regex("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": _cidr,
    "creditcard": _creditcard,
    "date": _date,
    "datetime": _date_time,
    "duration": _duration,
    "email": _email,
    "hexcolor": _regex("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": lambda text: ":" in text and _is_ip(text),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "k8slongname": lambda text: object_names.dns_subdomain(text) is None,
    "k8sshortname": lambda text: object_names.dns_label(text) is None,
    "mac": _mac,
    "password": lambda _: True,
    "rgbcolor": _regex(rf"rgb\({_WHITE}" + rf"{_WHITE},{_WHITE}".join([_COLOR] * 3) + rf"{_WHITE}\)"),
    "ssn": _regex("[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}"),
    "uri": _uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}
"""By their names without dashes, which do not count."""


def check_for(name: str) -> _Accepts | None:
    """The check of a format by its name in a schema, or None where it is not checked."""
    return FORMATS.get(name) or FORMATS.get(name.replace("-", ""))
