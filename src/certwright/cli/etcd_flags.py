"""The flags of `serve --store etcd://…`: kube-apiserver's if it has them, and etcdctl's user."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import click

from certwright.cli import lazy
from certwright.cli.flags import duration
from certwright.cli.options import Decorator, gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFlags:
    """The connection settings of etcd."""

    etcd_prefix: str
    etcd_owner: str
    etcd_ca_file: Path | None
    etcd_cert_file: Path | None
    etcd_key_file: Path | None
    etcd_user: str | None
    etcd_password_file: Path | None
    etcd_compaction_interval: timedelta
    etcd_quota_backend_bytes: int
    etcd_upgrade_format: bool
    etcd_servers_overrides: str

    @property
    def options(self) -> lazy.app.EtcdOptions:
        """The options of the process."""
        given = {name.removeprefix("etcd_"): value for name, value in asdict(self).items()}
        overrides = _parse_overrides(self.etcd_servers_overrides)
        return lazy.app.EtcdOptions(**given | {"servers_overrides": overrides})


def _parse_prefix(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not value.strip("/"):
        raise click.BadParameter("it must name a part of etcd's keys, e.g. /certwright")
    return value


def _check_overrides(_context: click.Context, _option: click.Parameter, value: str) -> str:
    _parse_overrides(value)
    return value


def _parse_overrides(value: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each `GROUP/RESOURCE`, and the URLs of its servers. Raises `click.BadParameter`."""
    overrides = dict[str, tuple[str, ...]]()
    for part in value.split(",") if value else ():
        resource, _, servers = part.partition("#")
        group, slash, plural = resource.partition("/")
        if not (servers and slash and plural) or "/" in plural:
            hint = f"/{group}#…" if group and not slash else "GROUP/RESOURCE#URL[;URL…]"
            raise click.BadParameter(f"{part!r}: write {hint}, e.g. /secrets#http://e4:2379;http://e5:2379")
        if resource in overrides:
            raise click.BadParameter(f"{resource} is named twice; separate its servers with semicolons")
        overrides[resource] = tuple(_server_of(resource, url) for url in servers.split(";"))
    return tuple(overrides.items())


def _server_of(resource: str, url: str) -> str:
    """`http://HOST:PORT`, with the default port if it is missing."""
    try:
        split = urlsplit(url)
        port = split.port or 2379
    except ValueError as error:
        raise click.BadParameter(f"{resource}: {url} is not a URL ({error})") from error
    if split.scheme not in ("http", "https") or not split.hostname:
        hint = "write http://HOST:PORT, or https://HOST:PORT, for each server"
        raise click.BadParameter(f"{resource}: {url or 'a server without an address'}: {hint}")
    if "@" in split.netloc:
        raise click.BadParameter(
            f"{resource}: the URL of {split.hostname} has a user; give --etcd-user and --etcd-password-file,"
            " which are for all servers"
        )
    if split.path.strip("/") or split.query or split.fragment:
        raise click.BadParameter(
            f"{resource}: {url} has more than a host and a port; leave that out (--etcd-prefix is for all"
            " servers)"
        )
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    return f"{split.scheme}://{host}:{port}"


def _file(flag: str, name: str, text: str) -> Decorator:
    path = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, name, metavar="FILE", type=path, help=text)


_OPTIONS = (
    click.option(
        "--etcd-prefix",
        metavar="PREFIX",
        default="/certwright",
        show_default=True,
        callback=_parse_prefix,
        help="Prefix of all keys in etcd; servers that share a store use the same one.",
    ),
    click.option(
        "--etcd-owner",
        metavar="NAME",
        default="",
        help="Name of the installation that --etcd-prefix belongs to; servers with another one do not start.",
    ),
    _file(
        "--etcd-cafile",
        "etcd_ca_file",
        "The CAs that etcd's certificate is verified with.  [default: the system's]",
    ),
    _file("--etcd-certfile", "etcd_cert_file", "The client certificate for etcd."),
    _file("--etcd-keyfile", "etcd_key_file", "The private key of --etcd-certfile."),
    click.option("--etcd-user", metavar="NAME", help="The user of etcd's own authentication."),
    _file("--etcd-password-file", "etcd_password_file", "The password of --etcd-user."),
    duration(
        "--etcd-compaction-interval",
        default="5m",
        text="Interval of etcd's compaction; 0s: disabled (compaction is handled elsewhere).",
    ),
    click.option(
        "--etcd-quota-backend-bytes",
        metavar="BYTES",
        type=click.IntRange(min=1),
        default=2 << 30,
        show_default=True,
        help="etcd's --quota-backend-bytes, for warnings; etcd 3.6 reports it itself.",
    ),
    click.option(
        "--etcd-upgrade-format",
        is_flag=True,
        help="Write compressed rows into a store of an earlier version, too. Only when all servers run this"
        " version: earlier ones stop, and refuse the store.",
    ),
    click.option(
        "--etcd-servers-overrides",
        metavar="OVERRIDES",
        default="",
        callback=_check_overrides,
        help="Other etcds for the contents of some resources: GROUP/RESOURCE#URL[;URL…][,…], e.g."
        " /secrets#http://e4:2379;http://e5:2379. For new stores; `certwright restore` moves an old one.",
    ),
)

etcd_options = gathered("etcd", EtcdFlags, _OPTIONS)
"""Adds the flags; the function gets them as `etcd: EtcdFlags`."""
