"""Index of all certificates: one small row for each, kept up to date while the dashboard is used.

Lists are computed from the rows, so that their cost does not depend on the size of the objects. `Scope`
filters out rows that the user may not list.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from certwright.diagnosis import related
from certwright.diagnosis.certificates import condition, is_true, issuer_ref, retry_of
from certwright.diagnosis.deliveries import source_of
from certwright.diagnosis.words import parse_time, sentence
from certwright.kube.api import errors
from certwright.kube.api.core import SELF_SUBJECT_ACCESS_REVIEWS, SELF_SUBJECT_RULES_REVIEWS
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet
from certwright.resources import plain_kinds

Json = dict[str, Any]
T = TypeVar("T")
_LONGEST_MESSAGE: Final = 400
_AGAIN_S: Final = 2.0
_MOST_REMEMBERED: Final = 16
_PATIENCE_S: Final = 2.0
"""How long a page waits for the first list; then it shows what has been listed."""
_AT_ONCE: Final = 8
"""Namespaces whose rules are asked for at the same time."""
_DETAILS: Final = (
    plain_kinds.CERTIFICATE_REQUESTS,
    plain_kinds.ORDERS,
    plain_kinds.CHALLENGES,
    related.EVENTS,
)
_log = logging.getLogger(__name__)


class State(StrEnum):
    """The state of a certificate, by its object alone; expiry, which depends on the time, is not a state."""

    READY = "ready"
    ISSUING = "issuing"
    FAILED = "failed"
    WAITING = "waiting"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate. Times are Unix times, 0 for none. `issuer`: `Kind/name`, with `.group` for a foreign
    group. `is_valid`: the Secret has a valid certificate, also during a re-issue. `message`: the reason,
    unless ready; `since`: when the state began."""

    namespace: str
    name: str
    names: tuple[str, ...]
    secret: str
    issuer: str
    is_ca: bool
    state: State
    is_valid: bool
    not_before: float
    not_after: float
    renewal: float
    attempts: int
    next_attempt: float
    message: str
    since: float
    resource_version: str = ""

    @property
    def metadata(self) -> Row:
        """The row's identity for a cache: the object's namespace, name and resourceVersion."""
        return self

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)


class Lamps(msgspec.Struct, frozen=True):
    """Whether all Deliveries of the certificate have delivered it, and whether it is served; None: no
    Deliveries, or unknown. `problem`: the reason, in a clause."""

    delivered: bool | None = None
    served: bool | None = None
    problem: str = ""


class Scope(msgspec.Struct, frozen=True):
    """The objects of a resource that a user may list: all (`everywhere`), namespaces, or single objects."""

    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()
    names: frozenset[ObjectKey] = frozenset()

    def allows(self, namespace: str, name: str) -> bool:
        """Whether the object is among them."""
        return self.everywhere or namespace in self.namespaces or ObjectKey(namespace, name) in self.names


def row_of(certificate: Json) -> Row:
    """The row of a Certificate."""
    meta, spec, status = (
        certificate["metadata"],
        certificate.get("spec") or {},
        certificate.get("status") or {},
    )
    issuing = condition(certificate, "Issuing")
    record = retry_of(certificate)
    ready = is_true(certificate, "Ready")
    attempts = int(status.get("failedIssuanceAttempts") or 0)
    if issuing.get("status") == "True":
        state = State.ISSUING
    elif status.get("lastFailureTime"):
        state = State.FAILED
    elif ready:
        state = State.READY
    else:
        state = State.WAITING
    said = issuing if state in (State.ISSUING, State.FAILED) else condition(certificate, "Ready")
    message = sentence(str((record.message if record else "") or said.get("message", "")))
    ref = issuer_ref(certificate)
    group = "" if ref["group"] == "cert-manager.io" else f".{ref['group']}"
    kinds = ("dnsNames", "ipAddresses", "uris", "emailAddresses")
    names = tuple(str(name) for kind in kinds for name in spec.get(kind) or ())
    next_attempt = record.next_attempt if record is not None else None
    return Row(
        namespace=sys.intern(meta["namespace"]),
        name=meta["name"],
        resource_version=str(meta.get("resourceVersion", "")),
        names=names or ((str(spec["commonName"]),) if spec.get("commonName") else ()),
        secret=str(spec.get("secretName", "")),
        issuer=sys.intern(f"{ref['kind']}{group}/{ref['name']}"),
        is_ca=bool(spec.get("isCA")),
        state=state,
        is_valid=ready,
        not_before=_unix(status.get("notBefore")),
        not_after=_unix(status.get("notAfter")),
        renewal=_unix(status.get("renewalTime")),
        attempts=attempts,
        next_attempt=next_attempt.timestamp() if next_attempt is not None else 0.0,
        message="" if state == State.READY else message[:_LONGEST_MESSAGE],
        since=_unix(said.get("lastTransitionTime") or meta.get("creationTimestamp")),
    )


