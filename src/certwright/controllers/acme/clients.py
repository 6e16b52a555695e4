"""The ACME clients of this process, made when the first is needed."""

from __future__ import annotations

from certwright.acme.protocol.client import Observer, Registry
from certwright.acme.protocol.messages import TlsOptions, Transport
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.toolbox import Toolbox


class AcmeClients:
    """`observe` is called for every request. Signatures that take long are made in the executor of the
    `toolbox`."""

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
