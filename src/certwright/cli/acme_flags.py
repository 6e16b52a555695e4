"""The ACME flags of `serve`, `run` and `controllers`: cert-manager's, those of our listeners, and the policy
of the operator: whether issuers and Challenges may run programs, write files, use http.

A tenant may write an issuer; only the operator sets these flags. See `docs/security.md`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final

import click

from certwright.cli import lazy
from certwright.cli.flags import (
    Address,
    duration,
    file,
    flag,
    group,
    number,
    parse_address,
    removed,
    repeated,
    split_words,
    switch,
    values_of,
    words,
)
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


ALLOW_HTTP_SERVERS = flag(
    "--allow-http-servers",
    "Let issuers name servers by http://; without it they must use https.",
    is_flag=True,
    reloads=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFlags:
    """What the operator allows."""

    SECTION: ClassVar = "ACME"

    exec_solvers: Programs = repeated(
        "--exec-solver",
        "Allow ACME solvers of type `exec` to run this command line; may be repeated.",
        metavar="NAME='COMMAND ARGS'",
        parse=parse_programs,
        reloads=True,
        often=True,
    )
    exec_environment: dict[str, str] = file(
        "--exec-solver-env-file",
        "KEY=VALUE lines: the environment of those programs, beside ACME_* and PATH.",
        parse=parse_environment,
        reloads=True,
    )
    webroots: tuple[str, ...] = repeated(
        "--webroot",
        "Allow ACME solvers of type `http01.webroot` to write below DIR; may be repeated.",
        metavar="DIR",
        type=click.Path(path_type=Path),
        parse=parse_directories,
        reloads=True,
        often=True,
    )
    dns01_endpoints: dict[str, str] = repeated(
        "--dns01-endpoint",
        "Send the requests to a DNS provider's API to URL (http is allowed); may be repeated.",
        metavar="PROVIDER=URL",
        parse=parse_endpoints,
        reloads=True,
    )
    lexicon_providers: tuple[str, ...] = repeated(
        "--dns01-lexicon",
        "Allow ACME solvers to use these providers of dns-lexicon, with commas between.",
        metavar="NAMES",
        parse=parse_lexicon,
        reloads=True,
    )
    lexicon_options: dict[str, dict[str, str]] = repeated(
        "--dns01-lexicon-option",
        "Set an option of such a provider that no issuer may, e.g. its server; may be repeated.",
        metavar="PROVIDER.OPTION=VALUE",
        parse=parse_lexicon_options,
        reloads=True,
    )
    plugins: tuple[str, ...] = repeated(
        "--dns01-plugin",
        "Allow ACME solvers to use these DNS plug-ins, with commas between.",
        metavar="NAMES",
        parse=parse_plugins,
        reloads=True,
    )
    issuer_ambient_credentials: bool = switch(
        "--issuer-ambient-credentials",
        "Let Issuers use the cloud credentials of this process.",
        default=False,
        reloads=True,
    )
    cluster_issuer_ambient_credentials: bool = switch(
        "--cluster-issuer-ambient-credentials",
        "Let ClusterIssuers use the cloud credentials of this process.",
        default=True,
        reloads=True,
    )
    allow_http_servers: bool = ALLOW_HTTP_SERVERS

    @property
    def policy(self) -> lazy.app.OperatorPolicy:
        """The policy. Raises `click.UsageError`."""
        if unused := set(self.lexicon_options) - set(self.lexicon_providers):
            shown = ",".join(sorted(unused))
            raise click.UsageError(f"--dns01-lexicon-option needs --dns01-lexicon {shown}")
        values = values_of(self)
        servers = lazy.app.ServerRules(allow_http=values.pop("allow_http_servers"))
        return lazy.app.OperatorPolicy(servers=servers, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverFlags:
    """Listeners and name servers of solvers, and what the operator allows issuers."""

    SECTION: ClassVar = "ACME"

    http01_listen: Address | None = flag(
        "--http01-listen",
        "Answer HTTP-01 challenges there, e.g. :80; without it, disabled.",
        metavar="HOST:PORT",
        parse=parse_address,
        often=True,
    )
    http01_check_port: int = flag(
        "--http01-check-port",
        "Port of the HTTP-01 self-check, which precedes the notification of the CA.",
        metavar="PORT",
        type=click.IntRange(1, 65535),
        default=80,
        reloads=True,
    )
    http01_nameservers: tuple[str, ...] = words(
        "--acme-http01-solver-nameservers",
        "Name servers used for the HTTP-01 self-check.  [default: the system]",
        metavar="HOST:PORT,…",
        reloads=True,
    )
    tlsalpn01_listen: Address | None = flag(
        "--tlsalpn01-listen",
        "Answer TLS-ALPN-01 challenges there, e.g. :443; without it, disabled.",
        metavar="HOST:PORT",
        parse=parse_address,
        often=True,
    )
    tlsalpn01_backend: Address | None = flag(
        "--tlsalpn01-backend",
        "Backend for all other TLS connections to --tlsalpn01-listen, which are forwarded unread.",
        metavar="HOST:PORT",
        parse=parse_address,
    )
    dns01_nameservers: tuple[str, ...] = words(
        "--dns01-recursive-nameservers",
        "Recursive name servers used for the DNS-01 self-check; an https URL: DNS over HTTPS, by "
        "`certwright[doh]`.  [default: the system's]",
        metavar="HOST:PORT|URL,…",
        reloads=True,
        often=True,
    )
    dns01_recursive_only: bool = switch(
        "--dns01-recursive-nameservers-only",
        "Query recursive name servers only, never those of the zone.",
        default=False,
        reloads=True,
    )

    policy: PolicyFlags = group(PolicyFlags)

    @property
    def settings(self) -> lazy.app.AcmeSettings:
        """The settings of the process. Raises `click.UsageError`."""
        return lazy.app.AcmeSettings(policy=self.policy.policy, **values_of(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeFlags(SolverFlags):
    """The ACME settings, and what the operator allows issuers."""

    SECTION: ClassVar = "ACME"

    max_concurrent_challenges: int = number(
        "--max-concurrent-challenges",
        "Maximum number of concurrent challenges per CA.",
        default=60,
        reloads=True,
    )
    http01_cluster_addresses: tuple[str, ...] = words(
        "--http01-cluster-address",
        "Addresses of this replica that proxies of the cluster connect to for HTTP-01: solvers then "
        "create Ingresses or HTTPRoutes that lead there.  [default: none are created]",
        metavar="IP,…",
    )
    http01_cluster_service: str | None = flag(
        "--http01-cluster-service",
        "Service that selects all replicas: proxies are led to the ready ones, too, as each answers "
        "every challenge.  [default: to this replica only]",
        metavar="NAMESPACE/NAME",
    )
    http01_labels: dict[str, str] = repeated(
        "--acme-http01-solver-extra-labels",
        "Labels of the objects of HTTP-01 solvers: Services, EndpointSlices, Ingresses, HTTPRoutes.",
        metavar="KEY=VALUE,…",
        parse=parse_labels,
    )
    dns01_check_period: timedelta = duration(
        "--dns01-check-retry-period",
        "The longest interval between self-checks of a newly presented challenge.",
        default="10s",
        reloads=True,
    )
    limits_file: Path | None = file(
        "--acme-limits",
        "Rate limits of ACME servers (YAML) that differ from the built-in ones.",
        reloads=True,
    )
    acme_process: None = removed("--acme-process", "; remove it")
