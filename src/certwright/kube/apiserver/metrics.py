"""Prometheus metrics at `/metrics`: requests, watches, name generation retries, the store, the process.

Counting must cost next to nothing, and a server that is not scraped must not pay for Prometheus' library: the
counters are plain numbers, bound once per kind of request, which become metrics on a scrape.

Source: Kubernetes documentation, "Kubernetes Metrics Reference" (names, labels and buckets); KEP-4420 (the
label `retry_for_generate_name`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from certwright.kube.apiserver.http.fairness import PriorityLevel
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.store.contract import Limited, Store
from certwright.kube.util.http_messages import Response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

PATH = "/metrics"
BUCKETS: tuple[float, ...] = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0),
    *(4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_FIRST = BUCKETS[0]
_READS = frozenset({"GET", "HEAD"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_VERBS = {"create": "POST", "update": "PUT", "deletecollection": "DELETECOLLECTION"}
_MOST_NAMED = 100
"""How many damaged rows have a separate series."""
Source = Callable[[], Callable[[], bytes]]
"""Metrics of another component in this process: called on the event loop it captures their present state, and
returns a function that renders them in Prometheus' text format, which is called in a thread."""

_ABOUT = ("group", "version", "resource", "subresource", "scope", "component")
_REQUEST_LABELS = ["verb", "dry_run", *_ABOUT, "code"]


class Track:
    """One request while it is being answered. `call` is set once the request is parsed."""

    __slots__ = ("begun", "call", "reads")

    def __init__(self, method: str) -> None:
        self.begun = perf_counter()
        self.reads = method in _READS
        self.call: Call | None = None


class _Series:
    """A histogram of request durations. Most are in `quick`, the first bucket."""

    __slots__ = ("labels", "quick", "retried", "slow", "total_s")

    def __init__(self, labels: tuple[str, ...], *, retried: bool) -> None:
        self.labels = labels
        self.retried = retried
        self.quick = 0
        self.slow: list[int] | None = None
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.total_s += seconds
        if seconds <= _FIRST:
            self.quick += 1
            return
        if self.slow is None:
            self.slow = [0] * (len(BUCKETS) + 1)
        self.slow[bisect_left(BUCKETS, seconds)] += 1

    def cumulative(self) -> list[tuple[str, float]]:
        """Pairs of upper bound and count up to it; the last one's bound is infinite."""
        pairs, so_far = [], self.quick
        slow = self.slow or [0] * (len(BUCKETS) + 1)
        for index, bound in enumerate(("0.005", *map(str, BUCKETS[1:]), "+Inf")):
            so_far += slow[index]
            pairs.append((bound, float(so_far)))
        return pairs


@runtime_checkable
class _CountsCommits(Protocol):
    @property
    def commits(self) -> int:
        """The number of commits since the store was opened."""


