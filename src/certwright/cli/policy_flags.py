"""The operator's policy flags: whether issuers and Challenges may run programs, write files, use http.

A tenant may write an issuer; only the operator sets these flags. See `docs/security.md`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from certwright.cli import lazy
from certwright.cli.options import TRUTH

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = "ACME_"
Programs = dict[str, tuple[str, ...]]


def parse_programs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> Programs:
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


def parse_environment(_context: click.Context, _option: click.Parameter, path: Path | None) -> dict[str, str]:
    """Parse a file of lines `KEY=VALUE`; skips empty lines and those that begin with #."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    environment: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        # Never the line itself: it may contain a credential.
        if not equals or not _VARIABLE.fullmatch(key):
            raise click.BadParameter(f"{path}, line {number}: write KEY=VALUE")
        if key.startswith(_RESERVED):
            raise click.BadParameter(
                f"{path}, line {number}: {_RESERVED}… says what to prove; use another name"
            )
        environment[key] = value
    return environment


def parse_directories(
    _context: click.Context, _option: click.Parameter, values: tuple[Path, ...]
) -> tuple[str, ...]:
    """Each directory must exist; a relative one is below the working directory."""
    for value in values:
        if not value.is_dir():
            raise click.BadParameter(f"`{value}` is not a directory")
    return tuple(str(value.absolute()) for value in values)


def parse_endpoints(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
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


def parse_lexicon(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Parse names of providers with commas between; each must be installed."""
    names = _names(values)
    if names and (problem := lazy.app.lexicon_problem(names)):
        raise click.BadParameter(problem)
    return names


def parse_plugins(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Parse names of plug-ins with commas between; each must be installed."""
    names = _names(values)
    if names and (problem := lazy.app.plugin_problem(names)):
        raise click.BadParameter(problem)
    return names


def _names(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for value in values for part in value.split(",") if (name := part.strip()))


def parse_lexicon_options(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, dict[str, str]]:
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


ALLOW_HTTP_SERVERS = click.option(
    "--allow-http-servers",
    is_flag=True,
    help="Let issuers name servers by http://; without it they must use https.",
)
OPTIONS: Final = (
    click.option(
        "--exec-solver",
        "exec_solvers",
        metavar="NAME='COMMAND ARGS'",
        multiple=True,
        callback=parse_programs,
        help="Allow ACME solvers of type `exec` to run this command line; may be repeated.",
    ),
    click.option(
        "--exec-solver-env-file",
        "exec_environment",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=parse_environment,
        help="KEY=VALUE lines: the environment of those programs, beside ACME_* and PATH.",
    ),
    click.option(
        "--webroot",
        "webroots",
        metavar="DIR",
        multiple=True,
        type=click.Path(path_type=Path),
        callback=parse_directories,
        help="Allow ACME solvers of type `http01.webroot` to write below DIR; may be repeated.",
    ),
    click.option(
        "--dns01-endpoint",
        "dns01_endpoints",
        metavar="PROVIDER=URL",
        multiple=True,
        callback=parse_endpoints,
        help="Send the requests to a DNS provider's API to URL (http is allowed); may be repeated.",
    ),
    click.option(
        "--dns01-lexicon",
        "lexicon_providers",
        metavar="NAMES",
        multiple=True,
        callback=parse_lexicon,
        help="Allow ACME solvers to use these providers of dns-lexicon, with commas between.",
    ),
    click.option(
        "--dns01-lexicon-option",
        "lexicon_options",
        metavar="PROVIDER.OPTION=VALUE",
        multiple=True,
        callback=parse_lexicon_options,
        help="Set an option of such a provider that no issuer may, e.g. its server; may be repeated.",
    ),
    click.option(
        "--dns01-plugin",
        "plugins",
        metavar="NAMES",
        multiple=True,
        callback=parse_plugins,
        help="Allow ACME solvers to use these DNS plug-ins, with commas between.",
    ),
    click.option(
        "--issuer-ambient-credentials",
        type=TRUTH,
        default=False,
        # As Go's flags: without a value it means true.
        is_flag=False,
        flag_value=True,
        help="Let Issuers use the cloud credentials of this process.  [default: false]",
    ),
    click.option(
        "--cluster-issuer-ambient-credentials",
        type=TRUTH,
        default=True,
        is_flag=False,
        flag_value=True,
        help="Let ClusterIssuers use the cloud credentials of this process.  [default: true]",
    ),
    ALLOW_HTTP_SERVERS,
)
