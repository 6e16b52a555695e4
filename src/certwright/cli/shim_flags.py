"""Flags for the certificates of Ingresses, Gateways and ListenerSets: cert-manager's."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from certwright.cli import lazy
from certwright.cli.options import TRUTH, Decorator, gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimFlags:
    """The members of `ShimOptions`."""

    issuer_name: str
    issuer_kind: str
    issuer_group: str
    auto_annotations: tuple[str, ...]
    extra_annotations: tuple[str, ...]
    extra_protocols: tuple[str, ...]
    gateways: bool
    listener_sets: bool

    @property
    def settings(self) -> lazy.app.ShimOptions:
        """The settings of the process."""
        return lazy.app.ShimOptions(**asdict(self))


def _parse_list(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Each value may contain several, comma-separated."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _list(flag: str, name: str, metavar: str, text: str, default: tuple[str, ...] = ()) -> Decorator:
    return click.option(
        flag, name, metavar=metavar, multiple=True, default=default, callback=_parse_list, help=text
    )


def _switch(flag: str, name: str, text: str) -> Decorator:
    return click.option(
        flag,
        name,
        metavar="BOOL",
        type=TRUTH,
        default=True,
        # As Go's flags: without a value it means true.
        is_flag=False,
        flag_value=True,
        help=f"{text}  [default: true]",
    )


_OPTIONS = (
    click.option(
        "--default-issuer-name",
        "issuer_name",
        metavar="NAME",
        default="",
        help="Issuer of Ingresses with an annotation of --auto-certificate-annotations that name none.",
    ),
    click.option(
        "--default-issuer-kind",
        "issuer_kind",
        metavar="KIND",
        default="Issuer",
        show_default=True,
        help="Kind of the default issuer.",
    ),
    click.option(
        "--default-issuer-group",
        "issuer_group",
        metavar="GROUP",
        default="cert-manager.io",
        show_default=True,
        help="API group of the default issuer.",
    ),
    _list(
        "--auto-certificate-annotations",
        "auto_annotations",
        "NAME,…",
        "Annotations with which an Ingress gets certificates of the default issuer.  "
        "[default: kubernetes.io/tls-acme]",
        ("kubernetes.io/tls-acme",),
    ),
    _list(
        "--extra-certificate-annotations",
        "extra_annotations",
        "NAME,…",
        "Annotations that are copied from an Ingress, Gateway or ListenerSet to its Certificates.",
    ),
    _switch(
        "--enable-gateway-api", "gateways", "Certificates for Gateways; no error where there are no Gateways."
    ),
    _switch("--enable-gateway-api-listenerset", "listener_sets", "Certificates for ListenerSets."),
    _list(
        "--gateway-api-extra-protocols",
        "extra_protocols",
        "NAME,…",
        "Protocols of listeners that use TLS, besides HTTPS and TLS.",
    ),
)

shim_options = gathered("shims", ShimFlags, _OPTIONS)
"""Adds the flags; the function gets them as `shims: ShimFlags`."""
