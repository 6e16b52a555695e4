"""Static cost estimates of CEL expressions: the worst case, before an expression runs.

Kubernetes refuses definitions whose rules may cost too much, so these numbers decide what is accepted.

Source: Kubernetes documentation, "Resource use by validation functions"; cel-go `checker/cost.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from certwright.kube.apiserver.cel import ast
from certwright.kube.apiserver.cel.call_costs import FUNCTIONS, Cost
from certwright.kube.apiserver.cel.cost_ranges import (
    EMPTY,
    NOTHING,
    ONE,
    REGEX,
    TRAVERSAL,
    UNKNOWN,
    Range,
    exactly,
)
from certwright.kube.apiserver.cel.sizes import Sized

_MAKE_LIST, _MAKE_MAP, _MAKE_STRUCT = exactly(10), exactly(30), exactly(40)
_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_HAS_FIELDS = frozenset({"map", "struct", "parameter"})

Path = tuple[str, ...]


class _Entries(NamedTuple):
    """The sizes of keys and values in a list or map that an expression makes."""

    is_list: bool
    keys: Range
    values: Range


class _Variable(NamedTuple):
    """A variable of a comprehension."""

    path: Path
    size: Range | None = None
    entries: _Entries | None = None


def estimate(tree: ast.Tree, sizes: Sized) -> int:
    """The most that the expression can cost, for a `self` of these sizes."""
    return _Estimate(tree, sizes).cost(tree.root).most


@dataclass(frozen=True, slots=True)
class _Argument:
    """See `cel_call_costs.Argument`."""

    of: _Estimate
    part: ast.Part

    @property
    def type(self) -> ast.Type:
        return self.of.tree.type_of(self.part)

    @property
    def literal(self) -> object:
        return self.part.value if isinstance(self.part, ast.Constant) else None

    def size(self) -> Range:
        return self.known_size() or UNKNOWN

    def known_size(self) -> Range | None:
        return self.of.size(self.part)

    def item_size(self) -> Range:
        path = self.of.path(self.part)
        found = self.of.sizes.at((*path, "@items")[1:]) if path else None
        return UNKNOWN if found is None else Range(0, found.most)


class _Estimate:
    """The estimate of one expression; each node is estimated once, from the leaves up."""

    def __init__(self, tree: ast.Tree, sizes: Sized) -> None:
        self.tree = tree
        self.sizes = sizes
        self._paths: dict[int, Path] = {}
        self._known: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._variables: dict[str, list[_Variable]] = {}
        self._costs: dict[type[ast.Part], Callable[..., Range]] = {
            ast.Constant: lambda _: NOTHING,
            ast.Name: self._name,
            ast.Select: self._select,
            ast.Call: self._call,
            ast.MakeList: self._make_list,
            ast.MakeMap: self._make_map,
            ast.MakeStruct: self._make_struct,
            ast.Loop: self._loop,
        }

    def cost(self, part: ast.Part) -> Range:
        """The cost of a node with all its descendants."""
        return self._costs[type(part)](part)

    # --- names and fields ---------------------------------------------------------------------------------

    def _variable(self, part: ast.Part) -> _Variable | None:
        found = self._variables.get(part.name) if isinstance(part, ast.Name) else None
        return found[-1] if found else None

    def path(self, part: ast.Part) -> Path:
        """The path of a node's value in the object; empty for a computed value."""
        variable = self._variable(part)
        return variable.path if variable is not None else self._paths.get(part.key, ())

    def _name(self, part: ast.Name) -> Range:
        variable = self._variable(part)
        # The field of `self` may be a separate name, see `cel_checker.Checker`.
        path = tuple(part.name.split(".")) if part.name.startswith(("self.", "oldSelf.")) else (part.name,)
        self._paths[part.key] = variable.path if variable is not None else path
        return exactly(len(path))

    def _select(self, part: ast.Select) -> Range:
        cost = self.cost(part.of)
        if part.is_test:
            return cost
        self._paths[part.key] = (*self.path(part.of), part.field)
        return cost.plus(ONE) if self.tree.type_of(part.of).kind in _HAS_FIELDS else cost

    # --- sizes --------------------------------------------------------------------------------------------

    def size(self, part: ast.Part) -> Range | None:
        """The size of a value; None where it is unknown."""
        if part.key in self._known:
            return self._known[part.key]
        if (size := _size_as_written(part)) is not None:
            return size
        if (path := self.path(part)) and (found := self.sizes.at(path[1:])) is not None:
            self._known[part.key] = Range(0, found.most)
            return self._known[part.key]
        if _is_scalar(self.tree.type_of(part)):
            return ONE
        variable = self._variable(part)
        return variable.size if variable is not None else None

    def _entries_of(self, part: ast.Part) -> _Entries | None:
        variable = self._variable(part)
        return self._entries.get(part.key) or (variable.entries if variable is not None else None)

    def _of(self, part: ast.Part) -> Range:
        return self.size(part) or UNKNOWN

    # --- calls --------------------------------------------------------------------------------------------

    def _call(self, part: ast.Call) -> Range:
        if part.function == "dyn":
            cost = self.cost(part.args[0]).plus(ONE)
            self._note(part, self.size(part.args[0]), self._entries_of(part.args[0]))
            return cost
        costs = []
        for arg in part.args:
            costs.append(self.cost(arg))
            self.size(arg)
        overloads = self.tree.overloads.get(part.key, ())
        if not overloads:
            return NOTHING
        on_target = self.cost(part.target) if part.target is not None else NOTHING
        cost, size = EMPTY, None
        for overload in overloads:
            one = self._overload(part, overload, costs)
            cost = cost.or_else(one.cost)
            if one.size is not None:
                size = one.size if size is None else size.or_else(one.size)
            size = self._indexed(part, overload, size)
        self._note(part, size, None)
        return on_target.plus(cost)

    def _indexed(self, part: ast.Call, overload: str, size: Range | None) -> Range | None:
        """The size of the result; for an item of a list or map, also its path."""
        if overload in ("index_list", "index_map") and part.args:
            entries = self._entries_of(part.args[0])
            size = entries.values if entries is not None else None
            step = "@items" if overload == "index_list" else "@values"
            self._paths[part.key] = (*self.path(part.args[0]), step)
        return self.size(part) if size is None else size

    def _note(self, part: ast.Part, size: Range | None, entries: _Entries | None) -> None:
        if size is not None:
            self._known[part.key] = size
        if entries is not None:
            self._entries[part.key] = entries

    def _overload(self, part: ast.Call, overload: str, costs: list[Range]) -> Cost:
        together = NOTHING
        for cost in costs:
            together = together.plus(cost)
        target = _Argument(self, part.target) if part.target is not None else None
        args = tuple(_Argument(self, arg) for arg in part.args)
        found = FUNCTIONS[part.function](overload, target, args) if part.function in FUNCTIONS else None
        if found is not None:
            return Cost(found.cost.plus(together), found.size)
        if overload in ("logical_or", "logical_and"):
            return Cost(Range(costs[0].least, together.most))
        if overload == "conditional":
            return self._conditional(part, costs)
        own = self._own(part, overload)
        return Cost(own.cost.plus(together), own.size)

    def _conditional(self, part: ast.Call, costs: list[Range]) -> Cost:
        one, other = self._entries_of(part.args[1]), self._entries_of(part.args[2])
        self._note(part, None, _either(one, other))
        size = self._of(part.args[1]).or_else(self._of(part.args[2]))
        return Cost(costs[0].plus(costs[1].or_else(costs[2])), size)

    def _own(self, part: ast.Call, overload: str) -> Cost:
        """The language's own functions that cost more than one."""
        args, target = part.args, part.target
        if overload in _COMPARED:
            return Cost(_compared(self._of(args[0]), self._of(args[1])))
        if overload in ("add_string", "add_bytes", "add_list"):
            return self._added(part, overload)
        if target is not None and overload in ("matches_string", "contains_string"):
            return Cost(_searched(overload, self._of(target), self._of(args[0])))
        if overload in ("starts_with_string", "ends_with_string"):
            return Cost(self._of(args[0]).scaled(TRAVERSAL))
        if overload == "in_list":
            return Cost(self._of(args[1]).scaled(1))
        if overload == "string_format" and target is not None:
            return Cost(self._of(target).scaled(TRAVERSAL))
        if overload in _CONVERTED and len(args) == 1:
            size = self._of(args[0])
            return Cost(size.scaled(TRAVERSAL), _CONVERTED[overload](size))
        return Cost(ONE)

    def _added(self, part: ast.Call, overload: str) -> Cost:
        one, other = part.args
        size = self._of(one).plus(self._of(other))
        self._note(part, None, _either(self._entries_of(one), self._entries_of(other)))
        return Cost(ONE if overload == "add_list" else size.scaled(TRAVERSAL), size)

    # --- what an expression makes -------------------------------------------------------------------------

    def _make_list(self, part: ast.MakeList) -> Range:
        cost, size = _MAKE_LIST, EMPTY if part.items else Range(0, 0)
        for item in part.items:
            cost = cost.plus(self.cost(item))
            size = size.or_else(self._of(item))
        self._note(part, None, _Entries(is_list=True, keys=ONE, values=size))
        return cost

    def _make_map(self, part: ast.MakeMap) -> Range:
        cost = _MAKE_MAP
        keys = values = EMPTY if part.entries else Range(0, 0)
        for key, value in part.entries:
            cost = cost.plus(self.cost(key)).plus(self.cost(value))
            keys, values = keys.or_else(self._of(key)), values.or_else(self._of(value))
        self._note(part, None, _Entries(is_list=False, keys=keys, values=values))
        return cost

    def _make_struct(self, part: ast.MakeStruct) -> Range:
        cost = _MAKE_STRUCT
        for value in part.values:
            cost = cost.plus(self.cost(value))
        return cost

    # --- comprehensions -----------------------------------------------------------------------------------

    def _loop(self, part: ast.Loop) -> Range:
        cost = self.cost(part.over).plus(self.cost(part.start))
        result = _Variable(self.path(part.start), self.size(part.start), self._entries_of(part.start))
        self._push(part.result_name, result)
        if part.variable2:
            self._push(part.variable, self._variable_over(part.over, values=False))
            self._push(part.variable2, self._variable_over(part.over, values=True))
        else:
            is_list = self._is_list(part.over)
            self._push(part.variable, self._variable_over(part.over, values=is_list))
        each = self.cost(part.condition)
        each = self.cost(part.step).plus(each)
        for name in filter(None, (part.variable, part.variable2)):
            self._variables[name].pop()
        cost = cost.plus(self.cost(part.result))
        self._variables[part.result_name].pop()
        count = self._of(part.over)
        if isinstance(part.start, ast.Constant):
            self._note(part, self.size(part.start), None)
        elif isinstance(part.start, ast.MakeList | ast.MakeMap):
            self._note(part, count, self._entries_of(part.step))
        return cost.plus(count.times(each))

    def _push(self, name: str, variable: _Variable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _is_list(self, part: ast.Part) -> bool:
        entries = self._entries_of(part)
        return entries.is_list if entries is not None else self.tree.type_of(part).kind == "list"

    def _variable_over(self, part: ast.Part, *, values: bool) -> _Variable:
        entries, is_list = self._entries_of(part), self._is_list(part)
        if values:
            step = "@items" if is_list else "@values"
            return _Variable((*self.path(part), step), entries.values if entries is not None else None)
        step = "@indices" if is_list else "@keys"
        return _Variable((*self.path(part), step), entries.keys if entries is not None else None)


def _either(one: _Entries | None, other: _Entries | None) -> _Entries | None:
    if one is None or other is None:
        return None
    return _Entries(one.is_list, one.keys.or_else(other.keys), one.values.or_else(other.values))


def _size_as_written(part: ast.Part) -> Range | None:
    if isinstance(part, ast.Constant):
        return exactly(len(part.value)) if isinstance(part.value, str | bytes) else ONE
    if isinstance(part, ast.MakeList):
        return exactly(len(part.items))
    return exactly(len(part.entries)) if isinstance(part, ast.MakeMap) else None


def _is_scalar(kind: ast.Type) -> bool:
    if kind.kind == "abstract" and kind.name == "optional_type" and kind.parameters:
        return _is_scalar(kind.parameters[0])
    return kind.kind in _SCALARS


_COMPARED = frozenset(
    {"equals", "not_equals"}
    | {f"{how}_{kind}" for how in ("less", "greater") for kind in ("string", "bytes")}
    | {f"{how}_equals_{kind}" for how in ("less", "greater") for kind in ("string", "bytes")}
)
_CONVERTED: dict[str, Callable[[Range], Range]] = {
    "string_to_bytes": lambda size: Range(size.least, min(size.most * 4, UNKNOWN.most)),
    "bytes_to_string": lambda size: Range(size.least // 4, size.most),
    "strings_quote": lambda size: Range(size.least + 2, min(size.most * 2 + 2, UNKNOWN.most)),
}


def _compared(one: Range, other: Range) -> Range:
    most = min(one.most, other.most)
    return Range(1 if most else 0, most).scaled(TRAVERSAL)


def _searched(overload: str, text: Range, wanted: Range) -> Range:
    if overload == "contains_string":
        return text.scaled(TRAVERSAL).times(wanted.scaled(TRAVERSAL))
    return text.plus(ONE).scaled(TRAVERSAL).times(wanted.scaled(REGEX))
