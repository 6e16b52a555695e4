"""Solver factory: the solver and the self-check for a solver of an issuer, with values from Secrets.

Loaded with the first Challenge, or the first issuer with a DNS-01 solver, because the libraries for DNS and
HTTP take 14 MB.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from certwright.acme.protocol import challenges
from certwright.acme.solvers.checks import make_check
from certwright.acme.solvers.contract import (
    Check,
    CheckSettings,
    MakeCheck,
    Solver,
    SolverError,
    SolverNotAllowed,
    Unpresented,
    Updating,
)
from certwright.acme.solvers.dns01.hosts.contract import Outside
from certwright.acme.solvers.dns01.hosts.session import AfterChange, HostedSolver, HostSessions
from certwright.acme.solvers.dns01.rfc2136 import make_updater
from certwright.acme.solvers.dns01.webhook import Webhook
from certwright.acme.solvers.names import NameServers, parse_server
from certwright.acme.solvers.program import Program
from certwright.acme.solvers.webroot import WebRoot, WebRoots
from certwright.controllers.acme.challenge_work import SolverUse
from certwright.controllers.acme.dns_hosts import HOSTS, HostValues, host_of, settings_of
from certwright.controllers.acme.options import NO_HTTP01_LISTENER, NO_TLSALPN01_LISTENER, AcmeOptions
from certwright.controllers.acme.routes.solver import RouteCheck, Routes, RouteSolver
from certwright.controllers.servers import Servers
from certwright.issuers.contract import GetSecret, GetToken
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls, quote
from certwright.kube.api.errors import ApiError, Forbidden, NotFound, Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import whole_body
from certwright.resources import operator_policy
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.solver import RFC2136DNS, DNS01Solver, ExecSolver, HTTP01Solver

if TYPE_CHECKING:
    from certwright.acme.solvers.http01 import Responder
    from certwright.acme.solvers.tlsalpn01 import Listener


CallWebhook = Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends a ChallengePayload to the solver of that group and name. Raises `SolverError`."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What solvers share in this process. `responder` and `listener` are None where nothing listens;
    `http_names` and `dns_names` are name servers, empty: the system's. `make_check` replaces the self-checks
    of this process, in tests. `asked` is for `_names`, `webroots` for the solvers below them. `policy` is
    what the operator allows. `routes` create Ingresses and HTTPRoutes (None: this process creates none).
    `hosts` are the DNS hosts in use, `get_token` makes the function that requests
    tokens of the ServiceAccounts in a namespace. `now` is the wall clock."""

    now: Callable[[], datetime]
    policy: OperatorPolicy = msgspec.field(default_factory=OperatorPolicy)
    webroots: WebRoots = msgspec.field(default_factory=WebRoots)
    responder: Responder | None = None
    listener: Listener | None = None
    routes: Routes | None = None
    call_webhook: CallWebhook | None = None
    make_check: MakeCheck | None = None
    http_check_port: int = 80
    tls_check_port: int = 443
    http_names: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    dns_recursive_only: bool = False
    dns_authority_port: int = 53
    hosts: HostSessions
    get_token: Callable[[str], GetToken] | None = None
    asked: dict[tuple[str, ...], NameServers] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Means:
    """The solver and the self-check of one challenge; `check` None: there is no self-check."""

    solver: Solver
    check: Check | None = field(repr=False)


async def means_of(use: SolverUse, surroundings: Surroundings) -> Means:
    """The solver and the self-check. Raises `SolverError` with a sentence where none is
    possible: nothing listens, a Secret is missing, a value is invalid; `SolverNotAllowed` where the
    operator's flags do not allow it, regardless of the Challenge's author."""
    spec = use.solver
    if violations := operator_policy.solver_violations(spec, "spec.solver", surroundings.policy):
        raise SolverNotAllowed(str(violations[0]))
    if spec.http01 is not None:
        solver = _http01(spec.http01, surroundings, use)
    elif spec.tls_alpn01 is not None:
        solver = _tls_alpn01(surroundings)
    elif spec.dns01 is not None:
        names = _names(spec.dns01.nameservers or surroundings.dns_names, surroundings)
        solver = await _dns01(spec.dns01, names, surroundings, use)
    elif spec.dns_persist01 is not None:
        solver = Unpresented()
    elif spec.exec is not None:
        solver = _program(spec.exec, surroundings.policy)
    else:
        raise SolverError("the challenge names no solver that this version knows")
    check = _check(_check_settings(use, surroundings), surroundings)
    if isinstance(solver, HostedSolver):
        check = AfterChange(solver, check)
    elif isinstance(solver, RouteSolver):
        check = RouteCheck(solver, check)
    return Means(solver, check)


def _program(spec: ExecSolver, policy: OperatorPolicy) -> Solver:
    command = policy.command_of(spec.command)
    assert command is not None, "`means_of` has asked the policy"
    return Program(command, environment=policy.exec_environment)