class Metrics:
    """The counters of one server. `watches` gives the number of open streams per resource, `levels` the
    priority levels."""

    def __init__(
        self,
        store: Store,
        watches: Callable[[], Mapping[ResourceDefinition, int]],
        levels: Callable[[], Sequence[PriorityLevel]] = tuple,
    ) -> None:
        self._store = store
        self._levels = levels
        self._watches = watches
        # By what distinguishes requests; kinds by their prefix, which outlives a re-created definition.
        self._series: dict[tuple[object, ...], _Series] = {}
        self._inflight = [0, 0]
        self._name_retries = 0
        self._registry: CollectorRegistry | None = None
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Add the metrics of `source`. Their names must be unique."""
        self._sources.append(source)

    def begin(self, method: str) -> Track:
        """Count a new request."""
        track = Track(method)
        self._inflight[track.reads] += 1
        return track

    def give_up(self, track: Track) -> None:
        """Count a request that was cancelled before its answer."""
        self._inflight[track.reads] -= 1

    def end(self, track: Track, method: str, code: int) -> None:
        """Count an answered request."""
        seconds = perf_counter() - track.begun
        self._inflight[track.reads] -= 1
        call = track.call
        if call is None:
            key: tuple[object, ...] = (method, code)
        else:
            route, retried = call.route, call.retries
            dry_run = call.query.get("dryRun", "") if call.query else ""
            scope = _scope(call)
            key = (call.definition.prefix, call.verb, route.subresource, scope, dry_run, code, not retried)
            if retried:
                self._name_retries += retried
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _new_series(method, call, code)
        series.observe(seconds)

    async def respond(self) -> Response:
        """The answer to a scrape: Prometheus' text format, rendered in a thread."""
        writers = [source() for source in self._sources]
        kind, body = await asyncio.to_thread(self._render, writers)
        return Response(200, {"content-type": kind}, body)

    def _render(self, writers: Sequence[Callable[[], bytes]]) -> tuple[str, bytes]:
        # Only a server that is scraped needs the library (10 ms and 2 MB).
        import prometheus_client

        registry = self._registry
        if registry is None:
            registry = prometheus_client.CollectorRegistry(auto_describe=False)
            registry.register(self)
            prometheus_client.ProcessCollector(registry=registry)
            prometheus_client.PlatformCollector(registry=registry)
            prometheus_client.GCCollector(registry=registry)
            self._registry = registry  # now that it is complete: another scrape may run concurrently
        own = prometheus_client.generate_latest(registry)
        return prometheus_client.CONTENT_TYPE_LATEST, b"".join((own, *(write() for write in writers)))

    def collect(self) -> Iterator[Metric]:
        """All numbers as metric families."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily  # see `_render`

        # A copy, because the loop goes on counting while a thread renders.
        series = list(self._series.values())
        yield from _requests(series)
        inflight = GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests being answered at the moment.",
            labels=["request_kind"],
        )
        inflight.add_metric(["mutating"], self._inflight[False])
        inflight.add_metric(["readOnly"], self._inflight[True])
        yield inflight
        watches = GaugeMetricFamily(
            "apiserver_longrunning_requests", "Watches that are open.", labels=["verb", *_ABOUT]
        )
        for definition, count in self._watches().items():
            scope = "namespace" if definition.namespaced else "cluster"
            watches.add_metric(["WATCH", *_about(definition, "", scope)], count)
        yield watches
        yield from _flow_control(self._levels())
        yield CounterMetricFamily(
            "certwright_generate_name_retries",
            "Names generated again because the one before was taken (KEP-4420).",
            value=self._name_retries,
        )
        yield GaugeMetricFamily(
            "certwright_store_revision", "The last committed revision.", value=self._store.revision
        )
        damaged = GaugeMetricFamily(
            "certwright_store_damaged_rows",
            "Stored rows that cannot be read and are left out of lists.",
            labels=["resource", "namespace", "name"],
        )
        for row in list(self._store.damage)[:_MOST_NAMED]:
            damaged.add_metric([row.key.bucket, row.key.namespace, row.key.name], 1)
        yield damaged
        if isinstance(self._store, Limited) and (usage := self._store.usage) is not None:
            for name, help_text, size in (
                ("apiserver_storage_size_bytes", "Size of the database of etcd.", usage.size),
                ("certwright_etcd_in_use_bytes", "The part of etcd's database that is in use.", usage.in_use),
                ("certwright_etcd_quota_bytes", "The size at which etcd refuses writes.", usage.quota),
            ):
                yield GaugeMetricFamily(name, help_text, value=size)
        if isinstance(self._store, _CountsCommits):
            yield CounterMetricFamily(
                "certwright_store_commits", "Commits of the store.", value=self._store.commits
            )


def _requests(series: list[_Series]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily  # see `_render`

    total = CounterMetricFamily("apiserver_request", "Requests answered.", labels=_REQUEST_LABELS)
    duration = HistogramMetricFamily(
        "apiserver_request_duration_seconds",
        "How long requests took; of a watch, until its stream was open.",
        labels=[*_REQUEST_LABELS, "retry_for_generate_name"],
    )
    counts: dict[tuple[str, ...], float] = {}
    for entry in series:
        buckets = entry.cumulative()
        counts[entry.labels] = counts.get(entry.labels, 0.0) + buckets[-1][1]
        retried = "true" if entry.retried else ""
        duration.add_metric([*entry.labels, retried], buckets=buckets, sum_value=entry.total_s)
    for labels, count in counts.items():
        total.add_metric(list(labels), count)
    yield total
    yield duration


def _flow_control(levels: Sequence[PriorityLevel]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily  # see `_render`

    labels, prefix = ["flow_schema", "priority_level"], "apiserver_flowcontrol_"
    dispatched = CounterMetricFamily(f"{prefix}dispatched_requests", "Requests finished.", labels=labels)
    rejected = CounterMetricFamily(
        f"{prefix}rejected_requests", "Requests answered with 429.", labels=[*labels, "reason"]
    )
    waiting = GaugeMetricFamily(f"{prefix}current_inqueue_requests", "Requests that wait.", labels=labels)
    executing = GaugeMetricFamily(
        f"{prefix}current_executing_requests", "Requests that have their seats.", labels=labels
    )
    seats = GaugeMetricFamily(f"{prefix}current_executing_seats", "Seats that are taken.", labels=labels)
    nominal = GaugeMetricFamily(f"{prefix}nominal_limit_seats", "Seats there are.", labels=labels[1:])
    for level in levels:
        about = [level.name, level.name]
        dispatched.add_metric(about, level.dispatched)
        for reason, count in list(level.rejected.items()):
            rejected.add_metric([*about, reason], count)
        waiting.add_metric(about, level.waiting)
        executing.add_metric(about, level.executing)
        seats.add_metric(about, level.in_use)
        nominal.add_metric(about[1:], level.bounds.seats)
    yield from (dispatched, rejected, waiting, executing, seats, nominal)


def _new_series(method: str, call: Call | None, code: int) -> _Series:
    if call is None:
        verb = method if method in _METHODS else "other"
        return _Series((verb, "", "", "", "", "", "", "apiserver", str(code)), retried=False)
    labels = (
        _VERBS.get(call.verb, call.verb.upper()),
        call.query.get("dryRun", ""),
        *_about(call.definition, call.route.subresource, _scope(call)),
        str(code),
    )
    return _Series(labels, retried=bool(call.retries))


def _scope(call: Call) -> str:
    # A create is of one object, although its path names none (apiserver `metrics.CleanScope`).
    if call.route.name or call.verb == "create":
        return "resource"
    return "namespace" if call.route.namespace else "cluster"


def _about(definition: ResourceDefinition, subresource: str, scope: str) -> tuple[str, ...]:
    return (definition.group, definition.version, definition.plural, subresource, scope, "apiserver")
