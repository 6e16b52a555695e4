"""The ACME flags of `serve`, `run` and `controllers`: cert-manager's, those of our listeners, and the policy
of the operator: whether issuers and Challenges may run programs, write files, use http.

A tenant may write an issuer; only the operator sets these flags. See `docs/security.md`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from certwright.cli import lazy
from certwright.cli.errors import report_warning
from certwright.cli.flags import (
    Address,
    duration,
    file,
    flag,
    number,
    parse_address,
    repeated,
    split_words,
    switch,
    words,
)
from certwright.cli.options import gathered
from certwright.kube.api.naming import check_labels

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = "ACME_"
Programs = dict[str, tuple[str, ...]]


def parse_programs(values: tuple[str, ...]) -> Programs:
    """Parse `NAME=COMMAND ARGUMENTS`, quoted as for a shell."""
    programs: Programs = {}
    for value in values:
        name, equals, line = value.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise click.BadParameter(
                f"`{value}`: write NAME='COMMAND ARGUMENTS', e.g. hook='/usr/bin/hook -q'"
            )
        try:
            command = tuple(shlex.split(line))
        except ValueError as error:
            raise click.BadParameter(f"`{value}`: the command cannot be split into words: {error}") from error
        if not command or not Path(command[0]).is_absolute():
            raise click.BadParameter(f"`{value}`: name the program by its absolute path")
        if name in programs:
            raise click.BadParameter(f"`{value}`: there is another program of the name {name}")
        programs[name] = command
    return programs


def parse_environment(path: Path | None) -> dict[str, str]:
    """Parse a file of lines `KEY=VALUE`; skips empty lines and those that begin with #."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    environment: dict[str, str] = {}
    for position, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        # Never the line itself: it may contain a credential.
        if not equals or not _VARIABLE.fullmatch(key):
            raise click.BadParameter(f"{path}, line {position}: write KEY=VALUE")
        if key.startswith(_RESERVED):
            raise click.BadParameter(
                f"{path}, line {position}: {_RESERVED}… says what to prove; use another name"
            )
        environment[key] = value
    return environment


def parse_directories(values: tuple[Path, ...]) -> tuple[str, ...]:
    """Each directory must exist; a relative one is below the working directory."""
    for value in values:
        if not value.is_dir():
            raise click.BadParameter(f"`{value}` is not a directory")
    return tuple(str(value.absolute()) for value in values)


def parse_endpoints(values: tuple[str, ...]) -> dict[str, str]:
    """Parse `PROVIDER=URL`."""
    endpoints: dict[str, str] = {}
    for value in values:
        providers = lazy.solver.DNS01_ENDPOINTS
        name, equals, url = value.partition("=")
        if not equals or name not in providers:
            known = ", ".join(providers)
            raise click.BadParameter(f"`{value}`: write PROVIDER=URL; providers: {known}")
        try:
            lazy.outgoing.parse_server_url(url)
        except lazy.outgoing.BadUrl as error:
            raise click.BadParameter(f"`{value}`: {url} {error}") from error
        endpoints[name] = url
    return endpoints


def parse_lexicon(values: tuple[str, ...]) -> tuple[str, ...]:
    """Parse names of providers with commas between; each must be installed."""
    names = split_words(values)
    if names and (problem := lazy.app.lexicon_problem(names)):
        raise click.BadParameter(problem)
    return names


def parse_plugins(values: tuple[str, ...]) -> tuple[str, ...]:
    """Parse names of plug-ins with commas between; each must be installed."""
    names = split_words(values)
    if names and (problem := lazy.app.plugin_problem(names)):
        raise click.BadParameter(problem)
    return names


