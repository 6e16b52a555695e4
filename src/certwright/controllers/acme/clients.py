"""The ACME clients of this process, the Secrets of their accounts, and metrics of their requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from certwright.acme.protocol.client import AcmeClient, Observer, Registry
from certwright.acme.protocol.messages import TlsOptions, Transport
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.cache.secrets import Secrets
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import CreateSecret, IssuerView
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.errors import AlreadyExists
from certwright.kube.client.rest import Client
from certwright.resources import names
from certwright.resources.issuer import ACMEIssuer

if TYPE_CHECKING:
    from certwright.acme.protocol.client import RequestRecord


class ResolvedIssuer(msgspec.Struct, frozen=True):
    """An issuer with its ACME settings and the client of its account."""

    view: IssuerView
    spec: ACMEIssuer
    client: AcmeClient


class AcmeClients:
    """The ACME clients, made when the first is needed. `observe` is called for every request. Signatures
    that take long are made in the executor of the `toolbox`."""

    def __init__(self, toolbox: Toolbox, options: AcmeOptions, *, user_agent: str, observe: Observer) -> None:
        self._now = toolbox.now
        self._user_agent = user_agent
        self._rules = options.policy.servers
        make_transport = options.make_transport or self._over_http
        self.registry = Registry(make_transport, now=toolbox.now, observe=observe, executor=toolbox.executor)
        """The clients, by server, key and trust."""

    async def close(self) -> None:
        """Close the connections."""
        await self.registry.close()

    def _over_http(self, tls: TlsOptions) -> Transport:
        from certwright.acme.protocol.https import HttpTransport  # loads aiohttp: 9 MB, 0.1 s

        return HttpTransport(tls, user_agent=self._user_agent, now=self._now, rules=self._rules)


def creator_of(client: Client, secrets: Secrets, namespace: str) -> CreateSecret:
    """A function that creates a Secret in that namespace and caches it, unless it exists."""

    async def create_secret(name: str, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
        labels = {names.FAO_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGER}
        meta = SecretMeta(name=name, namespace=namespace, labels=labels)
        try:
            made = await client.create(SECRETS, Secret(metadata=meta, type="Opaque", data=data))
        except AlreadyExists:
            made = await client.get(SECRETS, name, namespace)
        secrets.put(made)
        return made.data

    return create_secret


QUANTILES: Final = (0.5, 0.9, 0.99)
OTHERS: Final = "others"
"""The host of requests to further servers than are counted one by one."""
_RECENT = 256
_MOST = 1000
"""Kinds of requests with a host of their own: tenants choose hosts, and may choose another each second."""


class RequestLabels(NamedTuple):
    """Requests that are counted together; `status` is 0 where no answer came."""

    scheme: str
    host: str
    action: str
    method: str
    status: str


@dataclass(slots=True)
class RequestTotals:
    """The number of requests, their total seconds, and the seconds of the last 256."""

    count: int = 0
    seconds: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def quantiles(self) -> list[tuple[float, float]]:
        """Of the last ones: share, seconds."""
        ordered = sorted(self.recent)
        return [
            (share, ordered[min(int(share * len(ordered)), len(ordered) - 1)])
            for share in QUANTILES
            if ordered
        ]


class AcmeRequests:
    """The requests of this process to ACME servers."""

    def __init__(self) -> None:
        self._totals: dict[RequestLabels, RequestTotals] = {}

    def observe(self, record: RequestRecord) -> None:
        """Count one request."""
        # Split by hand: each order has other URLs, which `urlsplit` would have to parse in full.
        scheme, _, rest = record.url.partition("://")
        host = rest.partition("/")[0].partition("?")[0]
        kind = RequestLabels(scheme, host, str(record.action), record.method, str(record.status))
        total = self._totals.get(kind)
        if total is None:
            if len(self._totals) >= _MOST:
                kind = kind._replace(scheme="", host=OTHERS)
            total = self._totals.setdefault(kind, RequestTotals())
        total.count += 1
        total.seconds += record.seconds
        total.recent.append(record.seconds)

    def take(self) -> list[tuple[RequestLabels, RequestTotals]]:
        """The present numbers, which later requests do not change."""
        return [
            (kind, RequestTotals(total.count, total.seconds, total.recent.copy()))
            for kind, total in sorted(self._totals.items())
        ]
