"""Solver factory: the solver and the self-check for a solver of an issuer, with values from Secrets.

Loaded with the first Challenge, or the first issuer with a DNS-01 solver, because the libraries for DNS and
HTTP take 14 MB.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dns.tsig

from certwright.acme.protocol import challenges
from certwright.acme.solvers.addresses import parse_server
from certwright.acme.solvers.checks import DnsCheck, HttpCheck, TlsCheck
from certwright.acme.solvers.contract import (
    Check,
    Solver,
    SolverError,
    SolverNotAllowed,
    Unpresented,
)
from certwright.acme.solvers.dns01.hosts.contract import Outside
from certwright.acme.solvers.dns01.hosts.session import AfterChange, HostedSolver, HostSessions
from certwright.acme.solvers.dns01.rfc2136 import Rfc2136, tsig_key
from certwright.acme.solvers.dns01.webhook import Webhook
from certwright.acme.solvers.names import NameServers
from certwright.acme.solvers.program import Program
from certwright.acme.solvers.webroot import WebRoot, WebRoots
from certwright.controllers.acme.challenge_progress import SolverAndCheck, SolverUse
from certwright.controllers.acme.dns_hosts import HOSTS, HostValues, host_of, settings_of
from certwright.controllers.acme.options import NO_HTTP01_LISTENER, NO_TLSALPN01_LISTENER, AcmeOptions
from certwright.controllers.acme.routes.solver import RouteCheck, Routes, RouteSolver
from certwright.controllers.servers import Servers
from certwright.issuers.contract import GetSecret
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls, quote
from certwright.kube.api.errors import ApiError, Forbidden, NotFound, Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import whole_body
from certwright.resources import operator_policy
from certwright.resources.solver import RFC2136DNS, DNS01Solver, HTTP01Solver

_UNKNOWN_CA = "have the machine's CA certificates updated, or add the API's CA to them"
_VERSION = "v1alpha1"
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_SEGMENT = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")


class Solvers:
    """Makes the solvers and self-checks of this process; what they share is made once. `routes` create
    Ingresses and HTTPRoutes; None: this process creates none."""

    def __init__(
        self,
        options: AcmeOptions,
        client: Client,
        servers: Servers,
        now: Callable[[], datetime],
        routes: Routes | None = None,
    ) -> None:
        def client_of_host(rules: ServerRules) -> HttpClient:
            return servers.client(ServerTls(), _UNKNOWN_CA, rules)

        self._options = options
        self._client = client
        self._servers = servers
        self._now = now
        self._routes = routes
        self._hosts = HostSessions(Outside(client_of_host, now))
        self._webroots = WebRoots()
        self._asked: dict[tuple[str, ...], NameServers] = {}

    async def make(self, use: SolverUse) -> SolverAndCheck:
        """The solver and the self-check. Raises `SolverError` with a sentence where none is
        possible: nothing listens, a Secret is missing, a value is invalid; `SolverNotAllowed` where the
        operator's flags do not allow it, regardless of the Challenge's author."""
        spec, options = use.solver, self._options
        if violations := operator_policy.solver_violations(spec, "spec.solver", options.policy):
            raise SolverNotAllowed(str(violations[0]))
        if spec.http01 is not None:
            solver = self._http01(spec.http01, use)
        elif spec.tls_alpn01 is not None:
            if options.listener is None:
                raise SolverError(NO_TLSALPN01_LISTENER)
            solver = options.listener
        elif spec.dns01 is not None:
            names = self._names(spec.dns01.nameservers or options.dns01_nameservers)
            solver = await self._dns01(spec.dns01, names, use)
        elif spec.dns_persist01 is not None:
            solver = Unpresented()
        elif spec.exec is not None:
            command = options.policy.command_of(spec.exec.command)
            assert command is not None, "the policy has been asked"
            solver = Program(command, environment=options.policy.exec_environment)
        else:
            raise SolverError("the challenge names no solver that this version knows")
        check = options.check or self._check(use)
        if isinstance(solver, HostedSolver):
            check = AfterChange(solver, check)
        elif isinstance(solver, RouteSolver):
            check = RouteCheck(solver, check)
        return solver, check

    def _http01(self, spec: HTTP01Solver, use: SolverUse) -> Solver:
        if spec.webroot is not None:
            place = self._options.policy.webroot_of(spec.webroot.path)
            assert place is not None, "the policy has been asked"
            return WebRoot(*place, shared=self._webroots)
        if self._options.responder is None:
            raise SolverError(NO_HTTP01_LISTENER)
        if self._routes is not None and use.challenge is not None:
            return RouteSolver(self._routes, self._options.responder, use.challenge)
        return self._options.responder

    def _check(self, use: SolverUse) -> Check:
        options, type_ = self._options, use.solver.challenge_type.lower()
        if type_ in (challenges.HTTP_01, challenges.TLS_ALPN_01):
            names = self._names(options.http01_nameservers) if options.http01_nameservers else None
            if type_ == challenges.HTTP_01:
                return HttpCheck(port=options.http01_check_port, names=names)
            return TlsCheck(port=options.tlsalpn01_check_port, names=names)
        chosen = use.solver.dns01.nameservers if use.solver.dns01 is not None else ()
        names = self._names(chosen or options.dns01_nameservers)
        return DnsCheck(names, self._now, recursive_only=options.dns01_recursive_only or bool(chosen))

    def _names(self, servers: Sequence[str]) -> NameServers:
        """The name servers, shared by all challenges with the same settings: zones are looked up once."""
        asked = tuple(servers)
        try:
            if asked not in self._asked:
                self._asked[asked] = NameServers(
                    asked,
                    authority_port=self._options.dns01_authority_port,
                    # Only those of the operator's flag: an issuer's must not make this process request URLs.
                    over_https=asked == self._options.dns01_nameservers,
                )
        except ValueError as error:
            raise SolverError(str(error)) from error
        return self._asked[asked]

    async def _dns01(self, spec: DNS01Solver, names: NameServers, use: SolverUse) -> Solver:
        ambient = self._options.policy.allows_ambient(use.issuer_kind)
        get_secret, secrets_in = use.get_secret, use.secrets_in
        follow = spec.cname_strategy == "Follow"
        if spec.rfc2136 is not None:
            return Rfc2136(
                _server(spec.rfc2136.nameserver),
                names,
                key=await _key_of(spec.rfc2136, get_secret),
                tcp=spec.rfc2136.protocol.upper() == "TCP",
                follow=follow,
            )
        if spec.webhook is not None:
            webhook = spec.webhook

            async def ask(payload: Mapping[str, Any]) -> Mapping[str, Any]:
                return await call_webhook(self._client, webhook.group_name, webhook.solver_name, payload)

            return Webhook(
                ask,
                names,
                namespace=secrets_in,
                config=webhook.config,
                ambient=ambient,
                follow=follow,
            )
        if field := host_of(spec):
            values = HostValues(
                path=f"dns01.{HOSTS[field]}",
                get_secret=get_secret,
                namespace=secrets_in,
                get_token=self._servers.tools(secrets_in).get_token,
                endpoints=self._options.policy.dns01_endpoints,
                environment=os.environ,
                ambient=ambient,
                rules=self._options.policy.servers,
                lexicon_options=self._options.policy.lexicon_options,
            )
            settings = await settings_of(spec, field, values)
            return HostedSolver(self._hosts.get(settings), names, follow=follow)
        known = ", ".join(("rfc2136", "webhook", *HOSTS.values()))
        raise SolverError(f"dns01 names no provider that this version knows; it knows {known}")


def _server(text: str) -> tuple[str, int]:
    try:
        return parse_server(text)
    except ValueError as error:
        raise SolverError(f"rfc2136.nameserver: {error}") from error


async def _key_of(spec: RFC2136DNS, get_secret: GetSecret) -> dns.tsig.Key | None:
    reference = spec.tsig_secret_secret_ref
    if reference is None or not spec.tsig_key_name:
        return None
    data = await get_secret(reference.name)
    secret = (data or {}).get(reference.key, b"")
    if not secret:
        what = "does not exist" if data is None else f'has no entry "{reference.key}"'
        raise SolverError(f'Secret "{reference.name}" with the TSIG key {what}')
    return tsig_key(spec.tsig_key_name, secret.decode(errors="replace"), spec.tsig_algorithm or "HMACMD5")


async def call_webhook(
    client: Client, group: str, solver: str, payload: Mapping[str, Any]
) -> Mapping[str, Any]:
    """POST a ChallengePayload to the solver of that group and name, and return its answer. Raises
    `SolverError`. Source: cert-manager `pkg/issuer/acme/dns/webhook/webhook.go`.

    The request has the rights of the controllers, and a tenant may have written both names: neither may lead
    to another path.
    """
    if not _GROUP.fullmatch(group) or not _SEGMENT.fullmatch(solver):
        raise SolverError(
            f'groupName "{quote(group, 80)}" and solverName "{quote(solver, 80)}" are not names that an API '
            "is served under; write the API group and the solver as the webhook's documentation names them"
        )
    path = f"/apis/{group}/{_VERSION}/{solver}"
    headers = {"content-type": "application/json"}
    try:
        answer = await client.raw("POST", path, body=json.dumps(payload).encode(), headers=headers)
        content = json.loads(await whole_body(answer))
    except Forbidden as error:
        raise SolverError(
            f"the webhook at {path} refused access: {quote(str(error))}; bind the ClusterRole of its chart "
            "to certwright's ServiceAccount, and let the webhook read the ConfigMap "
            "kube-system/extension-apiserver-authentication, by which it knows the API server"
        ) from error
    except NotFound as error:
        raise SolverError(
            f'no webhook is at {path}; install it, with its APIService "{_VERSION}.{group}", or correct '
            "groupName and solverName of the solver"
        ) from error
    except (ApiError, Unreachable, ValueError) as error:
        raise SolverError(f"the webhook at {path} cannot be called: {quote(str(error))}") from error
    return content if isinstance(content, dict) else {}
