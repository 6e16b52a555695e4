"""Delivery lifecycle: which processes offer which roots, and Deliveries that no process serves.

A process announces its roots by a Lease. The leader observes these Leases, as Kubernetes' node lifecycle
controller observes nodes', and sets `Delivered` of a Delivery to False if no process offers its root, or if
its process has not delivered the Secret's present content. A process that delivers overwrites the condition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.deliveries import permissions
from certwright.controllers.deliveries.cache import secret_name_of
from certwright.controllers.deliveries.checks import DELIVERED, DEPLOYED, failed_status
from certwright.controllers.deliveries.permissions import ROOT_FLAG, DeliveryOptions, Refused
from certwright.controllers.toolbox import Toolbox
from certwright.kit import logs
from certwright.kube.api import conditions
from certwright.kube.api.core import LEASES, Lease, LeaseSpec
from certwright.kube.api.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable
from certwright.kube.api.meta import Condition, ObjectKey, ObjectMeta
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.lease import format_micro_time
from certwright.kube.util.clock import Clock
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources.delivery import Delivery, DeliveryStatus
from certwright.resources.names import DELIVERY_ROOTS
from certwright.resources.table import DELIVERIES

_log = logging.getLogger(__name__)

# Together: within a minute after a process was killed, its Deliveries are reported.
RENEW_S: Final = 10.0
CHECK_S: Final = 5.0
_LASTS_S: Final = 30
_PATIENCE_S: Final = 15.0
"""How long a root may be missing without an expired Lease, because its process is restarted."""
_COMPARE_S: Final = 60.0
"""How often delivered certificates are compared with their Secrets; a difference that is seen twice counts,
because a hook may take a minute."""
_REMOVED_AFTER_S: Final = 86_400.0
_WITHDRAW_S: Final = 2.0


class Offer(msgspec.Struct, frozen=True):
    """A root that a process offers to Deliveries of these namespaces (empty: all)."""

    root: str
    namespaces: Sequence[str] = ()


def format_offers(options: DeliveryOptions) -> str:
    """The value of the annotation: `nginx mail=team-a+team-b`."""
    return " ".join(
        f"{name}={'+'.join(root.namespaces)}" if root.namespaces else name
        for name, root in sorted(options.roots.items())
    )


def parse_offers(text: str, within: str = "") -> Iterator[Offer]:
    """The roots of an annotation. An announcement in the namespace `within` (empty: the controllers'
    namespace) is valid for Deliveries of that namespace only, because its tenants may have written it."""
    for word in text.split():
        name, _, listed = word.partition("=")
        namespaces = [namespace for namespace in listed.split("+") if namespace]
        if not within:
            yield Offer(name, namespaces)
        elif not namespaces or within in namespaces:
            yield Offer(name, (within,))


class Announcement:
    """Announces the roots of this process by a Lease in `namespace`, and renews it."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        options: DeliveryOptions,
        informer: Informer[Delivery],
        namespace: str,
    ) -> None:
        self._client, self._clock, self._options = client, clock, options
        self._informer, self._namespace = informer, namespace
        places = "\n".join((options.host, *sorted(root.directory for root in options.roots.values())))
        self.name = f"certwright-deliveries-{sha256(places.encode()).hexdigest()[:16]}"

    async def run(self) -> None:
        """Announce the roots, until cancelled."""
        is_first, failed = True, ""
        while True:
            try:
                await self._renew()
                if is_first:
                    await self._warn_of_unknown_roots()
                is_first, failed = False, ""
            except (ApiError, Unreachable) as error:
                if str(error) != failed:
                    fix = ""
                    if isinstance(error, Forbidden):
                        rights = "create, patch, delete and list leases"
                        fix = f"; let its user {rights} in namespace {self._namespace}"
                    _log.warning("the roots of this process cannot be announced: %s%s", error, fix)
                failed = str(error)
            await self._clock.sleep(RENEW_S)

    async def withdraw(self) -> None:
        """Delete the Lease, so that the leader need not wait for its end. Never raises."""
        with suppress(ApiError, Unreachable, TimeoutError):
            async with asyncio.timeout(_WITHDRAW_S):
                await self._client.delete(LEASES, self.name, self._namespace)

    async def _renew(self) -> None:
        now = format_micro_time(self._clock.now())
        spec = LeaseSpec(holder_identity=self._options.host, lease_duration_seconds=_LASTS_S, renew_time=now)
        labels, annotations = {DELIVERY_ROOTS: "true"}, {DELIVERY_ROOTS: format_offers(self._options)}
        meta = {"labels": labels, "annotations": annotations}
        patch = {"metadata": meta, "spec": msgspec.to_builtins(spec)}
        try:
            await self._client.patch(LEASES, self.name, self._namespace, patch)
        except NotFound:
            created = ObjectMeta(
                name=self.name, namespace=self._namespace, labels=labels, annotations=annotations
            )
            spec = msgspec.structs.replace(spec, acquire_time=now)
            await self._client.create(LEASES, Lease(metadata=created, spec=spec))

    async def _warn_of_unknown_roots(self) -> None:
        offers: list[Offer] = []
        with suppress(Forbidden):
            leases = (await self._client.list(LEASES, self._namespace, labels=DELIVERY_ROOTS)).items
            offers = [offer for lease in leases for offer in parse_offers(_text(lease))]
        warn_of_unknown_roots(self._informer.cache.values(), self._options, offers)


