"""Strategic merge patch: a merge patch with keyed lists, for built-in kinds.

Source: Kubernetes documentation, "Update API Objects in Place Using kubectl patch"; apimachinery
`pkg/util/strategicpatch`. Lists whose merge key the definition does not name are replaced.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from certwright.kube.apiserver.base.json_values import encode_sorted
from certwright.kube.apiserver.requests.patch import PatchMalformed

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
            _delete_from(merged, name.removeprefix(_DELETE_FROM), value)
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


def _delete_from(merged: dict[str, Any], name: str, values: Any) -> None:
    if type(values) is not list:
        raise PatchMalformed(f"{_DELETE_FROM}{name} must be a list")
    if type(merged.get(name)) is list:
        deleted = set(map(encode_sorted, values))
        merged[name] = [item for item in merged[name] if encode_sorted(item) not in deleted]


def _reorder(merged: dict[str, Any], name: str, order: Any, patched: Any, key: str) -> None:
    """Items named in `order` come in that order; the others keep their places behind them.

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
