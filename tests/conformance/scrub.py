"""Takes out of answers what is by chance: uids, revisions, times, generated names, continue tokens.

Uids and revisions become the number of their first appearance on their object, so that "the same as before"
and "another one" can still be told apart.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_AGE = re.compile(r"\d+s|\d+m(\d+s)?|<invalid>")
_REVISION_IN_TEXT = re.compile(
    r"(esource ?[vV]ersion[^:\d]*(?: in precondition| in object meta)?[:=] ?|current: "
    r"|in the precondition \()(\d+)"
)
# JSON in a text, its quotes escaped as often as that takes.
_REVISION_IN_JSON = re.compile(r'(resourceVersion\\*": ?\\*")\d+')
_TIME_IN_JSON = re.compile(r'((?:(?:creation|deletion)Timestamp|time)\\*": ?\\*")' + _TIME.pattern)
_TIME_FIELDS = frozenset(
    {"creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime", "lastUpdateTime"}
)


class Scrubber:
    """Replaces what is by chance, the same way for everything that one server says."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._revisions: dict[tuple[str, str], str] = {}
        self._seen: Counter[str] = Counter()
        self._generated: dict[str, str] = {}

    def learn(self, value: Any, *, prefix: str = "") -> None:
        """Look for names that the server generated; `prefix` is what the client asked for."""
        if not isinstance(value, dict):
            return
        meta = value.get("metadata")
        if isinstance(meta, dict) and meta.get("generateName") and meta.get("name"):
            self._learn_name(str(meta["name"]))
        details = value.get("details")
        if prefix and isinstance(details, dict) and str(details.get("name", "")).startswith(prefix[:58]):
            self._learn_name(str(details["name"]))
        self.learn(value.get("object"))
        for item in value.get("items") or ():
            self.learn(item)

    def _learn_name(self, name: str) -> None:
        if re.fullmatch(r".*[bcdfghjklmnpqrstvwxz2456789]{5}", name) and name not in self._generated:
            self._generated[name] = f"{name[:-5]}GENERATED{len(self._generated)}"

    def text(self, text: str) -> str:
        """A text without uids, revisions and generated names."""
        for name, shown in self._generated.items():
            if name in text:
                text = text.replace(name, shown)
        text = _UID.sub(lambda match: self._uids.get(match[0], "UID"), text)
        text = _REVISION_IN_TEXT.sub(lambda match: match[1] + "REVISION", text)
        text = _REVISION_IN_JSON.sub(r"\1REVISION", text)
        text = _TIME_IN_JSON.sub(r"\1TIME", text)
        text = re.sub(r"continue=[^& ]+", "continue=TOKEN", text)
        text = re.sub(r"(in record \()\d+", r"\1REVISION", text)
        return re.sub(r"(too old resource version: )\w+ \(\d+\)", r"\1REVISION", text)

    def plain(self, text: str) -> str:
        """A body that is not JSON, without what is by chance."""
        text = _TIME.sub("TIME", self.text(text))
        return re.sub(r'(resourceVersion: ")\d+', r"\1REVISION", text)

    def _of_object(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Metadata whose uid and revision are numbered, for each object by itself: one write more or less
        is one difference, not a hundred."""
        name = self.text(str(meta.get("name", "")))
        whose = f"{meta.get('namespace', '')}/{name}"
        metadata = dict(meta)
        uid, revision = meta.get("uid"), meta.get("resourceVersion")
        if isinstance(uid, str) and _UID.fullmatch(uid):
            if uid not in self._uids:
                self._seen[whose] += 1
                self._uids[uid] = f"UID of {whose} #{self._seen[whose]}"
            metadata["uid"] = self._uids[uid]
        if isinstance(revision, str) and revision.isdecimal() and revision != "0":
            key = (whose, revision)
            if key not in self._revisions:
                self._seen[f"{whose} rv"] += 1
                self._revisions[key] = f"REVISION of {whose} #{self._seen[f'{whose} rv']}"
            metadata["resourceVersion"] = self._revisions[key]
        return metadata

    def json(self, value: Any) -> Any:
        """A JSON value without what is by chance."""
        if isinstance(value, dict):
            return {name: self._member(name, item) for name, item in _unrevised(value).items()}
        if isinstance(value, list):
            return [self.json(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _member(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._string(name, value)
        if name == "metadata" and isinstance(value, dict) and value.get("name"):
            value = self._of_object(value)
        if name == "managedFields" and isinstance(value, list):
            # Entries are sorted by time, and two writes may or may not fall into one second.
            return sorted(map(self.json, value), key=_in_order)
        if name == "cells" and isinstance(value, list):
            return [
                "AGE" if isinstance(cell, str) and _AGE.fullmatch(cell) else self.json(cell) for cell in value
            ]
        return self.json(value)

    def _string(self, name: str, value: str) -> str:
        if name in _TIME_FIELDS and _TIME.fullmatch(value):
            return "TIME"
        if name == "continue" and value:
            return "TOKEN"
        return self.text(value)


def _in_order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _unrevised(value: dict[str, Any]) -> dict[str, Any]:
    """Without the revision of a list, a Table or a bookmark: it is that of the store, which other writes
    move too."""
    if value.get("type") == "BOOKMARK" and isinstance(value.get("object"), dict):
        return {**value, "object": _bookmark(value["object"])}
    if str(value.get("kind", "")).endswith(("List", "Table")):
        return _without_revision(value)
    return value


def _bookmark(value: dict[str, Any]) -> dict[str, Any]:
    """The object of a bookmark; in a Table it is a row."""
    if value.get("kind") != "Table":
        return _without_revision(value)
    rows = [
        {**row, "object": _without_revision(row["object"])} if isinstance(row.get("object"), dict) else row
        for row in value.get("rows") or ()
    ]
    return {**_without_revision(value), "rows": rows}


def _without_revision(value: dict[str, Any]) -> dict[str, Any]:
    meta = value.get("metadata")
    if not isinstance(meta, dict) or "resourceVersion" not in meta:
        return value
    shown = "REVISION" if str(meta["resourceVersion"]).isdecimal() else meta["resourceVersion"]
    return {**value, "metadata": {**meta, "resourceVersion": shown}}
