"""Self-check of HTTP-01: fetches the challenge response as a CA does (RFC 8555 §8.3)."""

from __future__ import annotations

import socket
from collections.abc import Container, Sequence
from functools import cache
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import LookupFailed, NameServers, Unreached, at_both_families
from certwright.kit.outgoing import place_of
from certwright.kube.util.connection_errors import unreachable
from certwright.kube.util.connections import unverified_tls
from certwright.kube.util.encoding import in_brackets

_TIMEOUT_S = 10.0
_MOST_REDIRECTS = 10
_LARGEST_BODY = 64 * 1024
REDIRECT_PORTS = frozenset({80, 443})
"""Let's Encrypt's rule (its documentation, "Challenge Types"), which other CAs have adopted."""


class HttpCheck:
    """Fetches `http://<identifier>:<port>/.well-known/acme-challenge/<token>` and follows redirects.

    At both address families: see `at_both_families`. `names` resolves the name; None uses the operating
    system. Redirects are followed to `redirect_ports` and
    to `port` only, as CAs do. The reason quotes nothing of a page: it may be that of an internal server. TLS
    certificates after a redirect to https are not verified: "the ACME server … MUST NOT … validate" them
    either, because the old one may have expired."""

    def __init__(
        self,
        *,
        port: int = 80,
        names: NameServers | None = None,
        redirect_ports: Container[int] = REDIRECT_PORTS,
    ) -> None:
        self._port = port
        self._names = names
        self._redirect_ports = redirect_ports

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        url = _url_of(task, self._port)
        try:
            return await at_both_families(
                self._names, task.identifier, lambda address: self._check_at(address, url, task)
            )
        except LookupFailed as error:
            return NotYet(f"{place_of(url)} cannot be reached: {error}")
        except OSError as error:
            return NotYet(f"the name of {place_of(url)} cannot be resolved: {error.strerror or error}")

    async def _check_at(self, address: str, url: str, task: Task) -> Ready | NotYet:
        resolver = _Resolver(self._names, task.identifier, address)
        # A single connection: there is nothing to reuse.
        connector = aiohttp.TCPConnector(ssl=_tls(), resolver=resolver, use_dns_cache=False, force_close=True)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        headers = {"User-Agent": "certwright (self-check of HTTP-01)"}
        # No proxy, because the CA uses none either.
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            for _ in range(_MOST_REDIRECTS + 1):
                outcome = await _fetch(session, url, task)
                if not isinstance(outcome, str):
                    return outcome
                if _port_of(outcome) not in self._redirect_ports and _port_of(outcome) != self._port:
                    place = f"{place_of(url)} redirects to port {_port_of(outcome)}"
                    return NotYet(f"{place}; CAs follow redirects to ports 80 and 443 only")
                url = outcome
        return NotYet(f"more than {_MOST_REDIRECTS} redirects, the last to {place_of(url)}")


# The same for every check.
_tls = cache(unverified_tls)


async def _fetch(session: aiohttp.ClientSession, url: str, task: Task) -> Ready | NotYet | str:
    """The result at this URL; a string is the redirect target."""
    try:
        async with session.get(url, allow_redirects=False) as answer:
            if answer.status in (301, 302, 303, 307, 308):
                return _target(url, answer.headers.get("Location", ""))
            body = await answer.content.read(_LARGEST_BODY)
            status = answer.status
    except TimeoutError:
        return Unreached(f"{place_of(url)} did not answer within {_TIMEOUT_S:g} s")
    except aiohttp.ClientConnectorError as error:
        return Unreached(unreachable(error, place_of(url)))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return NotYet(unreachable(error, place_of(url)))
    if status != 200:
        return NotYet(f"{place_of(url)} answered HTTP status {status} instead of 200")
    # "The server SHOULD ignore whitespace characters at the end of the body."
    if body.rstrip() != task.key.encode():
        shown = "an empty page" if not body else "a page that is not the key authorization"
        return NotYet(f"{place_of(url)} answered with {shown}")
    return Ready()


def _target(url: str, location: str) -> str | NotYet:
    target = urljoin(url, location)
    try:
        parts = urlsplit(target)
        _, scheme = parts.port, parts.scheme
    except ValueError:
        scheme = ""
    if not location or scheme not in ("http", "https"):
        return NotYet(f"{place_of(url)} redirects to something that is not an http or https URL")
    return target


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _url_of(task: Task, port: int) -> str:
    host = in_brackets(task.identifier)
    place = host if port == 80 else f"{host}:{port}"
    return f"http://{place}{WELL_KNOWN}{task.token}"


class _Resolver(AbstractResolver):
    """Resolves the name of a task to one address; other hosts, where redirects lead, as usual."""

    def __init__(self, names: NameServers | None, host: str, address: str) -> None:
        self._names = names
        self._host = host
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses: Sequence[str] = [self._address]
        if host != self._host:
            if self._names is None:
                return await aiohttp.ThreadedResolver().resolve(host, port, family)
            try:
                addresses = await self._names.addresses(host)
            except LookupFailed as error:
                raise OSError(None, str(error)) from error
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        pass
