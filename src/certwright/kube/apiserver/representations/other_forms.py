"""Answers as protobuf and YAML, for clients that want them.

`encodings` is imported for the first of those: its tables cost time and memory.
"""

from __future__ import annotations

from certwright.kube.apiserver.model.backend import Call
from certwright.kube.util.http_messages import Request, Response


async def convert(call: Call, response: Response) -> Response:
    """The answer in the form of `call`, which is not JSON. Raises `NotAcceptable`: there is none in any."""
    from certwright.kube.apiserver.representations import encodings

    return await encodings.convert(call, response)


async def convert_failure(request: Request, response: Response) -> Response:
    """The refusal in the form that the client wants."""
    if not _may_want_other(request):
        return response
    from certwright.kube.apiserver.representations import encodings

    return await encodings.convert_failure(request, response)


async def convert_plain(request: Request, response: Response) -> Response:
    """A document that has no other shape, in the form that the client wants."""
    if not _may_want_other(request):
        return response
    from certwright.kube.apiserver.representations import encodings

    return await encodings.convert_plain(request, response)


def _may_want_other(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "protobuf" in accept or "yaml" in accept
