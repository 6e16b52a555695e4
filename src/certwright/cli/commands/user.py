"""`certwright user`."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
from msgspec.structs import asdict

from certwright.cli import access, daemon, users
from certwright.cli.commands.expiring import parse_within
from certwright.cli.errors import Failed, report_warning
from certwright.cli.options import Folder, ServerOptions, asynchronous, gathered, server_options
from certwright.cli.output import echo, print_content
from certwright.cli.tables import lines_of
from certwright.kube.client import kubeconfig
from certwright.kube.client.kubeconfig_file import KubeconfigError
from certwright.kube.util.files import write_atomically

# Roles with the right to create tokens of a namespace's ServiceAccounts, which users are.
_TOKEN_ROLES = ("edit", "admin")
_LONGEST = timedelta(seconds=2**32)  # "may not specify a duration larger than 2^32 seconds"
_SHORTEST = timedelta(minutes=10)
# RFC 1123 label, as names of ServiceAccounts; the name of the binding is longer.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")


@click.group(cls=Folder, short_help="Create, list and delete users of the server, with kubeconfigs.")
def command() -> None:
    """Create, list and delete users of the server.

    A user is a ServiceAccount in the namespace certwright-users, bound to a ClusterRole: view (everything but
    Secrets), edit (also Secrets), admin (also the rights of others) or cluster-admin.

    \b
    Examples:
      certwright user create alice --role view --kubeconfig alice.kubeconfig
      certwright user list
      certwright user delete alice
    """


def _parse_name(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} is not a name: write lower-case letters, digits and '-', 52 at most, e.g. alice"
        )
    return value


def _parse_lifetime(context: click.Context, option: click.Parameter, value: str) -> timedelta:
    lifetime = parse_within(context, option, value)
    assert lifetime is not None
    if lifetime < _SHORTEST:
        raise click.BadParameter(f"{value!r} is too short; a token is valid for 10m at least")
    if lifetime > _LONGEST:
        raise click.BadParameter(f"{value!r} is too long; a token is valid for {_LONGEST.days}d at most")
    return lifetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The file to write, and where the server is, for the administrator and for the user."""

    kubeconfig: Path
    admin_kubeconfig: Path | None
    context: str | None
    server: str | None


_TARGET_OPTIONS = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="The kubeconfig to write; one of the same user is replaced.",
    ),
    click.option(
        "--admin-kubeconfig",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The administrator's kubeconfig; without it $KUBECONFIG, then ./certwright-data/kubeconfig.",
    ),
    click.option("--context", metavar="NAME", help="The context of the administrator's kubeconfig to use."),
    click.option(
        "--server",
        metavar="URL",
        help="The server's address in the new kubeconfig.  [default: as in the administrator's]",
    ),
)


@command.command(short_help="Create a user and write a kubeconfig for it.")
@click.argument("name", metavar="NAME", callback=_parse_name)
@click.option("--role", type=click.Choice(users.ROLES), required=True, help="The rights of the user.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    metavar="NS",
    multiple=True,
    help="The rights apply in this namespace only; may be repeated.  [default: all namespaces]",
)
@click.option(
    "--for",
    "lifetime",
    metavar="TIME",
    default="30d",
    show_default=True,
    callback=_parse_lifetime,
    help="How long the token is valid; e.g. 12h, 30d or 52w.",
)
@gathered("target", _Target, _TARGET_OPTIONS)
@asynchronous
async def create(
    *, name: str, role: str, namespaces: tuple[str, ...], lifetime: timedelta, target: _Target
) -> None:
    """Create the user NAME and write a kubeconfig with a token for it, readable by its owner only.

    For a user that exists, with the same rights, the kubeconfig gets a new token; older ones stay valid until
    they expire. `user delete` ends the access immediately.

    \b
    Examples:
      certwright user create alice --role view --kubeconfig alice.kubeconfig
      certwright user create ci --role edit -n shop --for 12h --kubeconfig ci.kubeconfig
      certwright user create bob --role view --server https://pki:8443 --kubeconfig bob.conf
    """
    if role == "cluster-admin" and namespaces:
        raise click.UsageError("--role cluster-admin applies to all namespaces; write admin for some of them")
    if users.NAMESPACE in namespaces:
        raise click.UsageError(
            f"-n {users.NAMESPACE} would give the user the tokens of all users; name other namespaces"
        )
    _check_target(target.kubeconfig, name)
    choice = access.choose(target.admin_kubeconfig, os.environ, Path.cwd())
    cluster = access.load(choice, target.context)
    options = ServerOptions(kubeconfig=target.admin_kubeconfig, context=target.context)
    async with access.session(options) as here:
        user = users.NewUser(name=name, role=role, namespaces=namespaces, lifetime=lifetime)
        token = await users.create(here.client, user)
    content = kubeconfig.render(target.server or cluster.server, cluster.ca_pem, token.value, name)
    write_atomically(target.kubeconfig, content)
    where = f" in {', '.join(namespaces)}" if namespaces else ""
    if role in _TOKEN_ROLES and not namespaces:
        report_warning(
            f"{role} in all namespaces includes the tokens of all users, administrators' too; -n limits it"
        )
    echo(f"user {name} ({role}{where}): {target.kubeconfig} is valid until {token.expires}")


