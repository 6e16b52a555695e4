"""Non-resource paths: discovery, OpenAPI, metrics, health, token keys, and the state of envelope encryption.

`/certwright/encryption` is no path of Kubernetes; it is for administrators (`system:masters`, or a
ClusterRole with this `nonResourceURLs`), and for `certwright encryption`.
"""

from __future__ import annotations

from dataclasses import asdict

from certwright.kube.api.errors import BadRequest, MethodNotAllowed, Unavailable
from certwright.kube.apiserver import dispatch
from certwright.kube.apiserver.auth.tokens import JWKS_PATH, TokenIssuer
from certwright.kube.apiserver.base.users import ANONYMOUS
from certwright.kube.apiserver.health import Health
from certwright.kube.apiserver.metrics import PATH as METRICS_PATH
from certwright.kube.apiserver.metrics import Metrics
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.openapi.documents import OpenApi
from certwright.kube.apiserver.representations import discovery
from certwright.kube.apiserver.representations.encodings import convert_plain
from certwright.kube.store.contract import Shared, Store, StoreError
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