def warn_of_unknown_roots(
    deliveries: Iterable[Delivery], options: DeliveryOptions, offers: Iterable[Offer]
) -> None:
    """Log the Deliveries whose root neither this process (`options`) nor another (`offers`) offers, if this
    process offers any."""
    roots, own = {*options.roots, *(offer.root for offer in offers)}, ", ".join(sorted(options.roots))
    for delivery in deliveries:
        if own and delivery.spec.root not in roots:
            _warn("root not offered", delivery, root=delivery.spec.root, offeredHere=own)


class DeliveryLifecycle:
    """Sets `Delivered` to False where no process serves a Delivery. Runs in the leader.

    `namespace` is the only one that is watched (empty: all); announcements in `central` are valid for
    Deliveries of all namespaces. `mine` selects the Deliveries of this replica (None: all).
    """

    def __init__(
        self,
        informer: Informer[Delivery],
        caches: Caches,
        toolbox: Toolbox,
        clock: Clock,
        options: DeliveryOptions,
        *,
        namespace: str,
        central: str,
        mine: Mine | None,
    ) -> None:
        self._informer, self._caches, self._toolbox, self._clock = informer, caches, toolbox, clock
        self._options, self._namespace, self._central, self._mine = options, namespace, central, mine
        self._status = toolbox.status_of(informer)
        self._leases: dict[ObjectKey, tuple[str, float]] = {}
        """The last renewal of each, and when it was first seen: by the clock of this process."""
        self._missing: dict[ObjectKey, float] = {}
        """Since when a Delivery's root is missing."""
        self._outdated: dict[ObjectKey, str] = {}
        """The certificates in the Secrets of Deliveries that had another one at the last comparison."""
        self._compare_at = 0.0
        self._silent: set[str] = set()
        """Roots of processes that deliver but announce nothing: of an earlier version, or without the
        right."""
        self._expired: set[str] = set()
        """The roots in expired Leases."""
        self._is_forbidden = False
        self._has_warned = False
        self._changed = asyncio.Event()
        informer.add_handler(self._delivery_changed)

    async def run(self) -> None:
        """Check the Deliveries, until cancelled. Costs nothing while this process offers all roots."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if await self.check():
                    self._changed.set()
            except (ApiError, Unreachable) as error:
                _log.debug("the processes of Deliveries cannot be read: %s", error)
                self._changed.set()
            await self._clock.sleep(CHECK_S)

    async def check(self) -> bool:
        """Check all Deliveries once; returns whether there are any of other processes. Raises what API
        requests raise."""
        others = [
            delivery
            for delivery in self._informer.cache.values()
            if delivery.spec.root not in self._options.roots
            and delivery.metadata.deletion_timestamp is None
            and (self._mine is None or self._mine(_divided_by(delivery)))
        ]
        keys = {delivery.metadata.key for delivery in others}
        for memory in (self._missing, self._outdated):
            for key in memory.keys() - keys:
                del memory[key]
        if not others:
            return False
        offers, now = await self._offers(), self._clock.monotonic()
        if not self._has_warned:
            warn_of_unknown_roots(others, self._options, offers)
        self._has_warned = True
        self._silent -= {offer.root for offer in offers}
        compares = now >= self._compare_at
        if compares:
            self._compare_at = now + _COMPARE_S
        for delivery in others:
            problem = await self._problem(delivery, offers, compares=compares)
            if problem is not None:
                await self._fail(delivery, problem)
        return True

    async def _problem(
        self, delivery: Delivery, offers: Sequence[Offer], *, compares: bool
    ) -> Refused | None:
        key, root, now = delivery.metadata.key, delivery.spec.root, self._clock.monotonic()
        roots = sorted(
            {offer.root for offer in offers if not offer.namespaces or key.namespace in offer.namespaces}
        )
        is_offered = root in roots
        # Without the right to read Leases, a process that has tried is believed to exist.
        delivered = conditions.find(delivery.status.conditions, DELIVERED)
        is_tried = delivered is not None and not lacks_process(delivery.status)
        if is_offered or root in self._silent or (self._is_forbidden and is_tried):
            self._missing.pop(key, None)
            if not compares or not await self._is_outdated(delivery):
                return None
            if is_offered:
                return Refused(
                    permissions.OUTDATED,
                    f"the process that offers the root {root} has not delivered the certificate that the "
                    "Secret has now; its log says why",
                )
            self._silent.discard(root)
        elif now - self._missing.setdefault(key, now) < _PATIENCE_S and root not in self._expired:
            return None
        others = [*roots, *(name for name, own in self._options.roots.items() if own.is_for(key.namespace))]
        offered = f"offered are: {', '.join(sorted(set(others)))}" if others else "no root is offered at all"
        return Refused(
            permissions.NO_PROCESS,
            f"no process offers the root {root} ({offered}); start one with {ROOT_FLAG} {root}=DIR "
            "(`deliveryRoot` in its configuration), or correct spec.root",
        )

    async def _is_outdated(self, delivery: Delivery) -> bool:
        """Whether the Secret has had another certificate than the files for two comparisons."""
        key, current = delivery.metadata.key, delivery.status.current
        if current is None or not conditions.is_true(delivery.status.conditions, DELIVERED):
            self._outdated.pop(key, None)
            return False
        stored = await self._stored(delivery)
        if stored in ("", current.fingerprint):
            self._outdated.pop(key, None)
            return False
        before, self._outdated[key] = self._outdated.get(key), stored
        return before == stored

    async def _stored(self, delivery: Delivery) -> str:
        """The fingerprint of the certificate in the Secret, in hexadecimal; empty if there is none."""
        name = await secret_name_of(delivery, self._caches)
        key = ObjectKey(delivery.metadata.namespace, name or "")
        secret = await self._caches.secrets.peek(key) if name else None
        if secret is None:
            return ""
        try:
            return sha256(read_certificate(secret.data.get("tls.crt", b"")).der).hexdigest()
        except PkiError:
            return ""

    async def _offers(self) -> list[Offer]:
        """The roots that other processes offer. Raises what an API request raises."""
        try:
            leases = (await self._toolbox.client.list(LEASES, self._namespace, labels=DELIVERY_ROOTS)).items
            self._is_forbidden = False
        except Forbidden as error:
            if not self._is_forbidden:
                _log.warning(
                    "the roots of other processes cannot be read, so they are not checked: %s", error
                )
            self._is_forbidden = True
            leases = []
        now, seen, offers = self._clock.monotonic(), self._leases, list[Offer]()
        self._leases, self._expired = {}, set()
        for lease in leases:
            key, renewed = lease.metadata.key, lease.spec.renew_time or ""
            last = seen.get(key)
            self._leases[key] = last = last if last is not None and last[0] == renewed else (renewed, now)
            if now - last[1] < (lease.spec.lease_duration_seconds or 0):
                within = "" if key.namespace == self._central else key.namespace
                offers += parse_offers(_text(lease), within)
                continue
            self._expired |= {offer.root for offer in parse_offers(_text(lease))}
            if now - last[1] > _REMOVED_AFTER_S:
                # The next attempt is a day later, because the right may be missing.
                self._leases[key] = (renewed, now - _LASTS_S)
                with suppress(ApiError):
                    await self._toolbox.client.delete(LEASES, key.name, key.namespace)
        return offers

    async def _fail(self, delivery: Delivery, problem: Refused) -> None:
        before = conditions.find(delivery.status.conditions, DELIVERED)
        now = self._toolbox.now()
        status = failed_status(delivery, problem, None, now)
        if conditions.find(status.conditions, DEPLOYED) is not None:
            unknown = Condition(
                type=DEPLOYED,
                status="Unknown",
                reason=problem.reason,
                message="not checked, because no process delivers",
                observed_generation=delivery.metadata.generation,
            )
            changed = conditions.with_condition(status.conditions, unknown, now)
            status = msgspec.structs.replace(status, conditions=changed)
        if status == delivery.status:
            return
        try:
            written = msgspec.structs.replace(delivery, status=status)
            await self._status.commit(DELIVERIES, delivery, written)
        except (NotFound, Conflict):
            return  # It is gone, or a process delivers it this moment.
        if before is None or before.reason != problem.reason:
            is_missing = problem.reason == permissions.NO_PROCESS
            self._toolbox.recorder.event(DELIVERIES, delivery, "Warning", problem.reason, problem.message)
            message = "delivery has no process" if is_missing else "delivery is outdated"
            _warn(message, delivery, reason=problem.reason, cause=problem.message)

    def _delivery_changed(self, old: Delivery | None, new: Delivery | None) -> None:
        if new is None or new.spec.root in self._options.roots:
            return
        self._changed.set()
        if old is not None and lacks_process(old.status) and not lacks_process(new.status):
            self._silent.add(new.spec.root)


def lacks_process(status: DeliveryStatus) -> bool:
    """Whether the condition says that no process offers the root."""
    condition = conditions.find(status.conditions, DELIVERED)
    return condition is not None and condition.reason == permissions.NO_PROCESS


def _divided_by(delivery: Delivery) -> ObjectKey:
    """The key that decides the shard: the Certificate's, whose Secret its replica has cached, or the
    Delivery's."""
    ref = delivery.spec.certificate_ref
    return ObjectKey(delivery.metadata.namespace, ref.name) if ref is not None else delivery.metadata.key


def _text(lease: Lease) -> str:
    annotations: Mapping[str, str] = lease.metadata.annotations
    return annotations.get(DELIVERY_ROOTS, "")


def _warn(message: str, delivery: Delivery, **values: logs.Value) -> None:
    key = delivery.metadata.key
    logs.event(_log, logging.WARNING, message, subject=f"Delivery/{key}", delivery=str(key), **values)
