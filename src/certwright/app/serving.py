"""The HTTPS front end of a running server: its certificate is renewed in time, and when the addresses of the
machine change; its files can be read again."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from collections.abc import Callable
from pathlib import Path

from certwright.app import tls_identity
from certwright.app.options import ServeOptions
from certwright.app.tls_identity import ServingIdentity
from certwright.kit import logs
from certwright.kube.apiserver.aggregation_proxy import FrontProxy
from certwright.kube.apiserver.http.https import HttpsServer
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import in_brackets
from certwright.pki.certificates import read_certificate

_log = logging.getLogger(__name__)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_CHECK_EVERY_S = 30.0
"""How often the certificates are compared with the clock, which may have been set forward and back since."""
_ADDRESSES_EVERY_S = 600.0
"""How often a server that listens on every address looks for new ones."""


UseCA = Callable[[bytes, bytes], None]
"""Replaces the server's own CA of before by the renewed one where it is published (PEM). Raises `OSError`."""

UseFrontProxy = Callable[[FrontProxy, str], None]
"""Presents the certificate to aggregated servers, and publishes its CA and those of clients (PEM)."""


def certificates_in(path: Path) -> str:
    """The certificates of a PEM file, without its comments. Raises `OSError`."""
    return "".join(f"{pem}\n" for pem in _PEM.findall(path.read_text(errors="replace")))


class Serving:
    """The front end, and its certificate. `use_ca` is called when the CA was renewed; `use_front_proxy` when
    the identity was read, with the CAs of clients (PEM)."""

    def __init__(
        self,
        face: HttpsServer,
        identity: ServingIdentity,
        options: ServeOptions,
        clock: Clock,
        *,
        use_ca: UseCA,
        use_front_proxy: UseFrontProxy,
    ) -> None:
        self._use_ca = use_ca
        self._use_front_proxy = use_front_proxy
        self._face = face
        self._identity = identity
        self._options = options
        self._clock = clock

    @property
    def others(self) -> tuple[str, ...]:
        """The URLs by which other machines reach the server: by the names that the operator has given, and,
        if it listens on every address, by the addresses of this machine."""
        hosts = [*self._options.tls_sans]
        if self._options.host in tls_identity.ANY_ADDRESS:
            hosts += [name for name in self._identity.names if _is_remote(name)]
        return tuple(f"https://{in_brackets(host)}:{self._face.port}" for host in dict.fromkeys(hosts))

    async def keep(self) -> None:
        """Renew the certificate in time, without dropping a connection, for ever."""
        looked_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(_CHECK_EVERY_S)
            since = self._clock.monotonic() - looked_at
            looks = self._options.host in tls_identity.ANY_ADDRESS and since >= _ADDRESSES_EVERY_S
            if not looks and not self._identity.is_due(self._clock.now()):
                continue
            looked_at = self._clock.monotonic()
            try:
                await self._renew()
            except (OSError, ssl.SSLError) as error:
                _log.warning("the server's own certificate could not be renewed: %s; trying again", error)

    async def _renew(self) -> None:
        identity = await asyncio.to_thread(
            tls_identity.load_or_make, tls_identity.settings_of(self._options), now=self._clock.now()
        )
        if identity != self._identity:
            self._use(identity)

    def reload(self) -> None:
        """Read the files of the certificate and of the clients' CAs again. Raises `OSError` and
        `ssl.SSLError`; nothing has changed then."""
        settings = tls_identity.settings_of(self._options)
        self._use(tls_identity.load_or_make(settings, now=self._clock.now()))

    def _use(self, identity: ServingIdentity) -> None:
        client_ca = self._options.client_ca_file or identity.ca_path
        self._face.reload(identity.cert_path, identity.key_path, client_ca)
        self._use_front_proxy(identity.front_proxy, certificates_in(client_ca))
        before, self._identity = self._identity, identity
        if identity.ca_pem != before.ca_pem:
            self._use_ca(before.ca_pem, identity.ca_pem)
            logs.event(
                _log,
                logging.INFO,
                "the server's own CA was renewed; renew the kubeconfigs of users before the former one ends",
                subject="server",
                formerEnds=read_certificate(before.ca_pem).not_after,
                ends=read_certificate(identity.ca_pem).not_after,
            )


def _is_remote(name: str) -> bool:
    try:
        return not ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
