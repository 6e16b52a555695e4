"""The cache of the Secrets that the controllers work with. Its memory does not depend on the number of
others.

Secrets with the label `controller.cert-manager.io/fao` are cached in full. Of Secrets without the label, the
cache has those that an object here refers to, and of each the result of one live GET for each change, shared
by all callers. Of all others it has a hash of the name. Idle Secrets may be cached without their private key
(`transforms.py`).

A Secret that gains or loses the label appears as deleted in one watch and as new in the other, in any order.
If neither copy can confirm its state, it is read from the API server: a Secret that has moved between the
copies is never reported missing.

Source: cert-manager `design/20221205-memory-management.md`, feature gate `SecretsFilteredCaching`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from certwright.controllers.cache.indexes import owning_certificates
from certwright.controllers.cache.shard_filter import Keep, is_owned_by_certificate, owning_certificate
from certwright.controllers.cache.transforms import is_complete, without_key
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.api.meta import ObjectKey, Owned
from certwright.kube.client.cache import Indexer, key_of, revision_of
from certwright.kube.client.compressed import Packing
from certwright.kube.client.filtered_informer import (
    Identified,
    PartialInformer,
    SelectiveInformer,
    follow_some,
    identities,
)
from certwright.kube.client.informer import Informer, identity
from certwright.kube.client.rest import Client
from certwright.kube.util.caches import Lru
from certwright.kube.util.clock import Clock
from certwright.resources import names

SecretHandler = Callable[[ObjectKey, Sequence[Owned]], None]
"""Called with the name of a Secret that was created, changed or deleted, and with its states before and after
as far as they are cached. Must not block."""

Use = Callable[[ObjectKey], bool]
"""Whether something refers to a Secret of that name."""

_log = logging.getLogger(__name__)

_OWNER: Final = "owner"
_LABELLED: Final = "true"
# Full Secrets, of some kilobytes each as a rule and a megabyte at most; metadata comes in pages of 500.
_PAGE: Final = 200
# An object that changes faster than it can be read is not waited for.
_MAX_READS: Final = 5
# The number of unreferenced Secrets that may be cached before a search for them begins.
_SLACK: Final = 64
# Secrets whose label could not be restored.
_REMEMBERED: Final = 1024


class _Known(NamedTuple):
    """The state of a name in the two copies: its revisions, when it left either copy, and whether another
    replica has it."""

    full: int | None
    bare: int | None
    left_at: float | None
    others_left_at: float | None


class _LiveGet(msgspec.Struct, frozen=True):
    """A live GET in progress, and the state of the copies when it began."""

    known: _Known
    answer: asyncio.Future[Secret | None]


class Secrets:
    """Reads Secrets of one namespace or of all, and notifies handlers of changes.

    `owner_of` returns the index values under which `next_keys_of` finds a Secret. `is_filtered` False caches
    all Secrets in full. For a Secret without the label, events are delivered and a read is cached only if a
    Certificate controls the Secret or one of the `add_use` functions reports that it is in use; a caller MUST
    ensure this before it reads the Secret. The same holds for labelled Secrets that `keep` rejects (`keep`
    None: it rejects none), which are cached in full once read.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        owner_of: Indexer[Secret],
        namespace: str = "",
        packing: Packing[Secret] | None = None,
        is_filtered: bool = True,
        keep: Keep | None = None,
    ) -> None:
        self._client = client
        self._owner_of = owner_of
        self._unlabelled: Lru[str, str] = Lru(_REMEMBERED)
        self._uses: list[Use] = []
        self._handlers: list[SecretHandler] = []
        self._read: dict[ObjectKey, Secret] = {}
        self._live_gets: dict[ObjectKey, _LiveGet] = {}
        self._full: Informer[Secret] = follow_some(
            client,
            SECRETS,
            clock,
            keep=self._or_used(keep) if keep is not None else None,
            namespace=namespace,
            labels=names.FAO_LABEL if is_filtered else "",
            indexers={_OWNER: owner_of},
            packing=packing,
            page=_PAGE,
        )
        self._full.add_handler(self._full_changed)
        self._bare: SelectiveInformer[Identified] | None = None
        if is_filtered:
            self._bare = SelectiveInformer(
                client,
                identities(SECRETS),
                clock,
                keep=lambda raw: self._is_used(identity(raw)) or is_owned_by_certificate(raw),
                indexers={_OWNER: owning_certificates},
                elsewhere=self._full,
                namespace=namespace,
                labels=f"!{names.FAO_LABEL}",
            )
            self._bare.add_handler(self._bare_changed)
            if isinstance(self._full, PartialInformer):
                self._full.split_with(self._bare)
        self._swept = 0

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """The informers that must run, and be in sync, for this to be right."""
        return (self._full,) if self._bare is None else (self._full, self._bare)

    def add_use(self, use: Use) -> None:
        """Deliver events of the Secrets that `use` names, and remember what is read of them."""
        self._uses.append(use)

    def add_handler(self, handler: SecretHandler) -> None:
        """Call `handler` for every change, and immediately for everything that is cached already."""
        self._handlers.append(handler)
        for secret in self._full.cache.values():
            handler(secret.metadata.key, (secret,))

    async def next_keys_of(self, owner: str) -> list[Secret]:
        """The Secrets with that index value, including Secrets that have lost the label, which are read live,
        once for each change. Raises what a GET raises."""
        found = self._full.cache.by_index(_OWNER, owner)
        if self._bare is None:
            return found
        for key in self._bare.cache.keys_by_index(_OWNER, owner):
            secret = await self.peek(key)
            if secret is not None and secret not in found and owner in self._owner_of(secret):
                found.append(secret)
        return found

    def put(self, secret: Secret) -> None:
        """Put the answer to an own write into the cache."""
        if self._store(secret):
            self._notify(secret.metadata.key, (secret,))

    def forget(self, secret: Secret) -> None:
        """Record that we have deleted `secret` in this state, without finalizers."""
        key = secret.metadata.key
        self._full.forget(secret)
        if self._bare is None:
            return
        self._bare.forget(Identified.of(secret.metadata))
        # The Secret is known to be deleted: no search is needed.
        if self._bare.others.left_at(key):
            self._bare.others.discard(key)

    async def restore_label(self, secret: Secret) -> bool:
        """Restore the label of a Secret that we have made; return whether the label was missing, and is
        restored. Tried once for each revision, because a webhook may remove the label."""
        meta = secret.metadata
        if meta.labels.get(names.FAO_LABEL) == _LABELLED:
            return False
        if self._unlabelled.get(meta.uid) == meta.resource_version:
            return False
        patch = {"metadata": {"uid": meta.uid, "labels": {names.FAO_LABEL: _LABELLED}}}
        try:
            written = await self._client.patch(SECRETS, meta.name, meta.namespace, patch)
        except ApiError as error:
            # It only saves requests, so a failure is ignored.
            _log.info("Secret %s: its label cannot be put back: %s", meta.key, error)
            return False
        self.put(written)
        if written.metadata.labels.get(names.FAO_LABEL) == _LABELLED:
            return True
        self._unlabelled.put(meta.uid, written.metadata.resource_version)
        return False

    def strip_key(self, secret: Secret, public_key_der: bytes) -> bool:
        """Strip the private key of this Secret, if the cache still has this revision; return whether it is
        stripped. `public_key_der` is that of the key."""
        cache = self._full.cache
        if cache.revision(secret.metadata.key) != revision_of(secret):
            return False
        bare = without_key(secret, public_key_der=public_key_der)
        if bare is not secret:
            cache.overwrite(bare)
        return bare is not secret

    async def get(self, key: ObjectKey) -> Secret | None:
        """The Secret in full; None if it does not exist. Read live if its private key is stripped from the
        cache. Raises what a GET raises."""
        secret = await self.peek(key)
        if secret is None or is_complete(secret):
            return secret
        answer = await self._get_shared(key, self._known(key))
        if answer is None:
            # Deleted; its watch event is on its way.
            self._full.forget(secret)
        return answer

    async def peek(self, key: ObjectKey) -> Secret | None:
        """The Secret, perhaps without its private key; None if it does not exist.

        In both copies: read live, because one copy is stale. Only in the unlabelled copy: read live, once for
        each change. Only in the labelled copy: from the copy. In neither: the Secret does not exist, unless
        it has just left one of them. Raises what a GET raises.
        """
        answer = None
        for _ in range(_MAX_READS):
            full = self._full.cache.get(key)
            if full is not None and not self._may_be_bare(key):
                return full
            known = self._known(key)
            if full is not None and _is_only_full(known):
                return full
            if known == _NOTHING:
                return None
            if full is None and known.bare is not None and (read := self._read.get(key)) is not None:
                return read
            answer = await self._get_shared(key, known)
            if self._is_fresh(answer, key, known):
                break
        return answer

    def _may_be_bare(self, key: ObjectKey) -> bool:
        """Whether the copy without the label knows anything of that name: of hardly any that is labelled."""
        bare = self._bare
        return bare is not None and (key in bare.cache or bare.others.left_at(key) is not None)

    def _known(self, key: ObjectKey) -> _Known:
        full, bare = self._full.cache.revision(key), self._bare
        return _Known(
            full,
            bare.cache.revision(key) if bare is not None else None,
            bare.others.left_at(key) if bare is not None else None,
            self._full.others.left_at(key) if isinstance(self._full, PartialInformer) else None,
        )

    def _is_fresh(self, answer: Secret | None, key: ObjectKey, known: _Known) -> bool:
        """Whether the copies have learned nothing newer than the answer since the read began."""
        now = self._known(key)
        if answer is None:
            return now in (known, _NOTHING)
        if max(now.full or 0, now.bare or 0) > revision_of(answer):
            return False
        # A Secret deleted during the read was not cached yet, so that no handler was called.
        copy = self._full if self._bare is None or _is_labelled(answer) else self._bare
        return not 0 < revision_of(answer) <= copy.cache.tombstone_revision(key)

    async def _get_shared(self, key: ObjectKey, known: _Known) -> Secret | None:
        live_get = self._live_gets.get(key)
        if live_get is None or live_get.known != known:
            return await self._get_live(key, known)
        await asyncio.wait((live_get.answer,))
        # A cancelled read is no answer for other callers.
        return await self._get_shared(key, known) if live_get.answer.cancelled() else live_get.answer.result()

    async def _get_live(self, key: ObjectKey, known: _Known) -> Secret | None:
        live_get = self._live_gets[key] = _LiveGet(known, asyncio.get_running_loop().create_future())
        try:
            answer = await self._live(key, known)
        except Exception as error:
            live_get.answer.set_exception(error)
            # Retrieved here, because asyncio warns of exceptions that no task retrieves.
            live_get.answer.exception()
            raise
        else:
            live_get.answer.set_result(answer)
            return answer
        finally:
            live_get.answer.cancel()
            if self._live_gets.get(key) is live_get:
                del self._live_gets[key]

    async def _live(self, key: ObjectKey, known: _Known) -> Secret | None:
        """The API server's answer, also put into the copies."""
        try:
            secret = await self._client.get(SECRETS, key.name, key.namespace)
        except NotFound:
            self._settle_absence(key, known)
            return None
        self._store(secret)
        return secret

    def _store(self, secret: Secret) -> bool:
        """Put this state into the cache; return whether handlers have not been notified of it yet."""
        bare, who = self._bare, Identified.of(secret.metadata)
        key, revision = secret.metadata.key, revision_of(secret)
        if bare is None or _is_labelled(secret):
            if bare is not None:
                self._read.pop(key, None)
                bare.moved_out(key, revision)
            if self._full.cache.revision(key) == revision:
                # The same state, with its stripped parts restored.
                self._full.cache.overwrite(secret)
            else:
                self._full.put(secret)
            return False
        # Add it to this copy before its removal from the other, because the removal's handlers look here.
        if is_news := bare.cache.accepts(who):
            if self._is_used(key) or owning_certificate(who) is not None:
                bare.take(who)
            else:
                bare.release(key)
        if bare.cache.revision(key) == revision:
            self._read[key] = secret
            self._sweep(bare)
        self._full.forget(secret)
        return is_news

    def _settle_absence(self, key: ObjectKey, known: _Known) -> None:
        """Record that an expected Secret is missing: it was deleted, and its watch event may have arrived."""
        if known.full is not None or known.bare is not None or self._known(key) != known:
            return
        for copy in self.informers:
            if isinstance(copy, PartialInformer):
                copy.others.discard(key)

    def _is_used(self, key: ObjectKey) -> bool:
        return any(use(key) for use in self._uses)

    def _or_used(self, keep: Keep) -> Keep:
        return lambda raw: keep(raw) or self._is_used(identity(raw))

    def _full_changed(self, old: Secret | None, new: Secret | None) -> None:
        states = [state for state in (old, new) if state is not None]
        key = states[0].metadata.key
        if new is None and self._bare is not None:
            self._bare.may_move_in(key, self._full.cache.tombstone_revision(key))
        self._notify(key, states)

    def _bare_changed(self, old: Identified | None, new: Identified | None) -> None:
        states = [state for state in (old, new) if state is not None]
        key = key_of(states[0])
        self._read.pop(key, None)
        self._notify(key, states)

    def _notify(self, key: ObjectKey, states: Sequence[Owned]) -> None:
        for handler in self._handlers:
            handler(key, states)

    def _sweep(self, bare: SelectiveInformer[Identified]) -> None:
        """Evict Secrets that nothing refers to, when there may be many of them."""
        if len(bare.cache) <= 2 * self._swept + _SLACK:
            return
        for who in bare.cache.values():
            if not self._is_used(key := key_of(who)) and owning_certificate(who) is None:
                bare.release(key)
        self._read = {key: secret for key, secret in self._read.items() if key in bare.cache}
        self._swept = len(bare.cache)