def _unix(value: Any) -> float:
    moment = parse_time(value)
    return moment.timestamp() if moment is not None else 0.0


class _Rows(Informer[Any]):
    """The informer of Certificates, which keeps their rows instead."""

    def _decode(self, raw: msgspec.Raw) -> Row | None:
        certificate = super()._decode(raw)
        return None if certificate is None else row_of(certificate)


class Index:
    """Rows of all certificates, and the issuers and Deliveries as JSON.

    `generation` counts changes. `changed` is called after each change, and must not block.
    """

    def __init__(self, client: Client, clock: Clock, *, namespace: str = "") -> None:
        self._tasks = TaskSet()
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._details: TaskSet | None = None
        self._detail_observers: set[tuple[str, Callable[[], None]]] = set()
        self._certificates = _Rows(client, plain_kinds.CERTIFICATES, clock, namespace=namespace)
        kinds = (plain_kinds.ISSUERS, plain_kinds.DELIVERIES, plain_kinds.CLUSTER_ISSUERS)
        self._informers: dict[str, Informer[Json]] = {
            kind.plural: Informer(
                client,
                kind,
                clock,
                namespace=namespace,
                is_optional=True,
                indexers={"source": _source_key} if kind is plain_kinds.DELIVERIES else None,
            )
            for kind in kinds[: 2 if namespace else None]
        }
        self.generation = 0
        self._frozen = -1
        self._remembered: dict[Hashable, Any] = {}
        self._rows: list[Row] = []
        self._deliveries: list[Json] = []
        self._namespaces: Counter[str] = Counter()
        self._ordered: dict[str, tuple[int, list[Row]]] = {}
        self._observers: set[Callable[[], None]] = set()
        self._certificates.add_handler(self._follow)
        self._tasks.start(self._certificates.run(), name="dashboard: certificates")
        for plural, informer in self._informers.items():
            informer.add_handler(self._note)
            self._tasks.start(informer.run(), name=f"dashboard: {plural}")

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed."""
        return all(informer.synced.is_set() for informer in (self._certificates, *self._informers.values()))

    @property
    def observers(self) -> int:
        """The number of open pages."""
        return len(self._observers)

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when everything has been listed, or after that time (None: the time of a page). The
        functions below return this state in other threads, too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S if patience_s is None else patience_s):
                for informer in (self._certificates, *self._informers.values()):
                    await informer.synced.wait()
        if self._frozen != self.generation or len(self._remembered) > _MOST_REMEMBERED:
            self._remembered = {}
            self._frozen = self.generation
            self._rows = list(self._certificates.cache.values())
            self._deliveries = list(self._informers["deliveries"].cache.values())

    def __len__(self) -> int:
        return len(self._certificates.cache)

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of certificates, in order."""
        return sorted(self._namespaces)

    def get(self, key: ObjectKey) -> Row | None:
        """The row of a certificate."""
        row: Row | None = self._certificates.cache.get(key)
        return row

    def observe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change, until the returned function is called."""
        self._observers.add(changed)
        return lambda: self._observers.discard(changed)

    def observe_details(self, namespace: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change of a request, order, challenge or Event of that namespace (`*`: of
        any), until the returned function is called. They are followed only while an observer exists."""
        entry = (namespace, changed)
        self._detail_observers.add(entry)
        if self._details is None:
            self._details = TaskSet()
            for kind in _DETAILS:
                self._details.start(self._follow_details(kind), name=f"dashboard: {kind.plural}")

        def forget() -> None:
            self._detail_observers.discard(entry)
            if not self._detail_observers and self._details is not None:
                self._tasks.start(self._details.close(), name="dashboard: end of details")
                self._details = None

        return forget

    async def _follow_details(self, kind: plain_kinds.JsonKind) -> None:
        """Notify of changes from now on, without keeping the objects."""
        while True:
            try:
                page = await self._client.list_page(kind, self._namespace, limit=1, metadata_only=True)
                watch = self._client.watch_raw(
                    kind, self._namespace, resource_version=page.resource_version, metadata_only=True
                )
                # Earlier changes have not been notified.
                for _, changed in tuple(self._detail_observers):
                    changed()
                async for events in watch:
                    self._notify_details({event.who.namespace for event in events})
            except (errors.ApiError, errors.Unreachable) as error:
                _log.debug("cannot follow %s: %s", kind.plural, error)
            await self._clock.sleep(_AGAIN_S)

    def _notify_details(self, namespaces: set[str]) -> None:
        for namespace, changed in tuple(self._detail_observers):
            if namespace == "*" or namespace in namespaces:
                changed()

    def issuers(self) -> Iterable[Json]:
        """Issuers and ClusterIssuers."""
        for plural in ("issuers", "clusterissuers"):
            if plural in self._informers:
                yield from self._informers[plural].cache.values()

    def issuer(self, row: Row) -> Json | None:
        """The issuer of a certificate, if it is of our group and exists."""
        informer, key = self._issuer_of(row)
        return informer.cache.get(key) if informer is not None else None

    def lacks_issuer(self, row: Row) -> bool:
        """Whether a certificate's issuer, of our group, does not exist. Unknown (False) for kinds that the
        index does not follow, or may not list."""
        informer, key = self._issuer_of(row)
        return informer is not None and informer.revision > 0 and key not in informer.cache

    def _issuer_of(self, row: Row) -> tuple[Informer[Json] | None, ObjectKey]:
        kind, _, name = row.issuer.partition("/")
        key = ObjectKey("" if kind == "ClusterIssuer" else row.namespace, name)
        return self._informers.get(f"{kind.lower()}s"), key

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make` for the present rows and that key, made once; also from other threads."""
        kept, entry = self._remembered, (self._frozen, key)
        if entry not in kept:
            kept[entry] = make()
        found: T = kept[entry]
        return found

    def ordered(self, sort: str) -> list[Row]:
        """All rows in the order of an attribute, or of their names for `name`."""
        frozen = self._frozen
        generation, rows = self._ordered.get(sort, (-1, []))
        if generation != frozen:
            by = attrgetter("namespace", "name") if sort == "name" else attrgetter(sort, "namespace", "name")
            rows = sorted(self._rows, key=by)
            self._ordered[sort] = (frozen, rows)
        return rows

    def deliveries_of(self, namespace: str, name: str, secret: str) -> list[str]:
        """The names of the Deliveries of a Certificate with that Secret."""
        cache = self._informers["deliveries"].cache
        sources = (f"{namespace}/Certificate {name}", f"{namespace}/Secret {secret}")
        return sorted(key.name for source in sources for key in cache.keys_by_index("source", source))

    def lamps(self, scope: Scope) -> Mapping[ObjectKey, Lamps]:
        """By certificate, the state of the Deliveries that `scope` allows."""
        found: dict[ObjectKey, Lamps] = {}
        if not self._deliveries:
            return found
        by_secret = {(row.namespace, row.secret): row.key for row in self._rows}
        for delivery in self._deliveries:
            namespace, name = delivery["metadata"]["namespace"], delivery["metadata"]["name"]
            if not scope.allows(namespace, name):
                continue
            kind, _, source = source_of(delivery).partition(" ")
            key = (
                ObjectKey(namespace, source) if kind == "Certificate" else by_secret.get((namespace, source))
            )
            if key is not None:
                found[key] = _both(found.get(key), delivery)
        return found

    def _follow(self, old: Row | None, new: Row | None) -> None:
        if old is None and new is not None:
            self._namespaces[new.namespace] += 1
        elif new is None and old is not None:
            self._namespaces[old.namespace] -= 1
            self._namespaces += Counter()  # drops what is zero
        self._note(None, None)

    def _note(self, _old: object, _new: object) -> None:
        self.generation += 1
        for changed in tuple(self._observers):
            changed()

    async def close(self) -> None:
        """Follow no longer."""
        if self._details is not None:
            await self._details.close()
        await self._tasks.close()


def _source_key(delivery: Json) -> list[str]:
    return [f"{delivery['metadata']['namespace']}/{source_of(delivery)}"]


def _both(before: Lamps | None, delivery: Json) -> Lamps:
    """The lamps of a certificate with one more Delivery."""
    delivered, deployed = condition(delivery, "Delivered"), condition(delivery, "Deployed")
    is_delivered = delivered.get("status") == "True"
    is_served = None if not deployed else is_delivered and deployed.get("status") == "True"
    problem = next(
        (
            sentence(str(found.get("message", "")))
            for found in (delivered, deployed)
            if found.get("status") == "False"
        ),
        "",
    )
    if before is None:
        return Lamps(is_delivered, is_served, problem)
    served = [value for value in (before.served, is_served) if value is not None]
    return Lamps(
        bool(before.delivered) and is_delivered, all(served) if served else None, before.problem or problem
    )


async def scope_of(
    client: Client, group: str, plural: str, namespaces: Sequence[str], rules: dict[str, Sequence[Json]]
) -> Scope:
    """The scope of the user of `client` for a resource in those namespaces, as the API answers. `rules`: the
    known rules of the user by namespace; missing rules are requested and added. Raises `ApiError`.

    Source: Kubernetes API, SelfSubjectAccessReview and SelfSubjectRulesReview.
    """
    if await may(client, "list", group, plural):
        return Scope(everywhere=True)
    missing = [namespace for namespace in namespaces if namespace not in rules]
    for start in range(0, len(missing), _AT_ONCE):
        some = missing[start : start + _AT_ONCE]
        rules.update(zip(some, await asyncio.gather(*(_rules(client, place) for place in some)), strict=True))
        # Within the process of the server the answers need no wait: others have their turn here.
        await asyncio.sleep(0)
    whole, named = set[str](), set[ObjectKey]()
    for namespace in namespaces:
        for rule in rules[namespace]:
            if not _covers(rule, "apiGroups", group) or not _covers(rule, "resources", plural):
                continue
            names = rule.get("resourceNames")
            # Who may list an object by its name asks for it with a field selector.
            if names and (_covers(rule, "verbs", "get") or _covers(rule, "verbs", "list")):
                named |= {ObjectKey(namespace, name) for name in names}
            elif not names and _covers(rule, "verbs", "list"):
                whole.add(namespace)
    return Scope(namespaces=frozenset(whole), names=frozenset(named))


async def _rules(client: Client, namespace: str) -> Sequence[Json]:
    question = {"metadata": {}, "spec": {"namespace": namespace}}
    review = await client.create(SELF_SUBJECT_RULES_REVIEWS, question)
    return (review.get("status") or {}).get("resourceRules") or ()


def _covers(rule: Mapping[str, Any], field: str, value: str) -> bool:
    return bool({"*", value} & {*(rule.get(field) or ())})


async def may(
    client: Client, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
) -> bool:
    """Whether the user of `client` may do that; `resource` has its subresource after a slash. Raises
    `ApiError`."""
    plural, _, subresource = resource.partition("/")
    given = {"subresource": subresource, "namespace": namespace, "name": name}
    attributes = {"verb": verb, "group": group, "resource": plural}
    attributes |= {field: value for field, value in given.items() if value}
    question = {"metadata": {}, "spec": {"resourceAttributes": attributes}}
    review = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, question)
    return bool((review.get("status") or {}).get("allowed"))
