"""Responses as protobuf and YAML, for clients that accept those.

`encodings` is imported for the first such response because its tables cost time and memory.
"""

from __future__ import annotations

from certwright.kube.apiserver.model.backend import Call
from certwright.kube.util.http_messages import Request, Response


async def convert(call: Call, response: Response) -> Response:
    """The response in the form of `call`, which is not JSON. Raises `NotAcceptable`: no such form exists."""
    from certwright.kube.apiserver.representations import encodings

    return await encodings.convert(call, response)


async def convert_failure(request: Request, response: Response) -> Response:
    """The error in the form that the client accepts."""
    if not _may_want_other(request):
        return response
    from certwright.kube.apiserver.representations import encodings

    return await encodings.convert_failure(request, response)


async def convert_plain(request: Request, response: Response) -> Response:
    """A document without another shape, in the form that the client accepts."""
    if not _may_want_other(request):
        return response
    from certwright.kube.apiserver.representations import encodings

    return await encodings.convert_plain(request, response)


def _may_want_other(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "protobuf" in accept or "yaml" in accept
