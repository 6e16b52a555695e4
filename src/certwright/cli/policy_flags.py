"""The operator's policy flags: whether issuers and Challenges may run programs, write files, use http.

A tenant may write an issuer; only the operator sets these flags. See `docs/security.md`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from certwright.resources.operator_policy import OperatorPolicy

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = "ACME_"
Programs = dict[str, tuple[str, ...]]


def parse_programs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> Programs:
    """Parse `NAME=COMMAND ARGUMENTS`, quoted as for a shell."""
    found: Programs = {}
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
        if name in found:
            raise click.BadParameter(f"`{value}`: there is another program of the name {name}")
        found[name] = command
    return found


def parse_environment(_context: click.Context, _option: click.Parameter, path: Path | None) -> dict[str, str]:
    """Parse a file of lines `KEY=VALUE`; skips empty lines and those that begin with #."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    found: dict[str, str] = {}
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
        found[key] = value
    return found


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
    # Loads the kinds of issuers, which --help does not need.
    from certwright.kit.outgoing import BadUrl, parse_server_url
    from certwright.resources.operator_policy import DNS01_ENDPOINTS

    found: dict[str, str] = {}
    for value in values:
        name, equals, url = value.partition("=")
        if not equals or name not in DNS01_ENDPOINTS:
            known = ", ".join(DNS01_ENDPOINTS)
            raise click.BadParameter(f"`{value}`: write PROVIDER=URL; providers: {known}")
        try:
            parse_server_url(url)
        except BadUrl as error:
            raise click.BadParameter(f"`{value}`: {url} {error}") from error
        found[name] = url
    return found


def take_policy(given: dict[str, Any]) -> OperatorPolicy:
    """The policy of the flags, which are removed from `given`."""
    # Loads the kinds of issuers, which --help does not need.
    from certwright.kit.outgoing import ServerRules
    from certwright.resources.operator_policy import OperatorPolicy

    return OperatorPolicy(
        exec_solvers=given.pop("exec_solvers"),
        exec_environment=given.pop("exec_environment"),
        webroots=given.pop("webroots"),
        dns01_endpoints=given.pop("dns01_endpoints"),
        servers=ServerRules(allow_http=given.pop("allow_http_servers")),
    )


ALLOW_HTTP_SERVERS = click.option(
    "--allow-http-servers",
    is_flag=True,
    help="Let issuers name servers by http://; without it they must use https.",
)
OPTIONS = (
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
    ALLOW_HTTP_SERVERS,
)
