"""JSON patch, merge patch and strategic merge patch, on JSON values.

Source: RFC 7386 §2; RFC 6902 §4, with RFC 6901 for its pointers; Kubernetes documentation, "Update API
Objects in Place Using kubectl patch"; apimachinery `pkg/util/strategicpatch`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from certwright.kube.apiserver.base.json_values import encode_sorted, same, wrong_type
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.requests.bodies import MAX_DEPTH, is_too_deep

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024
"""Bytes that all `copy` operations of one patch may add, as in Kubernetes."""
_CONTAINERS = (dict, list)
_END = "-"  # the place after the last item (RFC 6901 §4)


class PatchFailed(ValueError):
    """The patch is well formed but cannot be applied to this document; the text gives the cause."""


class PatchMalformed(ValueError):
    """The body is not a patch; the text gives the cause."""


def merge_patch(target: Any, patch: Any) -> Any:
    """`target` with `patch` merged in; `target` is not changed, but parts of it are in the result.

    "If the provided merge patch contains members that do not appear within the target, those members are
    added […] Null values in the merge patch are given special meaning to indicate the removal of existing
    values in the target." (RFC 7386 §1)
    """
    if type(patch) is not dict:
        # As in Kubernetes, which replaces no map, nulls are removed from the maps of a list too.
        return patch if type(target) is dict else _without_nulls(patch)
    merged = dict(target) if type(target) is dict else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif type(value) in _CONTAINERS:
            merged[name] = merge_patch(merged.get(name), value)
        else:
            merged[name] = value
    return merged


def _without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {
            name: _without_nulls(item) if type(item) in _CONTAINERS else item
            for name, item in value.items()
            if item is not None
        }
    return [_without_nulls(item) for item in value] if type(value) is list else value


def json_patch(document: Any, operations: Any) -> Any:
    """`document` after all `operations`; it may be modified, so pass a private copy.

    As Kubernetes applies patches, which is laxer than the RFC: null is no operation, `replace` may add, a
    missing value is null, and a missing field passes a `test` against null.

    Raises `PatchMalformed` and `PatchFailed`.
    """
    if operations is not None and type(operations) is not list:
        raise PatchMalformed(wrong_type("the patch", "a list of operations", operations))
    for index, operation in enumerate(operations or ()):
        if type(operation) is not dict:
            raise PatchMalformed(wrong_type(f"operation {index}", "an object", operation))
    copies = _Copies()
    for index, operation in enumerate(operations or ()):
        document = _apply(document, operation, index, copies)
    if is_too_deep(document):
        raise PatchFailed(f"the result is nested deeper than {MAX_DEPTH} levels")
    return document


class _Copies:
    """Makes copies for one patch, of limited total size: a few that copy their own results would fill any
    memory."""

    def __init__(self) -> None:
        self._bytes = 0

    def make(self, value: Any) -> Any:
        """A copy. Raises `PatchFailed`."""
        text = encode_json(value)
        self._bytes += len(text)
        if self._bytes > MAX_COPIED:
            raise PatchFailed(f"the copies of the patch exceed {MAX_COPIED} bytes")
        return decode_json(text)


def _apply(document: Any, operation: dict[str, Any], index: int, copies: _Copies) -> Any:
    name = operation.get("op")
    path, value = _pointer(operation, "path", index), operation.get("value")
    match name:
        case "add":
            return _add(document, path, value)
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            if not path:
                return value
            parent, token = _find(document, path[:-1]), path[-1]
            if type(parent) is list:
                parent[_index(parent, token, path, limit=len(parent) - 1)] = value
            elif type(parent) is dict:
                parent[token] = value
            else:
                raise PatchFailed(f"{_show(path)}: its parent is neither an object nor a list")
            return document
        case "move":
            # "The 'from' location MUST NOT be a proper prefix of the 'path' location" (RFC 6902 §4.4).
            source = _pointer(operation, "from", index)
            if source != path and path[: len(source)] == source:
                raise PatchFailed(f"{_show(source)} cannot be moved into itself")
            document, removed = _remove(document, source)
            return _add(document, path, removed)
        case "copy":
            return _add(document, path, copies.make(_find(document, _pointer(operation, "from", index))))
        case "test":
            parent = _find(document, path[:-1]) if path else None
            current = None if type(parent) is dict and path[-1] not in parent else _find(document, path)
            if not same(current, value):
                raise PatchFailed(f"testing value {_show(path)} failed")
            return document
        case _:
            raise PatchFailed(f"operation {index}: unknown op {name!r}")


def _pointer(operation: dict[str, Any], member: str, index: int) -> list[str]:
    """The tokens of a JSON pointer, unescaped (RFC 6901 §4)."""
    text = operation.get(member)
    # Text before the first slash is ignored.
    if type(text) is not str or (text and "/" not in text):
        raise PatchFailed(f'operation {index}: "{member}" must be a JSON pointer')
    return [token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:]]


def _show(path: list[str]) -> str:
    return "".join(f"/{token}" for token in path) or '""'


def _index(items: list[Any], token: str, path: list[str], *, limit: int) -> int:
    """ "characters comprised of digits […] MUST NOT contain leading zeros" (RFC 6901 §4)."""
    if not token.isascii() or not token.isdecimal() or (len(token) > 1 and token[0] == "0"):
        raise PatchFailed(f"{_show(path)}: {token!r} is not an index of a list")
    if len(token) > 9 or int(token) > limit:
        raise PatchFailed(f"{_show(path)}: index {token} is beyond the end of a list of {len(items)}")
    return int(token)


def _find(document: Any, path: list[str]) -> Any:
    for token in path:
        if type(document) is dict and token in document:
            document = document[token]
        elif type(document) is list:
            document = document[_index(document, token, path, limit=len(document) - 1)]
        else:
            raise PatchFailed(f"{_show(path)}: there is no such field")
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, token = _find(document, path[:-1]), path[-1]
    if type(parent) is dict:
        parent[token] = value
    elif type(parent) is list:
        at = len(parent) if token == _END else _index(parent, token, path, limit=len(parent))
        parent.insert(at, value)
    else:
        raise PatchFailed(f"{_show(path)}: its parent is neither an object nor a list")
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    """The document without the value at `path`, and that value."""
    if not path:
        raise PatchFailed("the whole document cannot be removed")
    removed = _find(document, path)
    parent, token = _find(document, path[:-1]), path[-1]
    if type(parent) is list:
        del parent[_index(parent, token, path, limit=len(parent) - 1)]
    else:
        del parent[token]
    return document, removed


MergeKeys = Mapping[tuple[str, ...], str]
"""The merge key of a list by its path (names only, without indexes). An empty key: a set of scalars."""

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_DELETED = object()


def strategic_merge(target: Any, patch: Any, merge_keys: MergeKeys) -> Any:
    """`target` with `patch` merged in; `target` is not changed. Raises `PatchMalformed`."""
    if type(patch) is not dict:
        raise PatchMalformed("a strategic merge patch is an object")
    return _merge_objects(target, patch, merge_keys, ())


def _merge_objects(target: Any, patch: dict[str, Any], keys: MergeKeys, path: tuple[str, ...]) -> Any:
    merged = dict(target) if type(target) is dict else {}
    match patch.get(_DIRECTIVE):
        case "replace":
            return _plain(patch)
        case "delete":
            return None
        case "merge" | None:
            pass
        case other:
            raise PatchMalformed(f"unknown {_DIRECTIVE} directive {other!r}")
    if _RETAIN_KEYS in patch:
        if type(patch[_RETAIN_KEYS]) is not list:
            raise PatchMalformed(f"{_RETAIN_KEYS} must be a list")
        retained = {name for name in patch[_RETAIN_KEYS] if type(name) is str}
        for name, value in patch.items():
            if value is not None and not name.startswith("$") and name not in retained:
                raise PatchMalformed(f"{_RETAIN_KEYS} lacks {name!r}, which the patch sets")
        merged = {name: value for name, value in merged.items() if name in retained}
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            if type(value) is not list:
                raise PatchMalformed(f"{name} must be a list")
            list_name, deleted = name.removeprefix(_DELETE_FROM), set(map(encode_sorted, value))
            if type(items := merged.get(list_name)) is list:
                merged[list_name] = [item for item in items if encode_sorted(item) not in deleted]
        elif not name.startswith("$"):
            _merge_member(merged, name, value, keys, (*path, name))
    for name, order in patch.items():
        if name.startswith(_ORDER):
            list_name = name.removeprefix(_ORDER)
            _reorder(merged, list_name, order, patch.get(list_name), keys.get((*path, list_name), ""))
    return merged


def _merge_member(
    merged: dict[str, Any], name: str, value: Any, keys: MergeKeys, path: tuple[str, ...]
) -> None:
    if value is None:
        merged.pop(name, None)
    elif type(value) is dict:
        result = _merge_objects(merged.get(name), value, keys, path)
        if result is None:
            merged.pop(name, None)
        else:
            merged[name] = result
    elif type(value) is list and path in keys:
        merged[name] = _merge_lists(merged.get(name) or [], value, keys, path)
    else:
        merged[name] = _plain(value)


def _plain(value: Any) -> Any:
    """A new value without directives and nulls."""
    if type(value) is dict:
        return {
            name: _plain(item)
            for name, item in value.items()
            if item is not None and not name.startswith("$")
        }
    if type(value) is list:
        return [_plain(item) for item in value]
    return value


def _merge_lists(target: list[Any], patch: list[Any], keys: MergeKeys, path: tuple[str, ...]) -> list[Any]:
    key = keys[path]
    if not key:
        present = set(map(encode_sorted, target))
        return target + [item for item in patch if encode_sorted(item) not in present]
    if any(type(item) is not dict for item in patch):
        raise PatchMalformed(f"{'.'.join(path)}: every item must be an object")
    if any(item == {_DIRECTIVE: "replace"} for item in patch):
        return [_plain(item) for item in patch if _DIRECTIVE not in item]
    # By the encoded key, so that long lists are merged in linear time.
    merged, positions = list(target), defaultdict[bytes, deque[int]](deque)
    for position, item in enumerate(merged):
        if type(item) is dict:
            positions[encode_sorted(item.get(key))].append(position)
    for item in patch:
        if key not in item:
            raise PatchMalformed(f"{'.'.join(path)}: an item has no {key!r}, by which the list is merged")
        same_key = positions[encode_sorted(item[key])]
        if item.get(_DIRECTIVE) == "delete":
            if same_key:
                merged[same_key.popleft()] = _DELETED
        elif same_key:
            merged[same_key[0]] = _merge_objects(merged[same_key[0]], item, keys, path)
        else:
            same_key.append(len(merged))
            merged.append(_plain(item))
    return [item for item in merged if item is not _DELETED]


def _reorder(merged: dict[str, Any], name: str, order: Any, patched: Any, key: str) -> None:
    """The items in `order` first, in that order; the others behind them, at their places.

    Items of the patch itself, `patched`, MUST be in `order`, and in that order.
    """
    if type(order) is not list:
        raise PatchMalformed(f"{_ORDER}{name} must be a list")

    def name_of(item: Any) -> bytes:
        return encode_sorted(item.get(key) if key and type(item) is dict else item)

    if order and type(patched) is list:
        following = iter([name_of(item) for item in order])
        for item in patched:
            if (type(item) is not dict or _DIRECTIVE not in item) and name_of(item) not in following:
                raise PatchMalformed(f"the order of {name} in the patch doesn't match {_ORDER}{name}")
    if type(merged.get(name)) is not list:
        return
    ranks = dict[bytes, int]()
    for rank, item in enumerate(order):
        ranks.setdefault(name_of(item), rank)
    merged[name] = sorted(merged[name], key=lambda item: ranks.get(name_of(item), len(order)))
