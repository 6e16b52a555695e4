"""HTTPS transport for ACME.

Imported only if an ACME server is in use, because aiohttp costs 25 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from certwright.acme.protocol.errors import NotAcme, Unreachable, Untrusted
from certwright.acme.protocol.messages import Request, Response, TlsOptions
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import (
    HTTPS_ONLY,
    ServerRules,
    ServerTls,
    ServerUnreachable,
    ServerUntrusted,
    ServerUnusable,
)

_TRUST_FIX = "if the server has a private CA, put its certificate into spec.acme.caBundle"


class HttpTransport:
    """An `HttpsClient` that speaks of ACME. `timeout_s` limits one whole request. Raises `ValueError` for
    invalid TLS options."""

    def __init__(
        self,
        tls: TlsOptions,
        *,
        user_agent: str,
        now: Callable[[], datetime],
        timeout_s: float = 30.0,
        rules: ServerRules = HTTPS_ONLY,
    ) -> None:
        tls.check()
        self._client = HttpsClient(
            ServerTls(ca_pem=tls.ca_bundle, with_system_cas=True, skip_verify=tls.skip_verify),
            user_agent=user_agent,
            trust_fix=_TRUST_FIX,
            timeout_s=timeout_s,
            rules=rules,
        )
        self._now = now

    async def send(self, request: Request) -> Response:
        headers = [("Content-Type", "application/jose+json")] if request.body else []
        if request.accept:
            headers.append(("Accept", request.accept))
        try:
            answer = await self._client.send(
                request.method, request.url, body=request.body, headers=tuple(headers)
            )
        except ServerUntrusted as error:
            raise Untrusted(str(error)) from error
        except ServerUnreachable as error:
            raise Unreachable(str(error)) from error
        except ServerUnusable as error:
            raise NotAcme(str(error)) from error
        return Response(answer.status, answer.headers, answer.body, request.url, self._now())

    async def close(self) -> None:
        await self._client.close()
