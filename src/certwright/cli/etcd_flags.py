"""The flags of `serve --store etcd://…`: kube-apiserver's if it has them, and etcdctl's user."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import lazy
from certwright.cli.errors import report_warning
from certwright.cli.flags import duration, file, flag, number
from certwright.cli.options import gathered


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

    @property
    def options(self) -> lazy.app.EtcdOptions:
        """The options of the process."""
        given = {name.removeprefix("etcd_"): value for name, value in asdict(self).items()}
        return lazy.app.EtcdOptions(**given)


def _parse_prefix(value: str) -> str:
    if not value.strip("/"):
        raise click.BadParameter("it must name a part of etcd's keys, e.g. /certwright")
    return value


def _warn_of_overrides(value: str | None) -> None:
    """Accept the removed `--etcd-servers-overrides` for one release, with a warning."""
    if value:
        report_warning(
            "--etcd-servers-overrides no longer has any effect: everything is on the etcd of --store; remove"
            " the flag"
        )


_OPTIONS = (
    flag(
        "--etcd-prefix",
        metavar="PREFIX",
        default="/certwright",
        parse=_parse_prefix,
        text="Prefix of all keys in etcd; servers that share a store use the same one.",
    ),
    flag(
        "--etcd-owner",
        metavar="NAME",
        default="",
        text="Name of the installation that --etcd-prefix belongs to; servers with another one do not start.",
    ),
    file(
        "--etcd-cafile",
        "etcd_ca_file",
        text="The CAs that etcd's certificate is verified with.  [default: the system's]",
    ),
    file("--etcd-certfile", "etcd_cert_file", text="The client certificate for etcd."),
    file("--etcd-keyfile", "etcd_key_file", text="The private key of --etcd-certfile."),
    flag("--etcd-user", metavar="NAME", text="The user of etcd's own authentication."),
    file("--etcd-password-file", "etcd_password_file", text="The password of --etcd-user."),
    duration(
        "--etcd-compaction-interval",
        default="5m",
        text="Interval of etcd's compaction; 0s: disabled (compaction is handled elsewhere).",
    ),
    number(
        "--etcd-quota-backend-bytes",
        metavar="BYTES",
        default=2 << 30,
        text="etcd's --quota-backend-bytes, for warnings; etcd 3.6 reports it itself.",
    ),
    flag(
        "--etcd-upgrade-format",
        is_flag=True,
        text="Write compressed rows into a store of an earlier version, too. Only when all servers run this"
        " version: earlier ones stop, and refuse the store.",
    ),
    flag(
        "--etcd-servers-overrides",
        parse=_warn_of_overrides,
        expose_value=False,
        hidden=True,
        text="Has no effect any more; accepted for one release.",
    ),
)

etcd_options = gathered("etcd", EtcdFlags, _OPTIONS)
"""Adds the flags; the function gets them as `etcd: EtcdFlags`."""