def _check_target(path: Path, name: str) -> None:
    """Raise `Failed` for a file that is not the user's kubeconfig, e.g. the administrator's, or without a
    folder."""
    if not path.parent.is_dir():
        raise Failed(f"{path} cannot be written: {path.parent} is not a folder")
    if not os.access(path.parent, os.W_OK):
        raise Failed(f"{path} cannot be written: {path.parent} is read-only, or of another user")
    if not path.exists():
        return
    try:
        kubeconfig.load(path, name)
    except KubeconfigError:
        raise Failed(
            f"{path} exists and is not a kubeconfig of {name}: --kubeconfig is the file to write here, and "
            "--admin-kubeconfig the one of the server"
        ) from None


@command.command("list", short_help="List the users.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="As JSON or YAML.")
@server_options
@asynchronous
async def list_(*, server: ServerOptions, output: str | None) -> None:
    """List the users that `user create` has made, with their rights and the end of their last token.

    \b
    Example:
      certwright user list -o json
    """
    async with access.session(server) as here:
        listed = await users.list_users(here.client)
    if output is not None:
        print_content([asdict(user) for user in listed], output)
    elif listed:
        rows = [(user.name, ", ".join(user.roles) or "none", user.expires or "unknown") for user in listed]
        echo("\n".join(lines_of([("NAME", "RIGHTS", "TOKEN EXPIRES"), *rows])))
    else:
        echo("there are no users; `certwright user create` creates one")


@command.command(short_help="Delete a user, whose tokens become invalid.")
@click.argument("name", metavar="NAME", callback=_parse_name)
@server_options
@asynchronous
async def delete(*, name: str, server: ServerOptions) -> None:
    """Delete the user NAME: its tokens become invalid immediately.

    \b
    Example:
      certwright user delete alice
    """
    async with access.session(server) as here:
        await users.delete(here.client, name)
    echo(f"user {name} deleted; its tokens are no longer accepted")


@command.command("rotate-admin", short_help="Replace the administrator's token.")
@daemon.data_dir_option("The data directory of the server, which may be running.")
def rotate_admin(*, data_dir: Path) -> None:
    """Replace the administrator's token in the data directory, and in the kubeconfig there.

    A running server rejects the former token a second later; it need not be restarted. Copies of the
    kubeconfig elsewhere are void. Servers that share a store on etcd follow within a minute, if this one
    runs.

    \b
    Example:
      certwright user rotate-admin --data-dir /var/lib/certwright
    """
    path, config = data_dir / "pki" / "admin.token", data_dir / "kubeconfig"
    if not path.exists():
        raise Failed(f"{path} does not exist; --data-dir is the directory of a server that has been started")
    token = secrets.token_urlsafe(32)
    content = None
    if config.exists():
        try:
            cluster = kubeconfig.load(config)
        except KubeconfigError as error:
            raise Failed(f"{config} cannot be used: {error}") from error
        content = kubeconfig.render(cluster.server, cluster.ca_pem, token)
    write_atomically(path, token.encode())
    if content is not None:
        write_atomically(config, content)
    echo(f"the administrator's token is new; {config} has it, a running server takes it within a second")
