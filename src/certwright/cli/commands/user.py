"""`certwright user`."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec.structs import asdict

from certwright.cli import access
from certwright.cli.commands.expiring import parse_within
from certwright.cli.errors import Failed, report_warning
from certwright.cli.flags import directory, file, flag, flag_options, single
from certwright.cli.format import echo, lines_of, print_content
from certwright.cli.options import Folder, ServerOptions, asynchronous, server_options
from certwright.kube.api.core import NAMESPACES, SERVICE_ACCOUNTS, Namespace, ServiceAccount
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client import kubeconfig
from certwright.kube.client.kubeconfig_file import KubeconfigError
from certwright.kube.client.rest import Client
from certwright.kube.util.files import write_atomically

Json = dict[str, Any]

NAMESPACE: Final = "certwright-users"
LABEL: Final = "certwright.io/user"
"""Label of the ServiceAccount and the bindings of a user: the user's name."""
EXPIRES: Final = "certwright.io/token-expires"
"""Annotation of a ServiceAccount: when the last token that was created for it expires (RFC 3339)."""
ROLES: Final = ("view", "edit", "admin", "cluster-admin")
_GROUP = "rbac.authorization.k8s.io"
_CLUSTER_VIEW = "cert-manager-cluster-view"
"""ClusterIssuers are in none of the roles for namespaces."""
_CLUSTER_BINDINGS: Final[Kind[Json]] = Kind(
    _GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", False, dict
)
_BINDINGS: Final[Kind[Json]] = Kind(_GROUP, "v1", "RoleBinding", "rolebindings", "rolebinding", True, dict)


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user to be created. Without `namespaces` the role applies to the whole server."""

    name: str
    role: str
    namespaces: tuple[str, ...]
    lifetime: timedelta


class Token(msgspec.Struct, frozen=True):
    """A token, and when it expires (RFC 3339); the server may have shortened its life."""

    value: str
    expires: str


class User(msgspec.Struct, frozen=True):
    """An existing user; `roles` are `ROLE` or `ROLE in NAMESPACE`."""

    name: str
    roles: tuple[str, ...]
    expires: str


async def create_user(client: Client, user: NewUser) -> Token:
    """Create what is missing of the user, and a token. Raises `ApiError`, and `Failed` if the user exists
    with other rights, or a namespace does not exist."""
    for namespace in user.namespaces:
        # Before the user exists, who would otherwise be left without rights.
        try:
            await client.get(NAMESPACES, namespace)
        except NotFound:
            raise Failed(f"namespace {namespace} does not exist; create it first, or name another") from None
    await _ensure(client, NAMESPACES, Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    meta = ObjectMeta(name=user.name, namespace=NAMESPACE, labels={LABEL: user.name})
    await _ensure(client, SERVICE_ACCOUNTS, ServiceAccount(metadata=meta))
    name = f"certwright-user-{user.name}"
    desired = [_binding(user, name, user.role, namespace) for namespace in user.namespaces or ("",)]
    if not user.namespaces and user.role != "cluster-admin":
        desired.append(_binding(user, f"{name}-cluster", _CLUSTER_VIEW))
    existing = {_place(live): live for live in await _bindings_of(client, user.name)}
    for binding in desired:
        before = existing.pop(_place(binding), None)
        if before is not None and before["roleRef"]["name"] != binding["roleRef"]["name"]:
            existing[_place(binding)] = before
    if existing:
        raise Failed(
            f"the user {user.name} exists with other rights ({', '.join(_rights(existing.values()))}); "
            f"delete it first: certwright user delete {user.name}"
        )
    for binding in desired:
        await _ensure(client, _kind_of(binding), binding)
    return await _new_token(client, user)


async def list_users(client: Client) -> list[User]:
    """All users, by name. Raises `ApiError`."""
    accounts, bindings = await asyncio.gather(
        client.list(SERVICE_ACCOUNTS, NAMESPACE, labels=LABEL), _bindings_of(client)
    )
    users = []
    for account in accounts.items:
        meta = account.metadata
        own = [binding for binding in bindings if binding["metadata"]["labels"][LABEL] == meta.name]
        users.append(User(meta.name, tuple(_rights(own)), meta.annotations.get(EXPIRES, "")))
    return sorted(users, key=lambda user: user.name)


async def delete_user(client: Client, name: str) -> None:
    """Delete the user: all its tokens become invalid. Raises `ApiError`, and `Failed` if it does not
    exist."""
    try:
        # First, because it ends the access.
        await client.delete(SERVICE_ACCOUNTS, name, NAMESPACE)
    except NotFound:
        raise Failed(f"there is no user {name}; `certwright user list` lists them") from None
    for binding in await _bindings_of(client, name):
        meta = binding["metadata"]
        await client.delete(_kind_of(binding), meta["name"], meta.get("namespace", ""))


async def _new_token(client: Client, user: NewUser) -> Token:
    path = SERVICE_ACCOUNTS.path(NAMESPACE, user.name, "token")
    spec = {"expirationSeconds": int(user.lifetime.total_seconds())}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    headers = {"content-type": "application/json"}
    response = await client.raw("POST", path, body=msgspec.json.encode(body), headers=headers)
    status = msgspec.json.decode(response.body)["status"]
    token = Token(status["token"], status["expirationTimestamp"])
    patch = {"metadata": {"annotations": {EXPIRES: token.expires}}}
    await client.patch(SERVICE_ACCOUNTS, user.name, NAMESPACE, patch)
    return token


def _binding(user: NewUser, name: str, role: str, namespace: str = "") -> Json:
    metadata = {"name": name, "labels": {LABEL: user.name}}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": user.name, "namespace": NAMESPACE}],
    }


def _kind_of(binding: Mapping[str, Any]) -> Kind[Json]:
    return _BINDINGS if binding["metadata"].get("namespace") else _CLUSTER_BINDINGS


def _place(binding: Mapping[str, Any]) -> tuple[str, str]:
    return binding["metadata"].get("namespace", ""), binding["metadata"]["name"]


def _rights(bindings: Sequence[Json] | Any) -> list[str]:
    rights = []
    for binding in bindings:
        role, namespace = binding["roleRef"]["name"], binding["metadata"].get("namespace", "")
        if role != _CLUSTER_VIEW:
            rights.append(f"{role} in {namespace}" if namespace else role)
    return sorted(rights)


async def _bindings_of(client: Client, name: str = "") -> list[Json]:
    labels = f"{LABEL}={name}" if name else LABEL
    lists = await asyncio.gather(
        client.list(_CLUSTER_BINDINGS, labels=labels), client.list(_BINDINGS, labels=labels)
    )
    return [binding for listing in lists for binding in listing.items]


async def _ensure(client: Client, kind: Kind[Any], obj: Any) -> None:
    try:
        await client.create(kind, obj)
    except AlreadyExists:
        pass


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

    kubeconfig: Path = file(
        "--kubeconfig", "The kubeconfig to write; one of the same user is replaced.", required=True
    )
    admin_kubeconfig: Path | None = file(
        "--admin-kubeconfig",
        "The administrator's kubeconfig; without it $KUBECONFIG, then ./certwright-data/kubeconfig.",
    )
    context: str | None = flag(
        "--context", "The context of the administrator's kubeconfig to use.", metavar="NAME"
    )
    server: str | None = flag(
        "--server",
        "The server's address in the new kubeconfig.  [default: as in the administrator's]",
        metavar="URL",
    )


@command.command(short_help="Create a user and write a kubeconfig for it.")
@click.argument("name", metavar="NAME", callback=_parse_name)
@click.option("--role", type=click.Choice(ROLES), required=True, help="The rights of the user.")
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
@flag_options("target", _Target)
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
    if NAMESPACE in namespaces:
        raise click.UsageError(
            f"-n {NAMESPACE} would give the user the tokens of all users; name other namespaces"
        )
    _check_target(target.kubeconfig, name)
    choice = access.choose(target.admin_kubeconfig, os.environ, Path.cwd())
    cluster = access.load(choice, target.context)
    options = ServerOptions(kubeconfig=target.admin_kubeconfig, context=target.context)
    async with access.session(options) as here:
        user = NewUser(name=name, role=role, namespaces=namespaces, lifetime=lifetime)
        token = await create_user(here.client, user)
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
        listed = await list_users(here.client)
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
        await delete_user(here.client, name)
    echo(f"user {name} deleted; its tokens are no longer accepted")


@command.command("rotate-admin", short_help="Replace the administrator's token.")
@single(
    "data_dir",
    directory(
        "--data-dir",
        "The data directory of the server, which may be running.",
        default=access.DEFAULT_DATA_DIR,
    ),
)
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