def parse_lexicon_options(values: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Parse `PROVIDER.OPTION=VALUE`."""
    options: dict[str, dict[str, str]] = {}
    for value in values:
        name, equals, setting = value.partition("=")
        provider, dot, option = name.partition(".")
        if not (equals and dot and provider and option and setting):
            # Never the value: it may contain a credential.
            raise click.BadParameter(
                f"`{name}`: write PROVIDER.OPTION=VALUE, e.g. powerdns.pdns_server=https://dns.example:8081"
            )
        options.setdefault(provider, {})[option] = setting
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFlags:
    """What the operator allows."""

    exec_solvers: Programs
    exec_environment: dict[str, str]
    webroots: tuple[str, ...]
    dns01_endpoints: dict[str, str]
    lexicon_providers: tuple[str, ...]
    lexicon_options: dict[str, dict[str, str]]
    plugins: tuple[str, ...]
    issuer_ambient_credentials: bool
    cluster_issuer_ambient_credentials: bool
    allow_http_servers: bool

    @property
    def policy(self) -> lazy.app.OperatorPolicy:
        """The policy. Raises `click.UsageError`."""
        if unused := set(self.lexicon_options) - set(self.lexicon_providers):
            shown = ",".join(sorted(unused))
            raise click.UsageError(f"--dns01-lexicon-option needs --dns01-lexicon {shown}")
        return lazy.app.OperatorPolicy(
            exec_solvers=self.exec_solvers,
            exec_environment=self.exec_environment,
            webroots=self.webroots,
            dns01_endpoints=self.dns01_endpoints,
            lexicon_providers=self.lexicon_providers,
            lexicon_options=self.lexicon_options,
            plugins=self.plugins,
            issuer_ambient_credentials=self.issuer_ambient_credentials,
            cluster_issuer_ambient_credentials=self.cluster_issuer_ambient_credentials,
            servers=lazy.app.ServerRules(allow_http=self.allow_http_servers),
        )


ALLOW_HTTP_SERVERS = flag(
    "--allow-http-servers",
    is_flag=True,
    text="Let issuers name servers by http://; without it they must use https.",
)
POLICY_OPTIONS = (
    repeated(
        "--exec-solver",
        "exec_solvers",
        metavar="NAME='COMMAND ARGS'",
        parse=parse_programs,
        text="Allow ACME solvers of type `exec` to run this command line; may be repeated.",
    ),
    file(
        "--exec-solver-env-file",
        "exec_environment",
        parse=parse_environment,
        text="KEY=VALUE lines: the environment of those programs, beside ACME_* and PATH.",
    ),
    repeated(
        "--webroot",
        "webroots",
        metavar="DIR",
        type=click.Path(path_type=Path),
        parse=parse_directories,
        text="Allow ACME solvers of type `http01.webroot` to write below DIR; may be repeated.",
    ),
    repeated(
        "--dns01-endpoint",
        "dns01_endpoints",
        metavar="PROVIDER=URL",
        parse=parse_endpoints,
        text="Send the requests to a DNS provider's API to URL (http is allowed); may be repeated.",
    ),
    repeated(
        "--dns01-lexicon",
        "lexicon_providers",
        metavar="NAMES",
        parse=parse_lexicon,
        text="Allow ACME solvers to use these providers of dns-lexicon, with commas between.",
    ),
    repeated(
        "--dns01-lexicon-option",
        "lexicon_options",
        metavar="PROVIDER.OPTION=VALUE",
        parse=parse_lexicon_options,
        text="Set an option of such a provider that no issuer may, e.g. its server; may be repeated.",
    ),
    repeated(
        "--dns01-plugin",
        "plugins",
        metavar="NAMES",
        parse=parse_plugins,
        text="Allow ACME solvers to use these DNS plug-ins, with commas between.",
    ),
    switch(
        "--issuer-ambient-credentials",
        default=False,
        text="Let Issuers use the cloud credentials of this process.",
    ),
    switch(
        "--cluster-issuer-ambient-credentials",
        default=True,
        text="Let ClusterIssuers use the cloud credentials of this process.",
    ),
    ALLOW_HTTP_SERVERS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverFlags(PolicyFlags):
    """Listeners and name servers of solvers, and what the operator allows issuers."""

    http01_listen: Address | None
    http01_check_port: int
    http01_nameservers: tuple[str, ...]
    tlsalpn01_listen: Address | None
    tlsalpn01_backend: Address | None
    dns01_nameservers: tuple[str, ...]
    dns01_recursive_only: bool

    @property
    def settings(self) -> lazy.app.AcmeSettings:
        """The settings of the process."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for field in fields(PolicyFlags):
            del given[field.name]
        return lazy.app.AcmeSettings(policy=self.policy, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeFlags(SolverFlags):
    """The ACME settings, and what the operator allows issuers."""

    max_concurrent_challenges: int
    http01_cluster_addresses: tuple[str, ...]
    http01_cluster_service: str | None
    http01_labels: dict[str, str]
    dns01_check_period: timedelta
    limits_file: Path | None


def parse_labels(values: tuple[str, ...]) -> dict[str, str]:
    """Parse labels; each value may contain several, comma-separated."""
    labels: dict[str, str] = {}
    for text in (part.strip() for value in values for part in value.split(",")):
        key, equals, value = text.partition("=")
        if text and not equals:
            raise click.BadParameter(f"{text!r} is not a label; write e.g. team=web")
        if text:
            labels[key] = value
    if errors := check_labels(labels, "label"):
        raise click.BadParameter("; ".join(map(str, errors)))
    return labels


def warn_of_acme_process(value: str | None) -> None:
    """Accept the removed `--acme-process` for one release, with a warning."""
    if value is not None:
        report_warning("--acme-process no longer has any effect; remove it")


_SOLVER_OPTIONS = (
    flag(
        "--http01-listen",
        metavar="HOST:PORT",
        parse=parse_address,
        text="Answer HTTP-01 challenges there, e.g. :80; without it, disabled.",
    ),
    flag(
        "--http01-check-port",
        metavar="PORT",
        type=click.IntRange(1, 65535),
        default=80,
        text="Port of the HTTP-01 self-check, which precedes the notification of the CA.",
    ),
    words(
        "--acme-http01-solver-nameservers",
        "http01_nameservers",
        metavar="HOST:PORT,…",
        text="Name servers used for the HTTP-01 self-check.  [default: the system]",
    ),
    flag(
        "--tlsalpn01-listen",
        metavar="HOST:PORT",
        parse=parse_address,
        text="Answer TLS-ALPN-01 challenges there, e.g. :443; without it, disabled.",
    ),
    flag(
        "--tlsalpn01-backend",
        metavar="HOST:PORT",
        parse=parse_address,
        text="Backend for all other TLS connections to --tlsalpn01-listen, which are forwarded unread.",
    ),
    words(
        "--dns01-recursive-nameservers",
        "dns01_nameservers",
        metavar="HOST:PORT|URL,…",
        text="Recursive name servers used for the DNS-01 self-check; an https URL: DNS over HTTPS, by "
        "`certwright[doh]`.  [default: the system's]",
    ),
    switch(
        "--dns01-recursive-nameservers-only",
        "dns01_recursive_only",
        default=False,
        text="Query recursive name servers only, never those of the zone.",
    ),
)
_OPTIONS = (
    number(
        "--max-concurrent-challenges",
        default=60,
        text="Maximum number of concurrent challenges per CA.",
    ),
    *_SOLVER_OPTIONS,
    words(
        "--http01-cluster-address",
        "http01_cluster_addresses",
        metavar="IP,…",
        text="Addresses of this replica that proxies of the cluster connect to for HTTP-01: solvers then "
        "create Ingresses or HTTPRoutes that lead there.  [default: none are created]",
    ),
    flag(
        "--http01-cluster-service",
        metavar="NAMESPACE/NAME",
        text="Service that selects all replicas: proxies are led to the ready ones, too, as each answers "
        "every challenge.  [default: to this replica only]",
    ),
    repeated(
        "--acme-http01-solver-extra-labels",
        "http01_labels",
        metavar="KEY=VALUE,…",
        parse=parse_labels,
        text="Labels of the objects of HTTP-01 solvers: Services, EndpointSlices, Ingresses, HTTPRoutes.",
    ),
    duration(
        "--dns01-check-retry-period",
        "dns01_check_period",
        default="10s",
        text="The longest interval between self-checks of a newly presented challenge.",
    ),
    file(
        "--acme-limits",
        "limits_file",
        text="Rate limits of ACME servers (YAML) that differ from the built-in ones.",
    ),
    flag(
        "--acme-process",
        parse=warn_of_acme_process,
        expose_value=False,
        hidden=True,
        text="Has no effect any more; accepted for one release.",
    ),
)

acme_options = gathered("acme", AcmeFlags, (*_OPTIONS, *POLICY_OPTIONS))
"""Adds the flags; the function gets them as `acme: AcmeFlags`."""
solver_options = gathered("solvers", SolverFlags, (*_SOLVER_OPTIONS, *POLICY_OPTIONS))
"""Adds the flags of solvers alone; the function gets them as `solvers: SolverFlags`."""
