"""The circuit breakers of all issuers, and the notification of the certificates that they release."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from certwright.controllers.retry.breaker import Circuit, Released
from certwright.controllers.retry.breaker_state import ATTEMPTS_PER_HOUR, State
from certwright.controllers.retry.recovery import name_of
from certwright.issuers.table import WITHOUT_TRACES, kind_of
from certwright.kube.api.meta import ObjectKey
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.references import IssuerReference, reference_to

_MANY: Final = 1000
"""Breakers that are kept in any case."""

Wake = Callable[[ObjectKey, datetime], None]
"""Reconcile a Certificate, and what is in progress for it, at that moment."""
FindIssuer = Callable[[IssuerReference, str], Issuer | ClusterIssuer | None]
"""The issuer of our group that a reference in a namespace means; None where it does not exist."""


class Standing(NamedTuple):
    """How an issuer does, for the metrics."""

    kind: str
    namespace: str
    name: str
    state: State
    waiting: int
    last_success: datetime | None


class Circuits:
    """The breakers of all issuers but those that sign inside this process, which need none.

    Raises `ValueError` if `attempts_per_hour` is negative; 0 disables the breakers.
    """

    def __init__(self, find_issuer: FindIssuer, *, attempts_per_hour: int = ATTEMPTS_PER_HOUR) -> None:
        Circuit[ObjectKey](attempts_per_hour)
        self._attempts_per_hour = attempts_per_hour
        self._find_issuer = find_issuer
        self._circuits: dict[str, Circuit[ObjectKey]] = {}
        self._limit = _MANY
        self._wake: Wake = _ignore

    def on_release(self, wake: Wake) -> None:
        """Call `wake` for those that need not wait for their issuer any more."""
        self._wake = wake

    def release(self, released: Iterable[Released[ObjectKey]]) -> None:
        """Notify these certificates."""
        for item in released:
            self._wake(item.key, item.at)

    def notify(self, key: ObjectKey, at: datetime) -> None:
        """Have this certificate, and what is in progress for it, reconciled at that moment."""
        self._wake(key, at)

    def of(self, reference: IssuerReference, namespace: str) -> Circuit[ObjectKey] | None:
        """The breaker of the issuer that an object of `namespace` refers to; None where it has none."""
        if (
            not self._attempts_per_hour
            or reference.is_set
            or (reference.is_ours and self._is_harmless(reference, namespace))
        ):
            return None
        name = name_of(reference, namespace)
        circuit = self._circuits.get(name)
        if circuit is None:
            # Issuers of our own kinds that send requests to a server can be probed.
            circuit = self._circuits[name] = Circuit(self._attempts_per_hour, has_probe=reference.is_ours)
        return circuit

    def at(self, issuer: ObjectKey) -> Circuit[ObjectKey] | None:
        """The breaker of the Issuer of that key (without a namespace: ClusterIssuer); None: it has none."""
        return self.of(reference_to(issuer), issuer.namespace)

    def forget(self, key: ObjectKey) -> None:
        """Forget an applicant everywhere."""
        for circuit in self._circuits.values():
            circuit.forget(key)

    def drop_unused(self, now: datetime) -> None:
        """Drop breakers without state, if there are many: the author of a Certificate may name any external
        issuer, and another one each time."""
        if len(self._circuits) > self._limit:
            self._circuits = {
                name: circuit for name, circuit in self._circuits.items() if not circuit.is_unused(now)
            }
            self._limit = max(_MANY, 2 * len(self._circuits))

    def standings(self) -> list[Standing]:
        """How the issuers do that have been used since the start."""
        standings = []
        for text, circuit in sorted(self._circuits.items()):
            kind, namespace, name = text.split("/")[-3:]
            standings.append(
                Standing(kind, namespace, name, circuit.state, circuit.waiting, circuit.last_success)
            )
        return standings

    def _is_harmless(self, reference: IssuerReference, namespace: str) -> bool:
        issuer = self._find_issuer(reference, namespace)
        return issuer is None or kind_of(issuer.spec) in WITHOUT_TRACES


def _ignore(key: ObjectKey, at: datetime) -> None:
    del key, at
