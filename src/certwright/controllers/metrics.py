"""The metrics of certificates, issuers and the controllers themselves, served at `/metrics`.

Reconciles count nothing but two numbers per controller: a scrape reads everything else from the caches, so
that deleted objects leave the metrics immediately.

Source: cert-manager `pkg/metrics`, `internal/collectors` (names, labels, texts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from certwright.controllers import notifier
from certwright.controllers.acme.clients import RequestLabels, RequestTotals
from certwright.controllers.cache.indexes import owner_value
from certwright.controllers.circuit_breaker import State
from certwright.controllers.deliveries.lifecycle import lacks_process
from certwright.controllers.issuer_gate import BreakerStatus
from certwright.controllers.notifier import MessageTotals
from certwright.controllers.wiring import Wiring
from certwright.kit.exposition import family, head, labels, states
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources import causes, reasons
from certwright.resources.acme import Challenge
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.delivery import Delivery
from certwright.resources.issuer import ClusterIssuer, Issuer

_STATUSES = ("True", "False", "Unknown")
_CHALLENGE_STATES = ("ready", "valid", "errored", "expired", "invalid", "processing", "unknown", "pending")

_READY = "certmanager_certificate_ready_status"
_DATES: dict[str, tuple[str, Callable[[Certificate], datetime | None]]] = {
    "certmanager_certificate_not_after_timestamp_seconds": (
        "The timestamp after which the certificate is invalid, expressed as a Unix Epoch Time.",
        lambda certificate: certificate.status.not_after,
    ),
    "certmanager_certificate_not_before_timestamp_seconds": (
        "The timestamp before which the certificate is invalid, expressed as a Unix Epoch Time.",
        lambda certificate: certificate.status.not_before,
    ),
    "certmanager_certificate_expiration_timestamp_seconds": (
        "The timestamp after which the certificate expires, expressed in Unix Epoch Time.",
        lambda certificate: certificate.status.not_after,
    ),
    "certmanager_certificate_renewal_timestamp_seconds": (
        "The timestamp after which the certificate should be renewed, expressed in Unix Epoch Time.",
        lambda certificate: certificate.status.renewal_time,
    ),
}


class ControllerMetrics:
    """The metrics of the controllers of one replica, which reports the Certificates that are `mine`."""

    def __init__(
        self,
        wiring: Wiring,
        notifications: Sequence[MessageTotals] = (),
    ) -> None:
        self._notifications = notifications
        self._mine = wiring.mine
        self._caches = wiring.caches
        self._deliveries = wiring.deliveries
        self._gate = wiring.gate
        self._requests = wiring.acme_requests
        self._controllers = wiring.controllers
        self._clock = wiring.clock

    def take(self) -> Callable[[], bytes]:
        """Take a snapshot, and return a function that renders it in Prometheus' text format.

        With 100,000 certificates the first takes a few milliseconds. The second, some 15 µs and a kilobyte of
        text per certificate, may run in a thread.
        """
        certificates = self._caches.certificates.cache.freeze()
        issuers = list(self._caches.issuers.cache.values())
        informer = self._caches.cluster_issuers
        cluster_issuers = list(informer.cache.values()) if informer is not None else []
        failing = [
            (certificate, self._cause(certificate))
            for certificate in self._of_ours(self._caches.failing_certificates())
        ]
        counts = [(controller.name, controller.runs, controller.failures) for controller in self._controllers]
        breakers = self._gate.states()
        challenges = list(self._caches.challenges.cache.values())
        deliveries = list(self._deliveries.cache.values()) if self._deliveries is not None else []
        requests = self._requests.take()
        now = self._clock.now()

        def write() -> bytes:
            families = (
                _clock(now),
                _controllers(counts),
                _certificates(self._of_ours(certificates())),
                _failing(failing),
                _challenges(challenges),
                _deliveries(deliveries),
                _acme_requests(requests),
                _circuits(breakers),
                notifier.exposition(self._notifications),
                _ready_issuers("issuer", "Issuer", issuers),
                _ready_issuers("clusterissuer", "ClusterIssuer", cluster_issuers),
            )
            return b"".join(
                family if isinstance(family, bytes) else "".join(family).encode() for family in families
            )

        return write

    def _of_ours(self, certificates: Iterable[Certificate]) -> Iterable[Certificate]:
        if (mine := self._mine) is None:
            return certificates
        return (certificate for certificate in certificates if mine(certificate.metadata.key))

    def _cause(self, certificate: Certificate) -> Cause:
        """The cause that the Certificate shows. After a denial the message is the denier's, so the cause is
        read from the request."""
        cause = causes.of_certificate(certificate)
        if cause is not Cause.UNKNOWN:
            return cause
        meta = certificate.metadata
        for request in self._caches.requests_of(owner_value(*meta.key)):
            if (cause := causes.of_request(request).cause) is not Cause.UNKNOWN:
                break
        return cause


def _clock(now: datetime) -> Iterator[str]:
    text = "The clock time given in seconds (from 1970/01/01 UTC)."
    for name, kind in (("clock_time_seconds", "counter"), ("clock_time_seconds_gauge", "gauge")):
        deprecated = "DEPRECATED: use clock_time_seconds_gauge instead. " if kind == "counter" else ""
        yield head(f"certmanager_{name}", kind, deprecated + text)
        yield f"certmanager_{name} {int(now.timestamp())}\n"


def _controllers(counts: Sequence[tuple[str, int, int]]) -> Iterator[str]:
    name, meaning = (
        "certmanager_controller_sync_call_count",
        "The number of sync() calls made by a controller.",
    )
    runs = ((f'controller="{controller}"', count) for controller, count, _ in counts)
    yield from family(name, "counter", meaning, runs)
    name = "certmanager_controller_sync_error_count"
    meaning = "The number of errors encountered during controller sync()."
    failures = ((f'controller="{controller}"', count) for controller, _, count in counts)
    yield from family(name, "counter", meaning, failures)


def _certificates(certificates: Iterable[Certificate]) -> bytes:
    """The families of all certificates. Each certificate is read once, because it may be packed."""
    ready = bytearray(head(_READY, "gauge", "The ready status of the certificate.").encode())
    dates = {name: bytearray(head(name, "gauge", meaning).encode()) for name, (meaning, _) in _DATES.items()}
    for certificate in certificates:
        meta = certificate.metadata
        own = labels((("name", meta.name), ("namespace", meta.namespace)))
        issuer = _issuer_labels(certificate)
        status = _ready(certificate.status.conditions)
        for value in _STATUSES:
            ready += f'{_READY}{{{own},condition="{value}",{issuer}}} {int(status == value)}\n'.encode()
        for name, (_, date_of) in _DATES.items():
            date = date_of(certificate)
            seconds = int(date.timestamp()) if date is not None else 0
            dates[name] += f"{name}{{{own},{issuer}}} {seconds}\n".encode()
    for name in _DATES:
        # In sequence, so that no family appears twice.
        ready += dates.pop(name)
    return bytes(ready)


def _failing(failing: Sequence[tuple[Certificate, Cause]]) -> Iterator[str]:
    """The certificates that wait after a failure, with cause and time; not a metric of cert-manager. Other
    certificates are not listed, so that a zero has no meaning."""
    attempts: list[tuple[str, int]] = []
    moments: list[tuple[str, int]] = []
    for certificate, cause in failing:
        meta = certificate.metadata
        text = labels((("name", meta.name), ("namespace", meta.namespace), ("cause", cause)))
        text += f",{_issuer_labels(certificate)}"
        attempts.append((text, certificate.status.failed_issuance_attempts or 1))
        record = causes.retry_of(certificate)
        if record is not None and record.next_attempt is not None:
            moments.append((text, int(record.next_attempt.timestamp())))
    name = "certwright_certificate_failed_attempts"
    yield from family(
        name, "gauge", "How many attempts to issue the certificate have failed in a row.", attempts
    )
    name = "certwright_certificate_next_attempt_timestamp_seconds"
    yield from family(
        name, "gauge", "When the next attempt follows, expressed as a Unix Epoch Time.", moments
    )


def _challenges(challenges: Iterable[Challenge]) -> Iterator[str]:
    name = "certmanager_certificate_challenge_status"
    yield head(name, "gauge", "The status of ACME challenges; 1 for the state that each one is in.")
    for challenge in challenges:
        meta, spec, status = challenge.metadata, challenge.spec, challenge.status
        state = status.state if status.state in _CHALLENGE_STATES else "unknown"
        about = labels(
            (
                ("domain", spec.dns_name),
                ("reason", status.reason),
                ("processing", str(status.processing).lower()),
                ("name", meta.name),
                ("namespace", meta.namespace),
                ("type", spec.type),
            )
        )
        for value in _CHALLENGE_STATES:
            yield f'{name}{{status="{value}",{about}}} {int(state == value)}\n'


def _deliveries(deliveries: Sequence[Delivery]) -> Iterator[str]:
    """Not of cert-manager: whether files and servers have the current certificate."""
    for kind, meaning in (
        ("Delivered", "Whether the files contain the current certificate and the hook has succeeded."),
        ("Deployed", "Whether the addresses of servedAt serve the current certificate."),
    ):
        samples: list[tuple[str, int]] = []
        for delivery in deliveries:
            condition = conditions.find(delivery.status.conditions, kind)
            if condition is not None:
                text = labels((("name", delivery.metadata.name), ("namespace", delivery.metadata.namespace)))
                samples += states(text, "condition", _STATUSES, condition.status)
        name = f"certwright_delivery_{kind.lower()}_status"
        yield from family(name, "gauge", f"{meaning} 1 for the status of the condition.", samples)
    absent = [(labels(_place(delivery)), int(lacks_process(delivery.status))) for delivery in deliveries]
    meaning = "1 if no process offers the root of the Delivery."
    yield from family("certwright_delivery_no_process", "gauge", meaning, absent)


def _place(delivery: Delivery) -> Sequence[tuple[str, str]]:
    meta = delivery.metadata
    return (("name", meta.name), ("namespace", meta.namespace), ("root", delivery.spec.root))


def _acme_requests(totals: Sequence[tuple[RequestLabels, RequestTotals]]) -> Iterator[str]:
    about = [(labels(request._asdict().items()), total) for request, total in totals]
    name = "certmanager_http_acme_client_request_count"
    counts = ((text, total.count) for text, total in about)
    yield from family(name, "counter", "The number of requests to ACME servers.", counts)
    name = "certmanager_http_acme_client_request_duration_seconds"
    yield head(name, "summary", "How long requests to ACME servers took; quantiles of the last 256.")
    for text, total in about:
        for share, seconds in total.quantiles():
            yield f'{name}{{{text},quantile="{share}"}} {seconds:.6f}\n'
        yield f"{name}_sum{{{text}}} {total.seconds:.6f}\n"
        yield f"{name}_count{{{text}}} {total.count}\n"


def _issuer_labels(certificate: Certificate) -> str:
    # As written: cert-manager does not put the defaults in either.
    issuer = certificate.spec.issuer_ref
    return labels(
        (("issuer_name", issuer.name), ("issuer_kind", issuer.kind), ("issuer_group", issuer.group))
    )


def _circuits(breakers: Sequence[BreakerStatus]) -> Iterator[str]:
    """Not of cert-manager: the circuit breakers of the issuers that were asked since the start."""
    about = [
        (
            labels((("issuer_name", each.name), ("issuer_kind", each.kind), ("namespace", each.namespace))),
            each,
        )
        for each in breakers
    ]
    yield from family(
        "certwright_issuer_circuit_open",
        "gauge",
        "Whether the issuer fails, so that at most one certificate at a time tries it.",
        ((text, int(breaker.state != State.CLOSED)) for text, breaker in about),
    )
    yield from family(
        "certwright_issuer_circuit_state",
        "gauge",
        "The state of the issuer's circuit breaker; 1 for the state that it is in.",
        (sample for text, breaker in about for sample in states(text, "state", State, breaker.state)),
    )
    yield from family(
        "certwright_issuer_waiting_certificates",
        "gauge",
        "How many certificates wait because of their issuer.",
        ((text, breaker.waiting) for text, breaker in about),
    )
    yield from family(
        "certwright_issuer_last_success_timestamp_seconds",
        "gauge",
        "When the issuer last accepted or issued, expressed as a Unix Epoch Time.",
        (
            (text, int(breaker.last_success.timestamp()))
            for text, breaker in about
            if breaker.last_success is not None
        ),
    )


def _ready_issuers(kind: str, title: str, issuers: Iterable[Issuer | ClusterIssuer]) -> Iterator[str]:
    samples: list[tuple[str, int]] = []
    for issuer in issuers:
        meta = issuer.metadata
        about = [("name", meta.name), *([("namespace", meta.namespace)] if meta.namespace else [])]
        samples += states(labels(about), "condition", _STATUSES, _ready(issuer.status.conditions))
    name = f"certmanager_{kind}_ready_status"
    yield from family(name, "gauge", f"The ready status of the {title}.", samples)


def _ready(current: tuple[Condition, ...]) -> str:
    ready = conditions.find(current, reasons.READY)
    return ready.status if ready is not None else "Unknown"
