"""Objects that the server itself needs, created or updated when it starts."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from certwright.kube.api.errors import ApiError, StorageReadError, from_response
from certwright.kube.apiserver.model.objects import Json, decode_json, encode_json
from certwright.kube.util.http_messages import Handler, Identity, Request, Response

Change = Callable[[Json], Json | None]
"""Returns the new state of an existing object; None: no change."""
_TRIES = 5


async def ensure_object(
    handle: Handler, user: Identity, path: str, obj: Json, change: Change, *, agent: str = "kube-apiserver"
) -> None:
    """Create `obj` in the collection at `path`, or change the object of that name, as `user`, who must be
    a member of system:masters. An object whose stored row is damaged is deleted and created again.

    `agent`: the field manager. Raises `ApiError` when the server refuses.
    """
    target, headers = f"{path}/{quote(obj['metadata']['name'])}", {"user-agent": agent}
    for _ in range(_TRIES):
        answer = await handle(Request("GET", target, user=user))
        if answer.status == 404:
            answer = await handle(Request("POST", path, headers, encode_json(obj), user))
        elif answer.status == 200 and (changed := change(decode_json(answer.body))) is not None:
            answer = await handle(Request("PUT", target, headers, encode_json(changed), user))
        elif answer.status == 500 and isinstance(_error(answer), StorageReadError):
            await handle(Request("DELETE", target, headers, user=user))
            continue
        # Another server may start at the same time, and do the same.
        if answer.status != 409:
            break
    if answer.status >= 400:
        raise _error(answer)


def _error(answer: Response) -> ApiError:
    return from_response(answer.status, answer.body)
