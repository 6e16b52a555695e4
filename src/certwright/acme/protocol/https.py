"""HTTPS transport for ACME, on aiohttp.

Imported only if an ACME server is in use, because aiohttp costs 25 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import aiohttp

from certwright.acme.protocol.errors import NotAcme, Unreachable, Untrusted
from certwright.acme.protocol.messages import Request, Response
from certwright.acme.protocol.transport import TlsOptions
from certwright.kit.http_words import connection_words
from certwright.kit.outgoing import HTTPS_ONLY, MOST_REDIRECTS, NotAllowed, ServerRules, place_of, quote
from certwright.kube.util.encoding import in_words
from certwright.kube.util.proxies import proxy_for

_LARGEST_BODY = 4 * 2**20
_CONNECTIONS = 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class HttpTransport:
    """HTTPS with reused connections; proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`).

    Requests and redirects go only where the `rules` allow. `timeout_s` limits one whole request. Raises
    `ValueError` for invalid TLS options."""

    def __init__(
        self,
        tls: TlsOptions,
        *,
        user_agent: str,
        now: Callable[[], datetime],
        timeout_s: float = 30.0,
        rules: ServerRules = HTTPS_ONLY,
    ) -> None:
        self._rules = rules
        self._tls = tls.context()
        self._user_agent = user_agent
        self._now = now
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str] = {}

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        url = request.url
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._send_once(request, url)
            location = response.header("location")
            # A signed request is for one URL only (RFC 8555 §6.4).
            if request.method == "POST" or response.status not in _REDIRECTS or not location:
                return response
            try:
                url = self._rules.redirect(url, location)
            except NotAllowed as error:
                raise NotAcme(str(error)) from error
        raise NotAcme(f"{place_of(request.url)} redirects more than {MOST_REDIRECTS} times")

    async def _send_once(self, request: Request, url: str) -> Response:
        try:
            self._rules.check(url)
        except NotAllowed as error:
            raise NotAcme(str(error)) from error
        headers = {"Content-Type": "application/jose+json"} if request.body else {}
        if request.accept:
            headers["Accept"] = request.accept
        try:
            async with self._open().request(
                request.method,
                url,
                data=request.body or None,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy(url),
            ) as answer:
                body = await answer.content.read(_LARGEST_BODY + 1)
                while len(body) <= _LARGEST_BODY and (more := await answer.content.read(_LARGEST_BODY)):
                    body += more
                found = tuple((name.lower(), value) for name, value in answer.headers.items())
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _converted(error, url, self._timeout_s) from error
        if len(body) > _LARGEST_BODY:
            raise NotAcme(f"{place_of(url)} answered with more than {_LARGEST_BODY // 2**20} MiB")
        return Response(status, found, body, request.url, self._now())

    async def close(self) -> None:
        """See `Transport`."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        # A session belongs to a running event loop, which exists for sure only here.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls, limit=_CONNECTIONS),
                timeout=self._timeout,
                headers={"User-Agent": self._user_agent, "Accept-Language": "en"},
                # ACME uses no cookies, and looking up those of a URL costs more than writing its request.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        # Not the session's `trust_env`: it reads the environment and ~/.netrc, in a thread, at every request,
        # and would send a password from there to an ACME server.
        origin = "/".join(url.split("/", 3)[:3])
        if origin not in self._proxies:
            try:
                self._proxies[origin] = proxy_for(origin)
            except ValueError:
                return None  # The request itself reports an invalid URL.
        return self._proxies[origin] or None


# OpenSSL's verdicts (X509_V_ERR_CERT_NOT_YET_VALID, …_HAS_EXPIRED) that another CA would not change.
_CLOCK_MATTERS = (9, 10)


def _converted(error: BaseException, url: str, timeout_s: float) -> Exception:
    place = place_of(url)
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return NotAcme(f'"{quote(url)}" is not a URL that can be asked; write https://…')
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _untrusted(error.certificate_error, place)
    if isinstance(error, aiohttp.ClientSSLError):
        return Untrusted(f"no TLS connection to {place}: {quote(str(error))}")
    if isinstance(error, TimeoutError):
        return Unreachable(f"{place} did not answer within {timeout_s:g} s")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(f"the name of {place} cannot be resolved: {in_words(error.os_error)}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Unreachable(f"the proxy on the way to {place} cannot be reached: {in_words(error.os_error)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(f"{place} cannot be reached: {in_words(error.os_error)}")
    return Unreachable(f"{place} cannot be reached: {connection_words(error)}")


def _untrusted(error: Exception, url: str) -> Untrusted:
    reason = getattr(error, "verify_message", "") or str(error)
    fix = "if the server has a CA of its own, put that into spec.acme.caBundle"
    if getattr(error, "verify_code", 0) in _CLOCK_MATTERS:
        fix = "have the server's certificate renewed, or set the clock of this machine"
    return Untrusted(f"the TLS certificate of {url} is not trusted: {reason}; {fix}")
