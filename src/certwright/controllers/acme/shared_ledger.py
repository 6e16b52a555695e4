"""The ledger of one CA in its ConfigMap, shared by all processes that order there: optimistic concurrency.

Every change is an operation on the ledger, applied here immediately and kept until it is written. A write
names the resourceVersion that it is based on. If another process has written first, its ledger is read, the
operations are applied to it, and the result is written. An operation MUST therefore be safe to apply again,
and its result counts only once it is written.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.acme.ratelimits import published
from certwright.acme.ratelimits.ledger import Ledger, WaitUntil
from certwright.acme.ratelimits.published import CaLimits
from certwright.acme.ratelimits.state import LedgerState, restore, state
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import json_decoder
from certwright.resources import names

Operation = Callable[[Ledger], Any]

_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")

_log = logging.getLogger(__name__)


class Share(msgspec.Struct):
    """The part of one shard: the latest revision of an Order or Challenge whose end is counted, and the
    number of its waiting Orders, by key."""

    revision: int = 0
    waiting: dict[str, int] = {}


class Saved(msgspec.Struct):
    """`state.json`. `shares` by shard (`K/N`); `revision` is the one written by versions without shares."""

    ledger: LedgerState = msgspec.field(default_factory=LedgerState)
    shares: dict[str, Share] = {}
    revision: int = 0

    def revision_of(self, share: str) -> int:
        """The revision up to which the Orders of that shard have been counted."""
        if share in self.shares:
            return self.shares[share].revision
        # The number of shards has changed since.
        return max((self.revision, *(counted.revision for counted in self.shares.values())))


class SharedLedger:
    """The ledger of the CA at `server`, stored in `namespace`. `own`: the shards of this process; `everyone`:
    all shards. The caller raises `revision` to the revision of each observed Order and Challenge."""

    def __init__(
        self,
        server: str,
        limits: CaLimits,
        wake: Callable[[str], None],
        *,
        client: Client,
        clock: Clock,
        namespace: str,
        own: Collection[str],
        everyone: Collection[str],
    ) -> None:
        self.server = server
        self.ledger = Ledger(limits, wake)
        self.revision = 0
        self.saved = Saved()
        """What was last read or written."""
        self._client = client
        self._clock = clock
        self._name = config_map_name(server)
        self._namespace = namespace
        self._own = own
        self._everyone = everyone
        self._version = ""
        self._is_new = False
        self._read_at = 0.0
        self._operations: list[Operation] = []
        self._count = 0
        """How many operations there have been; the last of them are not written yet."""
        self._using = asyncio.Lock()

    @property
    def is_shared(self) -> bool:
        """Whether other processes order at the CA as well."""
        return len(self._everyone) > len(self._own)

    @property
    def has_changed(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._operations)

    def change(self, operation: Operation) -> None:
        """Apply the operation; `commit` writes its changes, if it has made any."""
        self.ledger.is_changed = False
        operation(self.ledger)
        if self.ledger.is_changed:
            self._operations.append(operation)
            self._count += 1

    async def reserve(self, ask: Callable[[Ledger], WaitUntil | None]) -> WaitUntil | None:
        """The result of `ask`; a reservation is written when this returns. Raises `Unreachable`."""
        answers: list[WaitUntil | None] = []
        self.change(lambda ledger: answers.append(ask(ledger)))
        if answers[-1] is None:
            await self.commit()
        return answers[-1]

    async def load(self) -> bool:
        """Load the saved ledger; False: none exists, or none that can be parsed. Raises `Unreachable`."""
        async with self._using:
            try:
                is_loaded = self._restore(await self._get())
            except ApiError as error:
                _log.warning("the ACME limits of %s are counted from the Orders only: %s", self.server, error)
                is_loaded = False
            self._is_new = not is_loaded
            return is_loaded

    async def refresh(self, max_age_s: float) -> None:
        """Load the ledger of other processes, unless it was read within `max_age_s`. Raises `Unreachable`."""
        async with self._using:
            if self._clock.monotonic() - self._read_at < max_age_s:
                return
            try:
                config_map = await self._get()
            except ApiError as error:
                _log.warning("the ACME limits of %s cannot be read: %s", self.server, error)
                return
            if config_map is not None and config_map.metadata.resource_version != self._version:
                self._restore(config_map)

    async def commit(self) -> None:
        """Write what has changed, once for all callers that wait during the write. Raises `Unreachable`."""
        until = self._count
        async with self._using:
            while self._operations and self._count - len(self._operations) < until:
                written = len(self._operations)
                try:
                    await self._write()
                except (Conflict, AlreadyExists):
                    try:
                        self._restore(await self._get())
                        continue
                    except ApiError as error:
                        self._warn(error)
                except ApiError as error:
                    self._warn(error)
                del self._operations[:written]

    def _warn(self, error: ApiError) -> None:
        # Not being allowed to write ConfigMaps must not stop issuance.
        _log.warning("the ACME limits of %s are not saved: %s", self.server, error)

    async def _get(self) -> ConfigMap | None:
        self._read_at = self._clock.monotonic()
        try:
            return await self._client.get(CONFIG_MAPS, self._name, self._namespace)
        except NotFound:
            return None

    def _restore(self, config_map: ConfigMap | None) -> bool:
        """Continue from the saved ledger; pending operations are applied to it."""
        self._version = config_map.metadata.resource_version if config_map is not None else ""
        if config_map is None:
            return False
        try:
            self.saved = json_decoder(Saved).decode(config_map.data.get("state.json", ""))
            changed = restore(self.ledger, self.saved.ledger, self._clock.now())
        except (msgspec.DecodeError, ValueError) as error:
            _log.warning(
                "ConfigMap %s cannot be read and is rewritten from local data: %s",
                config_map.metadata.key,
                error,
            )
            return False
        self.ledger.waiting_elsewhere = _waiting(self._others())
        for operation in self._operations:
            operation(self.ledger)
        self._is_new = False
        for key in changed:
            self.ledger.waiting.wake_next(key)
        return True

    def _others(self) -> list[Share]:
        return [share for name, share in self.saved.shares.items() if name not in self._own]

    async def _write(self) -> None:
        saved, data = self._content(self._clock.now())
        if self._version:
            patch = {"metadata": {"resourceVersion": self._version}, "data": data}
            try:
                made = await self._client.patch(CONFIG_MAPS, self._name, self._namespace, patch)
            except NotFound:
                self._version = ""
        if not self._version:
            labels = {names.ACME_LIMITS_LABEL: "true", names.MANAGED_BY_LABEL: "cert-manager"}
            meta = ObjectMeta(name=self._name, namespace=self._namespace, labels=labels)
            made = await self._client.create(CONFIG_MAPS, ConfigMap(metadata=meta, data=data))
        self._version, self._read_at = made.metadata.resource_version, self._clock.monotonic()
        self.saved, self._is_new = saved, False

    def _content(self, now: datetime) -> tuple[Saved, dict[str, str]]:
        """The ledger to write, and the ConfigMap's data."""
        ledger = state(self.ledger, now)
        waiting = ledger.waiting
        shares = {
            name: Share(share.revision, share.waiting if name in self._everyone else {})
            for name, share in self.saved.shares.items()
        }
        # The creator of the ledger has counted the Orders of all shards; later each shard counts its own.
        for name in self._everyone if self._is_new else self._own:
            shares[name] = Share(self.revision)
        shares[min(self._own)].waiting = waiting
        ledger.waiting = _waiting(shares.values())
        saved = Saved(ledger, shares)
        return saved, {
            "server": self.server,
            "limits.json": msgspec.json.encode(_rules(self.ledger.limits)).decode(),
            "state.json": msgspec.json.encode(saved).decode(),
        }


def _waiting(shares: Iterable[Share]) -> dict[str, int]:
    """How many wait for each key in all of them."""
    counts = Counter[str]()
    for share in shares:
        counts.update(share.waiting)
    return dict(counts)


def _rules(limits: CaLimits) -> dict[str, Any]:
    rules = {
        name: {
            "meaning": published.MEANINGS[name],
            "count": limit.rate.count,
            "windowSeconds": limit.rate.window.total_seconds(),
            "refills": limit.rate.refills,
            "overrides": dict(limit.overrides),
        }
        for name, limit in limits.limits.items()
    }
    return {"name": limits.name, "limits": rules}


def config_map_name(server: str) -> str:
    """The name of the ConfigMap for the CA with that directory URL."""
    host = _NOT_A_NAME.sub("-", published.host_of(server)).strip("-")[:40]
    return f"acme-limits-{host}-{hashlib.sha256(server.encode()).hexdigest()[:8]}"
