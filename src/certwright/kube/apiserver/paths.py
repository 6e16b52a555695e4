"""Non-resource paths: discovery, OpenAPI, metrics, health, token keys, and the state of envelope encryption.

`/certwright/encryption` is no path of Kubernetes; it is for administrators (`system:masters`, or a
ClusterRole with this `nonResourceURLs`), and for `certwright encryption`. The checks of health have the names
of Kubernetes', so that existing probes and dashboards work; the check of the store is `etcd`.

Source: Kubernetes documentation, "Kubernetes API health endpoints"; words of apiserver
`pkg/server/healthz/healthz.go`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict
from urllib.parse import parse_qs

from certwright.kube.api.errors import BadRequest, MethodNotAllowed, Unavailable
from certwright.kube.apiserver import dispatch
from certwright.kube.apiserver.auth.tokens import JWKS_PATH, TokenIssuer
from certwright.kube.apiserver.base.users import ANONYMOUS
from certwright.kube.apiserver.metrics import PATH as METRICS_PATH
from certwright.kube.apiserver.metrics import Metrics
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.openapi.documents import OpenApi
from certwright.kube.apiserver.representations import discovery, responses
from certwright.kube.apiserver.representations.encodings import convert_plain
from certwright.kube.store.contract import Key, Limited, Shared, Store, StoreError
from certwright.kube.store.key_rotation import Sealed
from certwright.kube.util.http_messages import Identity, Request, Response

PATH = "/certwright/encryption"
ROTATE, REWRAP, DECRYPT = f"{PATH}/rotate", f"{PATH}/rewrap", f"{PATH}/decrypt"


class Encryption:
    """Handler of the state of envelope encryption of one store."""

    def __init__(self, store: Store) -> None:
        self._rotation = store.rotation if isinstance(store, Sealed) else None
        self._shared = isinstance(store, Shared)

    async def respond(self, method: str, path: str) -> Response | None:
        """The answer, None for another path. Raises `ApiError`."""
        if path not in (PATH, ROTATE, REWRAP, DECRYPT):
            return None
        if self._rotation is None:
            raise BadRequest("this store is in memory: nothing is on a disk")
        if method != ("GET" if path == PATH else "POST"):
            raise MethodNotAllowed(f"{method} is not supported on {path}")
        try:
            if path == ROTATE:
                await self._rotation.rotate()
            elif path == REWRAP:
                if self._shared:
                    raise BadRequest(
                        "several servers may use this store: put a new key before the old one into the key "
                        "file of each, and start them again one by one"
                    )
                await self._rotation.rewrap()
            elif path == DECRYPT:
                await self._rotation.decrypt()
            progress = await self._rotation.progress()
        except StoreError as error:
            raise Unavailable(str(error)) from error
        return Response(200, {"content-type": "application/json"}, encode_json(asdict(progress)))


_OPENID_PATHS = ("/.well-known/openid-configuration", JWKS_PATH)


class Paths:
    """Handler of the non-resource paths."""

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        health: Health,
        encryption: Encryption,
        tokens: TokenIssuer,
    ) -> None:
        self._registry = registry
        self._openapi = OpenApi(registry)
        self._metrics = metrics
        self._health = health
        self._encryption = encryption
        self._tokens = tokens

    async def respond(self, request: Request, path: str, user: Identity) -> Response:
        """The answer to an authorized `user`; 404 for an unknown path."""
        accept, known = request.headers.get("accept", ""), request.headers.get("if-none-match", "")
        query = request.target.partition("?")[2]
        response = discovery.respond(self._registry, path, accept, known, method=request.method)
        if response is not None:
            return await convert_plain(request, response)
        if (document := await self._openapi.respond(path, accept, known, query)) is not None:
            return document
        # These ignore the method.
        if path == METRICS_PATH:
            return await self._metrics.respond()
        if (health := await self._health.respond(path, query, gives_reasons=user != ANONYMOUS)) is not None:
            return health
        if request.method in ("GET", "HEAD") and path.rstrip("/") in _OPENID_PATHS:
            # With these documents other programs verify ServiceAccount tokens.
            is_keys = path.startswith(JWKS_PATH)
            kind = "application/jwk-set+json" if is_keys else "application/json"
            body = encode_json(self._tokens.key_set() if is_keys else self._tokens.discovery())
            return Response(200, {"content-type": kind, "cache-control": "public, max-age=3600"}, body)
        if (sealing := await self._encryption.respond(request.method, path)) is not None:
            return sealing
        return dispatch.nowhere()


_log = logging.getLogger(__name__)
_ALIVE = ("ping", "log", "etcd")
_CHECKS: Mapping[str, Sequence[str]] = {
    "healthz": _ALIVE,
    "livez": _ALIVE,
    "readyz": (*_ALIVE, "etcd-readiness", "informer-sync", "shutdown"),
}
_PROBE_KEY = Key("healthz", "", "healthz")


class Health:
    """The health of a server.

    `started`: it is ready to answer; `stopping`: it accepts no more work. `budget_s`: the timeout of each
    check, as in kube-apiserver's check of etcd; all checks of a request run concurrently.
    """

    def __init__(self, store: Store, *, budget_s: float = 2.0) -> None:
        self._budget_s = budget_s
        self.started = False
        self.stopping = False
        self._store = store

    async def respond(self, path: str, query: str, *, gives_reasons: bool = True) -> Response | None:
        """The answer for a health path, None for any other. `query` is the text after the `?`.
        `gives_reasons`: whether the caller may see why a check fails, which can name files."""
        root, _, check = path.strip("/").partition("/")
        checks = _CHECKS.get(root)
        if checks is None or (check and check not in checks):
            return None
        if check:
            if problem := await self._problem(check):
                return responses.text(500, f"internal server error: {problem}\n")
            return responses.text(200, "ok")
        asked = parse_qs(query, keep_blank_values=True)
        is_verbose, excluded = "verbose" in asked, asked.get("exclude", [])
        gives_reasons = gives_reasons and is_verbose
        lines: list[str] = []
        failed = False
        # Concurrently, so that a slow check does not use up a probe's time for the others.
        included = [check for check in checks if check not in excluded]
        problems = dict(zip(included, await asyncio.gather(*map(self._problem, included)), strict=True))
        for check in checks:
            if check in excluded:
                lines.append(f"[+]{check} excluded: ok\n")
            elif problem := problems[check]:
                failed = True
                _log.warning("%s check %s failed: %s", root, check, problem)
                # Kubernetes withholds the reason here; `/readyz/CHECK` gives it to the same readers.
                lines.append(f"[-]{check} failed: {problem if gives_reasons else 'reason withheld'}\n")
            else:
                lines.append(f"[+]{check} ok\n")
        if unknown := ", ".join(f'"{name}"' for name in sorted(set(excluded) - set(checks))):
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}\n")
        if gives_reasons:
            lines += [f"warn: {row}\n" for row in self._store.damage]
            if isinstance(self._store, Limited) and (usage := self._store.usage) and usage.warning:
                lines.append(f"warn: {usage.warning}\n")
            if isinstance(self._store, Sealed) and (rotation := self._store.rotation) and rotation.warning:
                lines.append(f"warn: {rotation.warning}\n")
        if failed:
            return responses.text(500, f"{''.join(lines)}{root} check failed\n")
        return responses.text(200, f"{''.join(lines)}{root} check passed\n" if is_verbose else "ok")

    async def _problem(self, check: str) -> str:
        """The problem; empty when the check passes."""
        match check:
            case "etcd":
                return await self._problem_of(self._store.get(_PROBE_KEY))
            case "etcd-readiness":
                # Not a liveness check, because a restart does not help against a full disk.
                return await self._problem_of(self._store.check())
            case "informer-sync":
                return "" if self.started else "the server is still loading what it serves"
            case "shutdown":
                return "process is shutting down" if self.stopping else ""
            case _:
                return ""

    async def _problem_of(self, work: Awaitable[object]) -> str:
        """Why the store cannot perform the check; empty if it can."""
        try:
            async with asyncio.timeout(self._budget_s):
                await work
        except TimeoutError:
            cause = self._store.trouble
            return f"the store does not answer within {self._budget_s:g} s{f' ({cause})' if cause else ''}"
        except StoreError as error:
            return str(error)
        return ""
