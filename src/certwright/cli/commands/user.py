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
from urllib.parse import urlsplit

import click
import msgspec
from msgspec.structs import asdict

from certwright.cli import access
from certwright.cli.commands.expiring import parse_within
from certwright.cli.errors import Failed, report_warning
from certwright.cli.flags import directory, file, flag, flag_options, single, split_words
from certwright.cli.format import echo, print_content, print_table
from certwright.cli.options import (
    Folder,
    ServerOptions,
    asynchronous,
    json_option,
    no_headers_option,
    server_options,
)
from certwright.kube.api.core import NAMESPACES, SERVICE_ACCOUNTS, Namespace, ServiceAccount
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client import kubeconfig
from certwright.kube.client.kubeconfig_file import KubeconfigError
from certwright.kube.client.rest import Client
from certwright.kube.util.connections import is_this_machine
from certwright.kube.util.files import write_atomically

Json = dict[str, Any]

NAMESPACE: Final = access.USERS
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
_ROLES: Final[Kind[Json]] = Kind(_GROUP, "v1", "Role", "roles", "role", True, dict)
_CERTIFICATES: Final[Kind[Json]] = Kind(
    "cert-manager.io", "v1", "Certificate", "certificates", "certificate", True, dict
)
_NO_ROLE: Final = "certificates"
"""What stands for the role of a user who may read just some certificates."""


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user to be created. Without `namespaces` the role applies to the whole server. An empty `role`: the
    user may read just these `certificates` and their Secrets."""

    name: str
    role: str
    namespaces: tuple[str, ...]
    lifetime: timedelta
    certificates: tuple[ObjectKey, ...] = ()


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
    roles = await _roles(client, user, name)
    if roles:
        desired = [_binding(user, name, name, role["metadata"]["namespace"], "Role") for role in roles]
    else:
        desired = [_binding(user, name, user.role, namespace) for namespace in user.namespaces or ("",)]
    if not roles and not user.namespaces and user.role != "cluster-admin":
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
    for role in roles:
        # Replaced: the certificates of an existing user may be others now, or have another Secret.
        await client.apply(_ROLES, role, field_manager="certwright-user", force=True)
    for binding in desired:
        await _ensure(client, _kind_of(binding), binding)
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


async def _roles(client: Client, user: NewUser, name: str) -> list[Json]:
    """The Roles to read just the user's certificates and their Secrets, one in each namespace."""
    by_namespace: dict[str, list[str]] = {}
    for key in user.certificates:
        by_namespace.setdefault(key.namespace, []).append(key.name)
    return [
        {
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: user.name}},
            "rules": [
                _reading("cert-manager.io", "certificates", names),
                _reading("", "secrets", [await _secret_of(client, namespace, each) for each in names]),
            ],
        }
        for namespace, names in by_namespace.items()
    ]


def _reading(group: str, resource: str, names: Sequence[str]) -> Json:
    # Lists and watches need a field selector that names the object.
    # Source: Kubernetes documentation, "Using RBAC Authorization", "Referring to resources".
    return {
        "apiGroups": [group],
        "resources": [resource],
        "verbs": ["get", "list", "watch"],
        "resourceNames": sorted(set(names)),
    }


async def _secret_of(client: Client, namespace: str, name: str) -> str:
    """The name of the certificate's Secret; that of `create certificate` for one that does not exist yet."""
    try:
        certificate = await client.get(_CERTIFICATES, name, namespace)
    except NotFound:
        secret = f"{name}-tls"
        report_warning(
            f"Certificate {namespace}/{name} does not exist yet; the user may read Secret {secret}, which "
            "`certwright create certificate` names"
        )
        return secret
    return str(certificate["spec"]["secretName"])


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
    for role in (await client.list(_ROLES, labels=f"{LABEL}={name}")).items:
        await client.delete(_ROLES, role["metadata"]["name"], role["metadata"]["namespace"])


def _binding(
    user: NewUser, name: str, role: str, namespace: str = "", role_kind: str = "ClusterRole"
) -> Json:
    metadata = {"name": name, "labels": {LABEL: user.name}}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _GROUP, "kind": role_kind, "name": role},
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
        if binding["roleRef"]["kind"] == "Role":
            role = _NO_ROLE
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
_LIFETIME = timedelta(days=30)
# A machine that fetches renewed certificates by itself has nobody who would miss the token each month.
_LIFETIME_OF_MACHINES = timedelta(weeks=52)
# RFC 1123 label, as names of ServiceAccounts; the name of the binding is longer.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


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


