"""What each destination has been sent, in a ConfigMap: it survives a restart, and another replica continues.

One entry for each problem and destination, so replicas with different shards write different entries.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client
from certwright.kube.util.decoders import json_decoder

NAME = "certwright-notifications"
_MOST = 4000
"""Entries of all destinations: some 700 kB, and 1 MiB is the limit of a ConfigMap."""


class Entry(msgspec.Struct, frozen=True):
    """A problem that a destination has been sent, and when it was last."""

    destination: str
    problem: str
    at: datetime


class Reported:
    """The entries. Raises `ApiError` and `Unreachable`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._entries: dict[str, Entry] = {}
        self._unsaved: dict[str, str | None] = {}
        self._is_loaded = False

    def of(self, destination: str) -> dict[str, datetime]:
        """The problems that a destination has been sent, and when."""
        own = (entry for entry in self._entries.values() if entry.destination == destination)
        return {entry.problem: entry.at for entry in own}

    def put(self, destination: str, problem: str, at: datetime) -> None:
        """Note that the destination was sent the problem; `save` writes it."""
        entry, name = Entry(destination, problem, at), _name(destination, problem)
        if name in self._entries or len(self._entries) < _MOST:
            self._entries[name] = entry
            self._unsaved[name] = msgspec.json.encode(entry).decode()

    def drop(self, destination: str, problem: str) -> None:
        """Note that the problem no longer exists; `save` writes it."""
        name = _name(destination, problem)
        if self._entries.pop(name, None) is not None:
            self._unsaved[name] = None

    async def load(self) -> None:
        """Read the entries, once."""
        if self._is_loaded:
            return
        try:
            config_map = await self._client.get(CONFIG_MAPS, NAME, self._namespace)
        except NotFound:
            config_map = None
        for name, text in (config_map.data if config_map is not None else {}).items():
            try:
                self._entries[name] = json_decoder(Entry).decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                # Edited by hand: the problem is reported again.
                continue
        self._is_loaded = True

    async def save(self) -> None:
        """Write what has changed."""
        if not self._unsaved:
            return
        unsaved = dict(self._unsaved)
        try:
            await self._client.patch(CONFIG_MAPS, NAME, self._namespace, {"data": unsaved})
        except NotFound:
            data = {name: text for name, text in unsaved.items() if text is not None}
            made = ConfigMap(metadata=ObjectMeta(name=NAME, namespace=self._namespace), data=data)
            try:
                await self._client.create(CONFIG_MAPS, made)
            except AlreadyExists:
                # Another replica was faster: the next attempt patches.
                return
        for name, text in unsaved.items():
            if self._unsaved.get(name, "") == text:
                del self._unsaved[name]


def _name(destination: str, problem: str) -> str:
    return f"{destination}.{hashlib.sha256(problem.encode()).hexdigest()[:32]}"
