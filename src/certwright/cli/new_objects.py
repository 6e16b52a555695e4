"""Objects made from options: `certwright create`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from certwright.cli.diagnosis import OUR_GROUP, SETS_GROUP
from certwright.kube.util.encoding import is_ip_address

Json = dict[str, Any]
_API_VERSION = f"{OUR_GROUP}/v1"
_GROUPS = {
    "Issuer": OUR_GROUP,
    "ClusterIssuer": OUR_GROUP,
    "IssuerSet": SETS_GROUP,
    "ClusterIssuerSet": SETS_GROUP,
}
ISSUER_KINDS = tuple(_GROUPS)


class NewCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `create certificate`. None: not given. Durations are Go's, e.g. `2160h`."""

    name: str
    dns: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()
    uri: tuple[str, ...] = ()
    email: tuple[str, ...] = ()
    common_name: str | None = None
    issuer: str
    kind: str | None = None
    secret: str | None = None
    duration: str | None = None
    renew_before: str | None = None
    usage: tuple[str, ...] = ()


class NewCa(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `create ca`. None: not given."""

    name: str
    common_name: str | None = None
    duration: str = "87600h"
    secret: str | None = None
    cluster: bool = False


def certificate(requested: NewCertificate) -> Json:
    """The Certificate. Raises `click.UsageError` for names that belong to another option, or for none."""
    _check_names(requested)
    kind = requested.kind or "Issuer"
    optional = {
        "commonName": requested.common_name,
        "dnsNames": list(requested.dns),
        "ipAddresses": list(requested.ip),
        "uris": list(requested.uri),
        "emailAddresses": list(requested.email),
        "duration": requested.duration,
        "renewBefore": requested.renew_before,
        "usages": list(requested.usage),
    }
    return _object(
        "Certificate",
        requested.name,
        {
            "secretName": requested.secret or f"{requested.name}-tls",
            **{key: value for key, value in optional.items() if value},
            "issuerRef": {"group": _GROUPS[kind], "kind": kind, "name": requested.issuer},
        },
    )


def ca(requested: NewCa) -> list[Json]:
    """The objects of a private CA, in the order in which each depends on the one before."""
    kind = "ClusterIssuer" if requested.cluster else "Issuer"
    secret = requested.secret or f"{requested.name}-ca"
    root = f"{requested.name}-selfsigned"
    return [
        _object(kind, root, {"selfSigned": {}}),
        _object(
            "Certificate",
            f"{requested.name}-ca",
            {
                "isCA": True,
                "commonName": requested.common_name or requested.name,
                "secretName": secret,
                "duration": requested.duration,
                # Clients that have installed the CA verify what it signs after its renewal, too.
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
                "issuerRef": {"group": OUR_GROUP, "kind": kind, "name": root},
            },
        ),
        _object(kind, requested.name, {"ca": {"secretName": secret}}),
    ]


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _check_names(requested: NewCertificate) -> None:
    if not (requested.dns or requested.ip or requested.uri or requested.email or requested.common_name):
        raise click.UsageError("a certificate needs a name: --dns, --ip, --uri, --email or --common-name")
    for name in requested.dns:
        if is_ip_address(name):
            raise click.UsageError(f"--dns {name}: is an IP address; use --ip {name}")
    for address in requested.ip:
        if not is_ip_address(address):
            raise click.UsageError(f"--ip {address}: is not an IP address; use --dns for DNS names")
