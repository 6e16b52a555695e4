"""Merge of an applied configuration into an object: its values win, other fields stay.

Source: Kubernetes documentation, "Server-Side Apply", merge strategy; structured-merge-diff `typed/merge`.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from certwright.kube.apiserver.fieldmanager.fields_type import ATOMIC, Type
from certwright.kube.apiserver.fieldmanager.fields_walk import element_of


def merge(kind: Type, live: Any, config: Any) -> Any:
    """`config` over `live`, both there. Parts of both are in the result; None where nothing is left."""
    if type(config) is dict and kind.maps == "granular" and (live or config):
        return _merge_maps(kind, live if type(live) is dict else {}, config)
    if type(config) is list and kind.lists in ("set", "map") and (live or config):
        return _merge_lists(kind, live if type(live) is list else [], config)
    if config is None and live and type(live) in (dict, list) and kind.maps != "atomic" != kind.lists:
        # A null does not affect the parts.
        return live
    return config


def _merge_maps(kind: Type, live: dict[str, Any], config: dict[str, Any]) -> Any:
    merged = dict(live)
    for name, value in config.items():
        merged[name] = merge(kind.child(name) or ATOMIC, live[name], value) if name in live else value
    return merged


def _merge_lists(kind: Type, live: list[Any], config: list[Any]) -> Any:
    """Items of both: those of `config` in its order, the others of `live` where they stood between them."""
    item = kind.item or ATOMIC
    before = [(element_of(kind, value), value) for value in live]
    after = {element_of(kind, value): value for value in config}
    names = list(after)
    known = dict(before)
    twice = {name for name, count in Counter(name for name, _ in before).items() if count > 1}
    shared = deque(name for name in names if name in known)
    merged: list[Any] = []
    done: set[str] = set()

    def take(name: str) -> None:
        done.add(name)
        replaced = name not in known or name in twice
        merged.append(after[name] if replaced else merge(item, known[name], after[name]))
        if shared and shared[0] == name:
            shared.popleft()

    left, right = 0, 0
    while left < len(before) or right < len(names):
        if left < len(before):
            name, value = before[left]
            if right < len(names) and name == names[right]:
                take(name)
                left, right = left + 1, right + 1
                continue
            if name in after and right < len(names) and shared and shared[0] != name:
                left += 1
                continue
            if name not in after:
                merged.append(value)
                left += 1
                continue
            if name in done:
                left += 1
        if right < len(names):
            take(names[right])
            right += 1
    return merged or None
