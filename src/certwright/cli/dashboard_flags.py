"""Flags of the dashboard of `certwright controllers`, and those that `serve` has too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from certwright.cli import lazy
from certwright.cli.flags import ANY_ADDRESS, Address, Words, flag, parse_address, repeated


def _address(value: str) -> Address | None:
    return parse_address(value) if value else None


def _parse_hosts(values: Words) -> Words:
    for value in values:
        try:
            lazy.tls_scan.TlsAddress.parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return values


def scanned_hosts(**settings: Any) -> Any:
    """The flag `--dashboard-scan`, whose value is a tuple of addresses."""
    return repeated(
        "--dashboard-scan",
        "A host whose certificate the dashboard shows beside the managed ones, as in `certwright expiring "
        "--scan`; may be repeated.",
        metavar="HOST[:PORT]",
        parse=_parse_hosts,
        **settings,
    )


def searched_files(**settings: Any) -> Any:
    """The flag `--dashboard-files`, whose value is a tuple of paths and patterns."""
    return repeated(
        "--dashboard-files",
        "Files whose certificates the dashboard shows beside the managed ones: a file, a folder or a "
        "pattern; may be repeated.",
        metavar="PATH",
        parse=tuple,
        **settings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardFlags:
    """Where the dashboard is served, and with which certificate. Raises `click.UsageError`."""

    SECTION: ClassVar = "Dashboard"

    dashboard_address: Address | None = flag(
        "--dashboard-listen",
        "Serve the dashboard there, over HTTPS, for users of the cluster with a token; without it, disabled.",
        metavar="HOST:PORT",
        default="",
        parse=_address,
        often=True,
    )
    dashboard_mode: str = flag(
        "--dashboard",
        "The pages of --dashboard-listen: on, read-only (they change nothing), or off.",
        type=click.Choice(["on", "read-only", "off"]),
        default="on",
    )
    dashboard_cert_file: str = flag(
        "--dashboard-tls-cert-file",
        "The certificate of the dashboard (PEM); read again when it changes. Without it, one is made at each "
        "start, and its fingerprint is logged.",
        metavar="FILE",
        default="",
    )
    dashboard_key_file: str = flag(
        "--dashboard-tls-private-key-file",
        "The private key of --dashboard-tls-cert-file.",
        metavar="FILE",
        default="",
    )
    dashboard_scan: Words = scanned_hosts()
    dashboard_files: Words = searched_files()

    def __post_init__(self) -> None:
        if bool(self.dashboard_cert_file) != bool(self.dashboard_key_file):
            raise click.UsageError(
                "--dashboard-tls-cert-file and --dashboard-tls-private-key-file need each other"
            )
        if self.dashboard_address is None and self.dashboard_cert_file:
            raise click.UsageError("a certificate for the dashboard needs --dashboard-listen")

    def options(self, controllers: lazy.app.ControllerOptions) -> lazy.app.ClusterDashboardOptions | None:
        """The settings beside these controllers; None: there is no dashboard."""
        if self.dashboard_address is None or self.dashboard_mode == "off":
            return None
        files = None
        if self.dashboard_cert_file:
            files = lazy.app.CertificateFiles(Path(self.dashboard_cert_file), Path(self.dashboard_key_file))
        return lazy.app.ClusterDashboardOptions(
            host=self.dashboard_address[0] or ANY_ADDRESS,
            port=self.dashboard_address[1],
            files=files,
            read_only=self.dashboard_mode == "read-only",
            namespace=controllers.namespace or "",
            rules=controllers.acme.policy.servers,
            secrets_in=controllers.cluster_resource_namespace,
            scan=self.dashboard_scan,
            searched=self.dashboard_files,
        )
