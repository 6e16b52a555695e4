"""HTTPS to servers that objects name, on aiohttp, by the rules of `kit/outgoing.py`.

Imported only if such a server is in use, because aiohttp costs 25 MB.
"""

from __future__ import annotations

import sys

import aiohttp

from certwright.kit.outgoing import (
    HTTPS_ONLY,
    MOST_REDIRECTS,
    HttpAnswer,
    NotAllowed,
    ServerRules,
    ServerTls,
    ServerUnreachable,
    ServerUntrusted,
    ServerUnusable,
    place_of,
    quote,
)
from certwright.kube.util.connections import proxy_for, tls_context
from certwright.kube.util.encoding import in_words, one_line

_LARGEST_BODY = 4 * 2**20
_CONNECTIONS = 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Of a cancelled request whose peer does not answer the end of TLS (CPython pull request 118960).
_LEAVES_CONNECTIONS = sys.version_info < (3, 12, 8)


class HttpsClient:
    """An `outgoing.HttpClient` that reuses connections; proxies come from the environment (`HTTPS_PROXY`,
    `NO_PROXY`).

    `timeout_s` limits one whole request. `trust_fix` is the advice when the server's CA is unknown, e.g. "put
    its CA into spec.acme.caBundle". Raises `kube.util.tls.BadCredentials`, a `ValueError`, for invalid
    certificates or keys in `tls`.
    """

    def __init__(
        self,
        tls: ServerTls,
        *,
        user_agent: str,
        trust_fix: str,
        timeout_s: float = 30.0,
        rules: ServerRules = HTTPS_ONLY,
    ) -> None:
        self._rules = rules
        context = tls_context(
            ca_pem=tls.ca_pem,
            client_cert_pem=tls.certificate_pem,
            client_key_pem=tls.key_pem,
            insecure=tls.skip_verify,
        )
        if tls.ca_pem and tls.with_system_cas:
            context.load_default_certs()
        self._tls = context
        self._server_name = tls.server_name or None
        self._user_agent = user_agent
        self._trust_fix = trust_fix
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str] = {}

    async def send(
        self, method: str, url: str, *, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> HttpAnswer:
        target = url
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._send_once(method, target, body, headers)
            location = answer.header("location")
            # What a request does is meant for one URL only.
            if method not in ("GET", "HEAD") or answer.status not in _REDIRECTS or not location:
                return answer
            try:
                target = self._rules.redirect(target, location)
            except NotAllowed as error:
                raise ServerUnusable(str(error)) from error
        raise ServerUnusable(f"{place_of(url)} redirects more than {MOST_REDIRECTS} times")

    async def _send_once(
        self, method: str, url: str, body: bytes, headers: tuple[tuple[str, str], ...]
    ) -> HttpAnswer:
        try:
            self._rules.check(url)
        except NotAllowed as error:
            raise ServerUnusable(str(error)) from error
        try:
            async with self._open().request(
                method,
                url,
                data=body or None,
                headers=dict(headers),
                allow_redirects=False,
                proxy=self._proxy(url),
                server_hostname=self._server_name,
            ) as answer:
                # Not bytes, which each of a million small pieces would copy.
                content = bytearray()
                while len(content) <= _LARGEST_BODY and (more := await answer.content.read(_LARGEST_BODY)):
                    content += more
                fields = tuple((name.lower(), value) for name, value in answer.headers.items())
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._converted(error, url) from error
        if len(content) > _LARGEST_BODY:
            raise ServerUnusable(f"{place_of(url)} answered with more than {_LARGEST_BODY // 2**20} MiB")
        return HttpAnswer(status, fields, bytes(content))

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        # A session belongs to a running event loop, which exists for sure only here.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._tls, limit=_CONNECTIONS, enable_cleanup_closed=_LEAVES_CONNECTIONS
                ),
                timeout=self._timeout,
                headers={"User-Agent": self._user_agent, "Accept-Language": "en"},
                # No such API uses cookies, and looking up those of a URL costs more than writing its request.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        # Not the session's `trust_env`: it reads the environment and ~/.netrc, in a thread, at every request,
        # and would send a password from there to the server.
        origin = "/".join(url.split("/", 3)[:3])
        if origin not in self._proxies:
            try:
                self._proxies[origin] = proxy_for(origin)
            except ValueError:
                return None  # The request itself reports an invalid URL.
        return self._proxies[origin] or None

    def _converted(self, error: BaseException, url: str) -> Exception:
        place = place_of(url)
        match error:
            case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
                return ServerUnusable(f'"{quote(url)}" is not a usable URL; write https://…')
            case aiohttp.ClientConnectorCertificateError():
                return _untrusted(error.certificate_error, place, self._trust_fix)
            case aiohttp.ClientSSLError():
                return ServerUntrusted(quote(unreachable(error, place)))
            case TimeoutError():
                return ServerUnreachable(f"{place} did not answer within {self._timeout_s:g} s")
            case _:
                return ServerUnreachable(unreachable(error, place))


# OpenSSL's verdicts (X509_V_ERR_CERT_NOT_YET_VALID, …_HAS_EXPIRED) that another CA would not change.
_CLOCK_MATTERS = (9, 10)
# X509_V_ERR_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH: nor these.
_NAME_MATTERS = (62, 64)


def _untrusted(error: Exception, place: str, fix: str) -> ServerUntrusted:
    reason = getattr(error, "verify_message", "") or str(error)
    if getattr(error, "verify_code", 0) in _CLOCK_MATTERS:
        fix = "have the server's certificate renewed, or set the clock of this machine"
    elif getattr(error, "verify_code", 0) in _NAME_MATTERS:
        fix = "name the server in the URL as its certificate does, or have one issued for this name"
    return ServerUntrusted(f"the TLS certificate of {place} is not trusted: {reason}; {fix}")


def unreachable(error: BaseException, place: str) -> str:
    """The sentence for an error of aiohttp, or of the operating system, on the way to `place`.

    aiohttp quotes the bytes that it cannot parse, e.g. the banner of an internal service, which an error that
    a tenant reads must not show.
    """
    match error:
        case aiohttp.ClientSSLError():
            return f"no TLS connection to {place}: {one_line(str(error))}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name of {place} cannot be resolved: {in_words(error.os_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy on the way to {place} cannot be reached: {in_words(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{place} cannot be reached: {in_words(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return f"{place} closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return f"the answer of {place} ended before it was complete"
        case aiohttp.ClientResponseError():
            return f"what answered at {place} does not speak HTTP"
        case OSError():
            return f"{place} cannot be reached: {in_words(error)}"
        case _:
            return f"{place} cannot be reached: {type(error).__name__}"
