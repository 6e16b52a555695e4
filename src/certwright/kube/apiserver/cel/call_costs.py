"""Cost estimates of function calls: the maximum cost, and the size of the result, without the arguments'
cost.

These numbers are part of the API: they decide which definitions are accepted.

Source: apiserver `pkg/cel/library/cost.go`; cel-go `checker/cost.go`, `ext/lists.go`, `ext/sets.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from certwright.kube.apiserver.cel.ast import Type
from certwright.kube.apiserver.cel.cost_ranges import LIMIT, NOTHING, ONE, REGEX, TRAVERSAL, Range, exactly

_MAKE_LIST = 10
_LONG_REGEX = 128
_LONG_FORMAT = 64
_ADDRESS = Range(4, 16)


class Argument(Protocol):
    """The known facts about an argument or a receiver."""

    @property
    def type(self) -> Type:
        """Its type."""

    @property
    def literal(self) -> object:
        """Its value if it is a literal; None otherwise."""

    def size(self) -> Range:
        """Its size as far as known from schema and expression; unknown otherwise."""

    def item_size(self) -> Range:
        """The size of one item, as known from the schema; unknown otherwise."""

    def known_size(self) -> Range | None:
        """Its size if the expression itself determines it."""


class Cost(NamedTuple):
    """The cost of a call, and the size of its result where known."""

    cost: Range
    size: Range | None = None


WebhookTarget = Argument | None
Args = tuple[Argument, ...]
Estimate = Callable[[str, WebhookTarget, Args], Cost | None]


def _fixed(cost: int) -> Estimate:
    return lambda _, __, ___: Cost(exactly(cost))


def _through_list(_: str, target: WebhookTarget, __: Args) -> Cost | None:
    """Once through a list; through its texts, too."""
    if target is None:
        return None
    if not target.type.parameters:
        return Cost(target.size().scaled(TRAVERSAL))
    each = ONE
    if target.type.parameters[0].kind in ("string", "bytes"):
        each = each.plus(target.item_size().scaled(TRAVERSAL))
    return Cost(target.size().times(each))


def _through_first(factor: float, *, sized: bool = False) -> Estimate:
    def estimate(_: str, __: WebhookTarget, args: Args) -> Cost | None:
        if not args:
            return None
        size = args[0].size()
        return Cost(size.scaled(factor), size if sized else None)

    return estimate


def _through_target(_: str, target: WebhookTarget, __: Args) -> Cost | None:
    if target is None:
        return None
    size = target.size()
    return Cost(size.scaled(TRAVERSAL), size)


def _replace(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.size(), args[0].size(), args[1].size()
    times_least, kept_least = _replaced(size.least, old.most, shorter=old.most > new.least)
    times_most, kept_most = _replaced(size.most, old.least, shorter=new.most > old.least)
    result = Range(times_least, times_most).times(new).plus(Range(kept_least, kept_most))
    return Cost(size.scaled(2 * TRAVERSAL), result)


def _replaced(length: int, old: int, *, shorter: bool) -> tuple[int, int]:
    """How often texts of length `old` are replaced in one of `length`, and the length of the rest."""
    if old == 0:
        return min(length + 1, LIMIT), length
    if not shorter:
        return 0, length
    return min(math.ceil(float(length) / float(old)), LIMIT), 0


def _split(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    if target is None:
        return None
    size = target.size()
    most = size.most
    if len(args) > 1 and isinstance(limit := args[1].literal, int):
        most = limit % (LIMIT + 1)
    return Cost(size.scaled(2 * TRAVERSAL), Range(0, most))


def _join(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    if target is None:
        return None
    count, size = target.size(), NOTHING
    if target.type.parameters:
        size = count.times(target.item_size())
    if args:
        gaps = Range(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(args[0].size().times(gaps))
    return Cost(size.scaled(TRAVERSAL), size)


def _find(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    if target is None or not args:
        return None
    size = target.size()
    cost = size.plus(ONE).scaled(TRAVERSAL).times(args[0].size().scaled(REGEX))
    return Cost(cost, Range(0, size.most))


def _ip(overload: str, target: WebhookTarget, args: Args) -> Cost | None:
    # `ip` of a CIDR is a field of it.
    return Cost(ONE) if target is not None else _through_first(TRAVERSAL)(overload, target, args)


def _contains(extra: Range) -> Estimate:
    def estimate(_: str, __: WebhookTarget, args: Args) -> Cost | None:
        if not args:
            return None
        cost = _ADDRESS.plus(_ADDRESS).scaled(TRAVERSAL).plus(extra)
        if args[0].type.kind == "string":
            cost = cost.plus(args[0].size().scaled(TRAVERSAL))
        return Cost(cost)

    return estimate


def _validate(_: str, __: WebhookTarget, args: Args) -> Cost | None:
    return Cost(args[0].size().scaled(TRAVERSAL).scaled(_LONG_REGEX * REGEX)) if args else None


def _equal(_: str, __: WebhookTarget, args: Args) -> Cost | None:
    """Of the types that Kubernetes adds; None for all others."""
    if len(args) != 2 or args[0].type != args[1].type:
        return None
    name = args[0].type.name.removeprefix("kubernetes.")
    if name == args[0].type.name:
        return None
    if name == "Format":
        return Cost(Range(1, _LONG_FORMAT).scaled(TRAVERSAL))
    if name == "URL":
        size = args[1].known_size() or ONE
        return Cost(Range(1, size.most).scaled(TRAVERSAL))
    return Cost(ONE)


def _list_made(factor: float, size: Range) -> Cost:
    return Cost(size.scaled(factor).plus(exactly(1 + _MAKE_LIST)), size)


def _slice(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    if target is None or len(args) != 2:
        return None
    start, end = _number(args[0], 0), _number(args[1], target.size().most)
    return _list_made(1, exactly((end - start) % (LIMIT + 1)))


def _number(argument: Argument, otherwise: int) -> int:
    value = argument.literal
    return value if isinstance(value, int) and value >= 0 else otherwise


def _range(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    return None if target is not None or len(args) != 1 else _list_made(1, exactly(_number(args[0], LIMIT)))


def _reverse(_: str, target: WebhookTarget, __: Args) -> Cost | None:
    return None if target is None else _list_made(1, target.size())


def _flatten(_: str, target: WebhookTarget, args: Args) -> Cost | None:
    depth = _number(args[0], LIMIT) if args else 1
    return None if target is None else _list_made(float(depth), target.size())


def _distinct(_: str, target: WebhookTarget, __: Args) -> Cost | None:
    return None if target is None else _list_made(2.0, target.size().times(target.size()))


def _sort(overload: str, target: WebhookTarget, args: Args) -> Cost | None:
    sorted_by = args[0] if args else target
    if sorted_by is None:
        return None
    factor = 2.0 + (TRAVERSAL if "_string_" in overload or "_bytes_" in overload else 0.0)
    return _list_made(factor, sorted_by.size().times(sorted_by.size()))


def _sets(factor: float) -> Estimate:
    def estimate(_: str, __: WebhookTarget, args: Args) -> Cost | None:
        if len(args) != 2:
            return None
        return Cost(args[0].size().times(args[1].size()).scaled(factor).plus(ONE))

    return estimate


def _each(names: str, estimate: Estimate) -> dict[str, Estimate]:
    return dict.fromkeys(names.split(), estimate)


FUNCTIONS: dict[str, Estimate] = {
    **_each("check", _fixed(350_000)),
    **_each("serviceAccount path group resource subresource namespace name", _fixed(1)),
    **_each("allowed reason error errored format.named", _fixed(1)),
    **_each("masked prefixLength family isUnspecified isLoopback", _fixed(1)),
    **_each("isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast", _fixed(1)),
    **_each("sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo", _fixed(1)),
    **_each("add sub major minor patch", _fixed(1)),
    **_each("getScheme getHostname getHost getPort getEscapedPath getQuery", _fixed(1)),
    **_each("isSorted sum max min indexOf lastIndexOf", _through_list),
    **_each("url", _through_first(TRAVERSAL, sized=True)),
    **_each("cidr isIP isCIDR quantity isQuantity semver isSemver", _through_first(TRAVERSAL)),
    **_each("lowerAscii upperAscii substring trim", _through_target),
    **_each("find findAll", _find),
    "ip.isCanonical": _through_first(2 * TRAVERSAL),
    "ip": _ip,
    "containsIP": _contains(NOTHING),
    "containsCIDR": _contains(_ADDRESS.scaled(TRAVERSAL).plus(ONE)),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "validate": _validate,
    "_==_": _equal,
    "slice": _slice,
    "lists.range": _range,
    "reverse": _reverse,
    "flatten": _flatten,
    "distinct": _distinct,
    **_each("sort @sortByAssociatedKeys list.@sortByAssociatedKeys", _sort),
    **_each("sets.contains sets.intersects", _sets(1)),
    "sets.equivalent": _sets(2),
}
"""By name; an estimate of None, or no name, leaves it to the language's own costs."""
