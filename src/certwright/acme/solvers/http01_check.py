"""Looks for the page of HTTP-01 as a CA does (RFC 8555 §8.3)."""

from __future__ import annotations

import socket
from functools import cache
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import LookupFailed, NameServers
from certwright.kit.texts import in_brackets, in_words, one_line
from certwright.kit.unverified import unverified_tls

_TIMEOUT_S = 10.0
_MOST_REDIRECTS = 10
_LARGEST_BODY = 64 * 1024
_SHOWN = 60


class HttpCheck:
    """Asks `http://<identifier>:<port>/.well-known/acme-challenge/<token>` and follows redirects.

    `names` resolves the name; None asks the operating system. TLS certificates after a redirect to https are
    not judged: "the ACME server … MUST NOT … validate" them either, since the old one may have expired.
    """

    def __init__(self, *, port: int = 80, names: NameServers | None = None) -> None:
        self._port = port
        self._names = names

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        url = _url_of(task, self._port)
        resolver = _Resolver(self._names) if self._names is not None else None
        # One connection: nothing is worth being remembered.
        connector = aiohttp.TCPConnector(ssl=_tls(), resolver=resolver, use_dns_cache=False, force_close=True)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        headers = {"User-Agent": "certwright (self-check of HTTP-01)"}
        # No proxy: the CA will not use it either.
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            for _ in range(_MOST_REDIRECTS + 1):
                found = await _ask(session, url, task)
                if not isinstance(found, str):
                    return found
                url = found
        return NotYet(f"more than {_MOST_REDIRECTS} redirects, the last to {url}")


# It is the same for every look.
_tls = cache(unverified_tls)


async def _ask(session: aiohttp.ClientSession, url: str, task: Task) -> Ready | NotYet | str:
    """What is there; a text is the address that it redirects to."""
    try:
        async with session.get(url, allow_redirects=False) as answer:
            if answer.status in (301, 302, 303, 307, 308):
                return _target(url, answer.headers.get("Location", ""))
            body = await answer.content.read(_LARGEST_BODY)
            status = answer.status
    except TimeoutError:
        return NotYet(f"{url} did not answer within {_TIMEOUT_S:g} s")
    except (aiohttp.ClientError, LookupFailed, OSError, ValueError) as error:
        return NotYet(f"{url} cannot be reached: {_words(error)}")
    if status != 200:
        return NotYet(f"{url} answered HTTP status {status} instead of 200")
    # "The server SHOULD ignore whitespace characters at the end of the body."
    if body.rstrip() != task.key.encode():
        return NotYet(f"{url} answered with something else than the key authorization: {_start(body)}")
    return Ready()


def _target(url: str, location: str) -> str | NotYet:
    target = urljoin(url, location)
    try:
        scheme = urlsplit(target).scheme
    except ValueError:
        scheme = ""
    if not location or scheme not in ("http", "https"):
        return NotYet(f'{url} redirects to "{location[:200]}", where no CA goes')
    return target


def _url_of(task: Task, port: int) -> str:
    host = in_brackets(task.identifier)
    place = host if port == 80 else f"{host}:{port}"
    return f"http://{place}{WELL_KNOWN}{task.token}"


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name cannot be resolved: {in_words(error.os_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return in_words(error.os_error)
    return str(error) or type(error).__name__


def _start(body: bytes) -> str:
    text = one_line(body[:_SHOWN].decode(errors="replace"))
    return f'"{text}…"' if text else "an empty page"


class _Resolver(AbstractResolver):
    def __init__(self, names: NameServers) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
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
