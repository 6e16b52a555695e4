"""What gRPC says of calls that fail."""

from __future__ import annotations

import grpc
import grpc.aio


def no_answer(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """The error of a call."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