def _parse_lifetime(context: click.Context, option: click.Parameter, value: str | None) -> timedelta | None:
    lifetime = parse_within(context, option, value)
    if lifetime is None:
        return None
    if lifetime < _SHORTEST:
        raise click.BadParameter(f"{value!r} is too short; a token is valid for 10m at least")
    if lifetime > _LONGEST:
        raise click.BadParameter(f"{value!r} is too long; a token is valid for {_LONGEST.days}d at most")
    return lifetime


def _parse_certificates(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[ObjectKey, ...]:
    keys = []
    for word in split_words(values):
        namespace, slash, name = word.rpartition("/")
        if not _OBJECT.fullmatch(name) or (slash and not _OBJECT.fullmatch(namespace)):
            raise click.BadParameter(
                f"{word!r} is not the name of a Certificate; write NAME or NAMESPACE/NAME"
            )
        keys.append(ObjectKey(namespace, name))
    return tuple(dict.fromkeys(keys))


def _parse_server(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise click.BadParameter(f"`{url}` is not an https URL; write e.g. https://pki.example.com:8443")
    return url


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
        parse=_parse_server,
    )


@command.command(short_help="Create a user and write a kubeconfig for it.")
@click.argument("name", metavar="NAME", callback=_parse_name)
@click.option("--role", type=click.Choice(ROLES), help="The rights of the user.")
@click.option(
    "--certificates",
    metavar="NAME,…",
    multiple=True,
    callback=_parse_certificates,
    help="Instead of --role: the user may read just these Certificates and their Secrets; also NS/NAME.",
)
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
    callback=_parse_lifetime,
    help="How long the token is valid; e.g. 12h, 30d or 52w.  [default: 30d; 52w with --certificates]",
)
@flag_options("target", _Target)
@asynchronous
async def create(
    *,
    name: str,
    role: str | None,
    certificates: tuple[ObjectKey, ...],
    namespaces: tuple[str, ...],
    lifetime: timedelta | None,
    target: _Target,
) -> None:
    """Create the user NAME and write a kubeconfig with a token for it, readable by its owner only.

    For a user that exists, with the same rights, the kubeconfig gets a new token; older ones stay valid until
    they expire. `user delete` ends the access immediately.

    With --certificates the user may read just these Certificates and their Secrets, for `certwright export`
    on another machine; for a user that exists these replace the former ones.

    \b
    Examples:
      certwright user create alice --role view --kubeconfig alice.kubeconfig
      certwright user create ci --role edit -n shop --for 12h --kubeconfig ci.kubeconfig
      certwright user create bob --role view --server https://pki:8443 --kubeconfig bob.conf
      certwright user create web1 --certificates web,api --kubeconfig web1.kubeconfig
    """
    if bool(certificates) == (role is not None):
        raise click.UsageError(
            "name either a --role or --certificates, e.g. --role view or --certificates web"
        )
    if certificates and len(namespaces) > 1:
        raise click.UsageError("-n is the namespace of --certificates; write NAMESPACE/NAME for several")
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
        default = namespaces[0] if namespaces else here.namespace
        keys = tuple(ObjectKey(key.namespace or default, key.name) for key in certificates)
        user = NewUser(
            name=name,
            role=role or "",
            namespaces=tuple(dict.fromkeys(key.namespace for key in keys)) or namespaces,
            lifetime=lifetime or (_LIFETIME if role else _LIFETIME_OF_MACHINES),
            certificates=keys,
        )
        token = await create_user(here.client, user)
    # So that `export web` needs no -n.
    namespace = keys[0].namespace if keys else ""
    server = target.server or cluster.server
    content = kubeconfig.render(server, cluster.ca_pem, token.value, name, namespace=namespace)
    write_atomically(target.kubeconfig, content)
    where = f" in {', '.join(namespaces)}" if namespaces and role else ""
    if role in _TOKEN_ROLES and not namespaces:
        report_warning(
            f"{role} in all namespaces includes the tokens of all users, administrators' too; -n limits it"
        )
    if certificates and target.server is None and is_this_machine(urlsplit(server).hostname or ""):
        report_warning(
            f"{target.kubeconfig} names {server}, which is this machine; for another one give --server, e.g. "
            "--server https://pki.example.com:8443"
        )
    rights = f"{role}{where}" if role else f"reads {', '.join(map(str, keys))}"
    echo(f"user {name} ({rights}): {target.kubeconfig} is valid until {token.expires}")


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
@json_option("As JSON or YAML.")
@no_headers_option
@server_options
@asynchronous
async def list_(*, server: ServerOptions, output: str | None, no_headers: bool) -> None:
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
        print_table(("NAME", "RIGHTS", "TOKEN EXPIRES"), rows, headers=not no_headers)
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
