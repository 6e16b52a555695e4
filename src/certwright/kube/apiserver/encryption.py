"""`/certwright/encryption`: the state of envelope encryption, for `certwright encryption`.

A non-Kubernetes path for administrators (`system:masters`, or a ClusterRole with this `nonResourceURLs`).
"""

from __future__ import annotations

from dataclasses import asdict

from certwright.kube.api.errors import BadRequest, MethodNotAllowed, Unavailable
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.store.contract import Shared, Store, StoreError
from certwright.kube.store.key_rotation import Rotation, Sealed
from certwright.kube.util.http_messages import Response

PATH = "/certwright/encryption"
ROTATE, REWRAP, DECRYPT = f"{PATH}/rotate", f"{PATH}/rewrap", f"{PATH}/decrypt"


class Encryption:
    """Handler for one store."""

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
            await self._do(self._rotation, path)
            progress = await self._rotation.progress()
        except StoreError as error:
            raise Unavailable(str(error)) from error
        return Response(200, {"content-type": "application/json"}, encode_json(asdict(progress)))

    async def _do(self, rotation: Rotation, path: str) -> None:
        if path == ROTATE:
            await rotation.rotate()
        elif path == REWRAP:
            await self._rewrap(rotation)
        elif path == DECRYPT:
            await rotation.decrypt()

    async def _rewrap(self, rotation: Rotation) -> None:
        if self._shared:
            raise BadRequest(
                "several servers may use this store: put a new key before the old one into the key file of"
                " each, and start them again one by one"
            )
        await rotation.rewrap()
