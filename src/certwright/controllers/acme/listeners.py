"""The listeners of this process for CAs, from its flags, and the other settings of ACME."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from certwright.acme.ratelimits.published import BadLimits, Chosen, read_limits
from certwright.acme.solvers.addresses import check_recursive_server, parse_server
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.tlsalpn01 import Listener
from certwright.controllers.acme.options import AcmeOptions, ClusterListener
from certwright.kube.api import naming, yaml_codec
from certwright.kube.api.meta import ObjectKey

Address = tuple[str, int]
"""Host and port; an empty host is every address of this machine."""


class AcmeSettings(AcmeOptions, frozen=True, kw_only=True):
    """The user's settings for ACME: the controllers', and the settings of listeners and limits for
    `open_listeners`."""

    http01_listen: Address | None = None
    http01_cluster_addresses: tuple[str, ...] = ()
    http01_cluster_service: str | None = None
    http01_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    http01_exact_paths: bool = True
    tlsalpn01_listen: Address | None = None
    tlsalpn01_backend: Address | None = None
    limits_file: Path | None = None


class CannotListen(Exception):
    """An invalid setting; the text is one sentence with the flag."""


@dataclass(slots=True)
class Listeners:
    """The listeners; `options` are for the controllers."""

    options: AcmeOptions

    def options_for(self, settings: AcmeSettings) -> AcmeOptions:
        """The options for other settings, with these listeners. Raises `CannotListen`."""
        return msgspec.structs.replace(
            settings,
            responder=self.options.responder,
            cluster_listener=self.options.cluster_listener,
            listener=self.options.listener,
            limits=_check(settings),
        )

    async def close(self) -> None:
        """Stop listening."""
        for listening in (self.options.responder, self.options.listener):
            if listening is not None:
                await listening.close()


async def open_listeners(settings: AcmeSettings) -> Listeners:
    """Listen as the settings say. Raises `CannotListen`; then nothing listens."""
    limits = _check(settings)
    if settings.tlsalpn01_backend is not None and settings.tlsalpn01_listen is None:
        raise CannotListen("--tlsalpn01-backend says where other connections go; it needs --tlsalpn01-listen")
    addresses, service = _cluster_addresses(settings), _cluster_service(settings)
    responder, cluster_listener = None, None
    if settings.http01_listen is not None:
        responder = Responder()
        port = await _listen(responder, "--http01-listen", settings.http01_listen)
        if addresses:
            cluster_listener = ClusterListener(
                addresses=addresses,
                port=port,
                service=service,
                labels=settings.http01_labels,
                path_type="Exact" if settings.http01_exact_paths else "ImplementationSpecific",
            )
    listener = None
    if settings.tlsalpn01_listen is not None:
        listener = Listener(backend=settings.tlsalpn01_backend)
        try:
            await _listen(listener, "--tlsalpn01-listen", settings.tlsalpn01_listen)
        except CannotListen:
            if responder is not None:
                await responder.close()
            raise
    options = msgspec.structs.replace(
        settings, responder=responder, cluster_listener=cluster_listener, listener=listener, limits=limits
    )
    return Listeners(options)


def _check(settings: AcmeSettings) -> Chosen:
    """Check the name servers, and read the limits. Raises `CannotListen`."""
    _check_nameservers("--acme-http01-solver-nameservers", settings.http01_nameservers, parse_server)
    _check_nameservers("--dns01-recursive-nameservers", settings.dns01_nameservers, check_recursive_server)
    return _read_limits(settings.limits_file) if settings.limits_file is not None else {}


def _read_limits(path: Path) -> Chosen:
    try:
        return read_limits(yaml_codec.load(path.read_text()))
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not text in UTF-8"
    except (yaml_codec.YamlError, BadLimits) as error:
        why = str(error)
    raise CannotListen(f"--acme-limits {path}: {why}")


def _cluster_addresses(settings: AcmeSettings) -> tuple[str, ...]:
    flag = "--http01-cluster-address"
    if not settings.http01_cluster_addresses:
        return ()
    if settings.http01_listen is None:
        raise CannotListen(f"{flag} says where the cluster reaches --http01-listen, which is missing; add it")
    addresses = []
    for text in settings.http01_cluster_addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise CannotListen(f"{flag}: {text!r} is not an IP address; write e.g. 10.0.0.5") from None
        if address.is_unspecified or address.is_multicast or address.is_link_local:
            raise CannotListen(
                f"{flag}: {text} is no address that a proxy can connect to; write that of this host"
            )
        addresses.append(str(address))
    return tuple(dict.fromkeys(addresses))


def _cluster_service(settings: AcmeSettings) -> ObjectKey | None:
    flag, text = "--http01-cluster-service", settings.http01_cluster_service
    if text is None:
        return None
    namespace, _, name = text.partition("/")
    if any(naming.check_name(part, rule="label") for part in (namespace, name)):
        raise CannotListen(f"{flag}: {text!r} is not NAMESPACE/NAME, e.g. certwright/certwright-http01")
    if not settings.http01_cluster_addresses:
        raise CannotListen(
            f"{flag} names the Service of all replicas; it needs --http01-cluster-address, this one's"
        )
    return ObjectKey(namespace, name)


async def _listen(server: Responder | Listener, flag: str, address: Address) -> int:
    """Listen, and return the port."""
    host, port = address
    try:
        return await server.listen(host, port)
    except OSError as error:
        why = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror or error
        hint = "stop the program that has it, or choose another address"
        if isinstance(error, PermissionError):
            hint = (
                "ports below 1024 need the right CAP_NET_BIND_SERVICE; or listen elsewhere and redirect to it"
            )
        raise CannotListen(f"{flag}: cannot listen on {host or '*'}:{port}: {why}; {hint}") from error


def _check_nameservers(flag: str, servers: tuple[str, ...], check: Callable[[str], object]) -> None:
    for server in servers:
        try:
            check(server)
        except ValueError as error:
            raise CannotListen(f"{flag}: {error}") from error