def _http01(spec: HTTP01Solver, surroundings: Surroundings, use: SolverUse) -> Solver:
    if spec.webroot is not None:
        place = surroundings.policy.webroot_of(spec.webroot.path)
        assert place is not None, "`means_of` has asked the policy"
        return WebRoot(*place, shared=surroundings.webroots)
    if surroundings.responder is None:
        raise SolverError(NO_HTTP01_LISTENER)
    if surroundings.routes is not None and use.challenge is not None:
        return RouteSolver(surroundings.routes, surroundings.responder, use.challenge)
    return surroundings.responder


def _tls_alpn01(surroundings: Surroundings) -> Solver:
    if surroundings.listener is None:
        raise SolverError(NO_TLSALPN01_LISTENER)
    return surroundings.listener


def _check_settings(use: SolverUse, surroundings: Surroundings) -> CheckSettings:
    match type_ := use.solver.challenge_type.lower():
        case challenges.HTTP_01:
            return CheckSettings(
                type=type_, port=surroundings.http_check_port, servers=surroundings.http_names
            )
        case challenges.TLS_ALPN_01:
            return CheckSettings(
                type=type_, port=surroundings.tls_check_port, servers=surroundings.http_names
            )
        case _:
            dns01 = use.solver.dns01
            chosen = tuple(dns01.nameservers) if dns01 is not None else ()
            return CheckSettings(
                type=type_,
                servers=chosen or surroundings.dns_names,
                recursive_only=surroundings.dns_recursive_only or bool(chosen),
                authority_port=surroundings.dns_authority_port,
            )


def _check(settings: CheckSettings, surroundings: Surroundings) -> Check:
    if surroundings.make_check is not None:
        return surroundings.make_check(settings)
    return make_check(settings, lambda requested: _names(requested.servers, surroundings), surroundings.now)


def _names(servers: Sequence[str], surroundings: Surroundings) -> NameServers:
    """One for all challenges that use the same servers, because they share what it learns of zones."""
    asked = tuple(servers)
    try:
        if asked not in surroundings.asked:
            surroundings.asked[asked] = NameServers(
                asked,
                authority_port=surroundings.dns_authority_port,
                # Only those of the operator's flag: an issuer's must not make this process request URLs.
                over_https=asked == surroundings.dns_names,
            )
    except ValueError as error:
        raise SolverError(str(error)) from error
    return surroundings.asked[asked]


async def _dns01(
    spec: DNS01Solver,
    names: NameServers,
    surroundings: Surroundings,
    use: SolverUse,
) -> Solver:
    ambient = surroundings.policy.allows_ambient(use.issuer_kind)
    get_secret, secrets_in = use.get_secret, use.secrets_in
    follow = spec.cname_strategy == "Follow"
    if spec.rfc2136 is not None:
        updating = Updating(
            server=_server(spec.rfc2136.nameserver),
            servers=tuple(spec.nameservers) or surroundings.dns_names,
            authority_port=surroundings.dns_authority_port,
            tsig=await _tsig_key(spec.rfc2136, get_secret),
            tcp=spec.rfc2136.protocol.upper() == "TCP",
            follow=follow,
        )
        return make_updater(updating, names)
    if spec.webhook is not None:
        call, webhook = surroundings.call_webhook, spec.webhook
        if call is None:
            raise SolverError("webhooks cannot be called by this process")

        async def ask(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            return await call(webhook.group_name, webhook.solver_name, payload)

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
            get_token=surroundings.get_token(secrets_in) if surroundings.get_token is not None else None,
            endpoints=surroundings.policy.dns01_endpoints,
            environment=os.environ,
            ambient=ambient,
            rules=surroundings.policy.servers,
            lexicon_options=surroundings.policy.lexicon_options,
        )
        settings = await settings_of(spec, field, values)
        return HostedSolver(surroundings.hosts.get(settings), names, follow=follow)
    known = ", ".join(("rfc2136", "webhook", *HOSTS.values()))
    raise SolverError(f"dns01 names no provider that this version knows; it knows {known}")


def _server(text: str) -> tuple[str, int]:
    try:
        return parse_server(text)
    except ValueError as error:
        raise SolverError(f"rfc2136.nameserver: {error}") from error


async def _tsig_key(spec: RFC2136DNS, get_secret: GetSecret) -> tuple[str, str, str] | None:
    reference = spec.tsig_secret_secret_ref
    if reference is None or not spec.tsig_key_name:
        return None
    data = await get_secret(reference.name)
    secret = (data or {}).get(reference.key, b"")
    if not secret:
        what = "does not exist" if data is None else f'has no entry "{reference.key}"'
        raise SolverError(f'Secret "{reference.name}" with the TSIG key {what}')
    return spec.tsig_key_name, secret.decode(errors="replace"), spec.tsig_algorithm or "HMACMD5"


_VERSION = "v1alpha1"
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_SEGMENT = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")


async def call_webhook(
    client: Client, group: str, solver: str, payload: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The answer of the solver of that group and name to a ChallengePayload. Raises `SolverError`.

    The request has the rights of the controllers, and both names come from an object that a tenant may have
    written: neither may lead to another path.
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
