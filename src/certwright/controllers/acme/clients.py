"""The ACME clients of this process, made when the first is needed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from certwright.acme.protocol.client import MakeTransport, Observer, Registry
from certwright.acme.protocol.transport import TlsOptions, Transport
from certwright.kit.outgoing import HTTPS_ONLY, ServerRules
from certwright.kube.util.executor import Executor


class AcmeClients:
    """`observe` is called for every request; `timeout_s` is the limit of one. `make_transport` replaces HTTP.
    Signatures that take long are made in the `executor`. Requests go where the `rules` allow."""

    def __init__(
        self,
        *,
        user_agent: str,
        now: Callable[[], datetime],
        observe: Observer | None = None,
        timeout_s: float = 30.0,
        make_transport: MakeTransport | None = None,
        executor: Executor | None = None,
        rules: ServerRules = HTTPS_ONLY,
    ) -> None:
        self._user_agent = user_agent
        self._now = now
        self._observe = observe
        self._timeout_s = timeout_s
        self._make_transport = make_transport or self._over_http
        self._rules = rules
        self._executor = executor
        self._registry: Registry | None = None

    def registry(self) -> Registry:
        """The clients, by server, key and trust."""
        if self._registry is None:
            self._registry = Registry(
                self._make_transport, now=self._now, observe=self._observe, executor=self._executor
            )
        return self._registry

    async def close(self) -> None:
        """Close the connections."""
        if self._registry is not None:
            await self._registry.close()

    def _over_http(self, tls: TlsOptions) -> Transport:
        from certwright.acme.protocol.https import HttpTransport  # loads aiohttp: 9 MB, 0.1 s

        return HttpTransport(
            tls, user_agent=self._user_agent, now=self._now, timeout_s=self._timeout_s, rules=self._rules
        )
