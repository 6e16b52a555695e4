"""What solvers share in a process of controllers. Loaded with the first Challenge."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from certwright.acme.solvers.dns01.hosts.contract import Outside
from certwright.acme.solvers.dns01.hosts.session import HostSessions
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.routes.solver import Routes
from certwright.controllers.acme.solver_factory import Means, Surroundings, means_of
from certwright.controllers.acme.solver_use import SolverUse
from certwright.controllers.acme.webhook_calls import call_webhook
from certwright.controllers.servers import Servers
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from certwright.kube.client.rest import Client

_UNKNOWN_CA = "have the machine's CA certificates updated, or add the API's CA to them"


def surroundings_of(
    options: AcmeOptions,
    client: Client,
    servers: Servers,
    now: Callable[[], datetime],
    routes: Routes | None,
) -> Surroundings:
    """The surroundings of all solvers of this process."""

    def client_of_host(rules: ServerRules) -> HttpClient:
        return servers.client(ServerTls(), _UNKNOWN_CA, rules)

    return Surroundings(
        now=now,
        policy=options.policy,
        responder=options.responder,
        listener=options.listener,
        routes=routes,
        call_webhook=partial(call_webhook, client),
        make_check=options.make_check,
        http_check_port=options.http01_check_port,
        tls_check_port=options.tlsalpn01_check_port,
        http_names=options.http01_nameservers,
        dns_names=options.dns01_nameservers,
        dns_recursive_only=options.dns01_recursive_only,
        dns_authority_port=options.dns01_authority_port,
        hosts=HostSessions(Outside(client_of_host, now)),
        get_token=lambda namespace: servers.tools(namespace).get_token,
    )


class Solvers:
    """Makes solvers; what they share is made once."""

    def __init__(
        self,
        options: AcmeOptions,
        client: Client,
        servers: Servers,
        now: Callable[[], datetime],
        routes: Routes | None = None,
    ) -> None:
        self._surroundings = surroundings_of(options, client, servers, now, routes)

    async def means_of(self, use: SolverUse) -> Means:
        """See `solver_factory.means_of`."""
        return await means_of(use, self._surroundings)
