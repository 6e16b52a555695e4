"""The flags of `serve --store etcd://…`: kube-apiserver's if it has them, and etcdctl's user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import lazy
from certwright.cli.flags import duration, file, flag, number, removed, values_of


def _parse_prefix(value: str) -> str:
    if not value.strip("/"):
        raise click.BadParameter("it must name a part of etcd's keys, e.g. /certwright")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFlags:
    """The connection settings of etcd."""

    etcd_prefix: str = flag(
        "--etcd-prefix",
        "Prefix of all keys in etcd; servers that share a store use the same one.",
        metavar="PREFIX",
        default="/certwright",
        parse=_parse_prefix,
    )
    etcd_owner: str = flag(
        "--etcd-owner",
        "Name of the installation that --etcd-prefix belongs to; servers with another one do not start.",
        metavar="NAME",
        default="",
    )
    etcd_ca_file: Path | None = file(
        "--etcd-cafile", "The CAs that etcd's certificate is verified with.  [default: the system's]"
    )
    etcd_cert_file: Path | None = file("--etcd-certfile", "The client certificate for etcd.")
    etcd_key_file: Path | None = file("--etcd-keyfile", "The private key of --etcd-certfile.")
    etcd_user: str | None = flag("--etcd-user", "The user of etcd's own authentication.", metavar="NAME")
    etcd_password_file: Path | None = file("--etcd-password-file", "The password of --etcd-user.")
    etcd_compaction_interval: timedelta = duration(
        "--etcd-compaction-interval",
        "Interval of etcd's compaction; 0s: disabled (compaction is handled elsewhere).",
        default="5m",
    )
    etcd_quota_backend_bytes: int = number(
        "--etcd-quota-backend-bytes",
        "etcd's --quota-backend-bytes, for warnings; etcd 3.6 reports it itself.",
        metavar="BYTES",
        default=2 << 30,
    )
    etcd_upgrade_format: bool = flag(
        "--etcd-upgrade-format",
        "Write compressed rows into a store of an earlier version, too. Only when all servers run this "
        "version: earlier ones stop, and refuse the store.",
        is_flag=True,
    )
    etcd_servers_overrides: None = removed(
        "--etcd-servers-overrides", ": everything is on the etcd of --store; remove the flag"
    )

    @property
    def options(self) -> lazy.app.EtcdOptions:
        """The options of the process."""
        given = {name.removeprefix("etcd_"): value for name, value in values_of(self).items()}
        return lazy.app.EtcdOptions(**given)