_NOTHING: Final = _Known(None, None, None, None)


def _is_labelled(secret: Secret) -> bool:
    return names.FAO_LABEL in secret.metadata.labels


def _is_only_full(known: _Known) -> bool:
    if known.full is None or known.bare is not None:
        return False
    # Left at a revision that is not newer than this: it moved here.
    return known.left_at is None or 0 < known.left_at <= known.full


K = TypeVar("K", bound=Hashable)


class Dependents(Generic[K]):
    """A two-way index between Secrets and the objects that depend on them."""

    def __init__(self) -> None:
        self._by_secret: dict[ObjectKey, set[K]] = {}
        self._by_dependent: dict[K, set[ObjectKey]] = {}

    def add(self, dependent: K, secret: ObjectKey) -> None:
        """From now on `of(secret)` includes `dependent`.

        Must be called BEFORE the Secret is read: a change between reading and adding would be missed.
        """
        self._by_secret.setdefault(secret, set()).add(dependent)
        self._by_dependent.setdefault(dependent, set()).add(secret)

    def keep_only(self, dependent: K, secrets: Iterable[ObjectKey]) -> None:
        """Forget what `dependent` depended on besides `secrets`."""
        for secret in self._by_dependent.get(dependent, set()) - set(secrets):
            self._by_secret[secret].discard(dependent)
            if not self._by_secret[secret]:
                del self._by_secret[secret]
            self._by_dependent[dependent].discard(secret)
            if not self._by_dependent[dependent]:
                del self._by_dependent[dependent]

    def __contains__(self, secret: ObjectKey) -> bool:
        """Whether an object depends on that Secret."""
        return secret in self._by_secret

    def of(self, secret: ObjectKey) -> tuple[K, ...]:
        """The objects that depend on that Secret."""
        return tuple(self._by_secret.get(secret, ()))
