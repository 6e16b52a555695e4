"""Self-checks of all challenge types: they look at a challenge response as a CA does (RFC 8555 §8.3 and §8.4,
RFC 8737 §3).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection, Container, Sequence
from datetime import datetime, timedelta
from functools import cache
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509

from certwright.acme.protocol.challenges import ALPN_PROTOCOL, WELL_KNOWN, server_name
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import Answer, LookupFailed, NameServers, Unreached, at_both_families
from certwright.acme.solvers.tlsalpn01 import EXTENSION, extension_value
from certwright.kit.https import unreachable
from certwright.kit.outgoing import place_of, quote
from certwright.kube.util.connections import unverified_tls
from certwright.kube.util.encoding import in_brackets

# The maximum wait for a cache, whatever the zone's TTL.
_LONGEST_MEMORY = timedelta(minutes=5)
_TIMEOUT_S = 10.0
_MOST_REDIRECTS = 10
_LARGEST_BODY = 64 * 1024
REDIRECT_PORTS = frozenset({80, 443})
"""Let's Encrypt's rule (its documentation, "Challenge Types"), which other CAs have adopted."""
# The same for every check.
_tls = cache(unverified_tls)


class DnsCheck:
    """`recursive_only` queries recursive servers alone (`--dns01-recursive-nameservers-only`); otherwise each
    authoritative server of the record's zone (after aliases) must have the record, because a CA may query
    any of them. `now` is for records that expire (dns-persist-01)."""

    def __init__(
        self,
        names: NameServers,
        now: Callable[[], datetime],
        *,
        recursive_only: bool = False,
    ) -> None:
        self._names = names
        self._recursive_only = recursive_only
        self._now = now

    async def check(self, task: Task) -> Ready | NotYet:
        try:
            state = await (
                self._check_recursive(task) if self._recursive_only else self._check_authorities(task)
            )
        except LookupFailed as error:
            state = NotYet(f"the TXT record {task.record} cannot be looked up: {error}")
        if isinstance(state, NotYet) and task.persistent is not None:
            value = task.persistent.value(wildcard=task.wildcard)
            fix = f'create the TXT record {task.record} once, with the value "{value}"'
            return NotYet(f"{state.reason}; {fix}", state.not_before)
        return state

    def _shows(self, task: Task, values: Collection[str]) -> bool:
        if task.persistent is None:
            return task.key in values
        return task.persistent.is_authorized_by(values, wildcard=task.wildcard, now=self._now())

    async def _check_recursive(self, task: Task) -> Ready | NotYet:
        name = task.record
        answer = await self._names.txt(name)
        if self._shows(task, answer.values):
            return Ready()
        # "SOA negative TTL": a cache repeats a negative response until then.
        remembered = min(answer.negative_for, _LONGEST_MEMORY)
        return NotYet(f"the recursive name server {_seen(answer, name)}", remembered)

    async def _check_authorities(self, task: Task) -> Ready | NotYet:
        end = await self._names.alias_of(task.record)
        zone = await self._names.authorities(end)
        reasons = await asyncio.gather(
            *(self._query_server(host, addresses, end, task) for host, addresses in zone.servers)
        )
        missing = [reason for reason in reasons if reason]
        return NotYet("; ".join(missing)) if missing else Ready()

    async def _query_server(self, host: str, addresses: tuple[str, ...], name: str, task: Task) -> str:
        """Why that server lacks the record; empty if it has the record, at any of its addresses."""
        reason = ""
        for address in addresses:
            try:
                answer = await self._names.query_authority(address, name)
            except LookupFailed as error:
                reason = reason or str(error)
                continue
            return "" if self._shows(task, answer.values) else f"the name server {host} {_seen(answer, name)}"
        return reason


def _seen(answer: Answer, name: str) -> str:
    if not answer.exists:
        return f"has no {name} yet"
    if not answer.values:
        return f"has no TXT record at {name} yet"
    others = ", ".join(f'"{quote(value, 120)}"' for value in answer.values[:3])
    return f"has only other TXT records at {name}: {others}"


class TlsCheck:
    """Self-check: connects as the CA does, at both address families, and checks the certificate. `names` None
    uses the operating system."""

    def __init__(self, *, port: int = 443, names: NameServers | None = None) -> None:
        self._port = port
        self._names = names

    async def check(self, task: Task) -> Ready | NotYet:
        where = f"{in_brackets(task.identifier)}:{self._port}"
        try:
            return await at_both_families(
                self._names, task.identifier, lambda address: self._check_at(address, where, task)
            )
        except (OSError, LookupFailed) as error:
            return NotYet(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")

    async def _check_at(self, address: str, where: str, task: Task) -> Ready | NotYet:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                der = await self._certificate(address, task)
        except TimeoutError:
            return Unreached(f"{where} did not answer within {_TIMEOUT_S:g} s")
        except ssl.SSLError as error:
            return NotYet(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")
        except OSError as error:
            return Unreached(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")
        if der is None:
            return NotYet(f"{where} does not speak {ALPN_PROTOCOL}: another server answers there")
        return Ready() if _proves(der, task) else NotYet(f"{where} shows another certificate than the proof")

    async def _certificate(self, address: str, task: Task) -> bytes | None:
        context = unverified_tls()
        context.set_alpn_protocols([ALPN_PROTOCOL])
        name = server_name(task.identifier)
        _, writer = await asyncio.open_connection(address, self._port, ssl=context, server_hostname=name)
        try:
            session = writer.get_extra_info("ssl_object")
            if session.selected_alpn_protocol() != ALPN_PROTOCOL:
                return None
            der: bytes | None = session.getpeercert(binary_form=True)
            return der
        finally:
            # Without the exchange of close_notify: a server that takes no part would hold the connection.
            writer.transport.abort()


def _proves(der: bytes, task: Task) -> bool:
    try:
        extension = x509.load_der_x509_certificate(der).extensions.get_extension_for_oid(EXTENSION)
    except (ValueError, x509.ExtensionNotFound):
        return False
    value = extension.value
    return isinstance(value, x509.UnrecognizedExtension) and value.value == extension_value(task)


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
        host = in_brackets(task.identifier)
        place = host if self._port == 80 else f"{host}:{self._port}"
        url = f"http://{place}{WELL_KNOWN}{task.token}"
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


async def _fetch(session: aiohttp.ClientSession, url: str, task: Task) -> Ready | NotYet | str:
    """The result at this URL; a string is the redirect target."""
    try:
        async with session.get(url, allow_redirects=False) as answer:
            if answer.status in (301, 302, 303, 307, 308):
                location = answer.headers.get("Location", "")
                target = urljoin(url, location)
                try:
                    parts = urlsplit(target)
                    _, scheme = parts.port, parts.scheme
                except ValueError:
                    scheme = ""
                if not location or scheme not in ("http", "https"):
                    return NotYet(f"{place_of(url)} redirects to something that is not an http or https URL")
                return target
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


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


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
