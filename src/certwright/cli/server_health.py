"""Whether the server can write."""

from __future__ import annotations

from certwright.cli.format import sentence
from certwright.kube.api import errors
from certwright.kube.client.rest import Client


async def store_problem(client: Client) -> str:
    """Why the server's store accepts no writes, e.g. a full disk; empty if it does, or if that is unknown.

    Controllers cannot report it in the object, because that would be a write.
    Source: Kubernetes API health endpoints, "Individual health checks".
    """
    for path in ("/readyz/etcd-readiness", "/readyz"):
        try:
            await client.raw("GET", path)
            return ""
        except errors.ApiError as error:
            if error.http_status >= 500:
                # Plain text, unlike other errors of the API.
                prefix = f"HTTP status {error.http_status}: internal server error: "
                reason = sentence(error.message).removeprefix(prefix)
                return "it is not ready" if path == "/readyz" else reason
            # The first needs a right that readers of Certificates may lack.
    return ""
