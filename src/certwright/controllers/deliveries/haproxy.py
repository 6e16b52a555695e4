"""HAProxy's runtime API: replace a certificate in a running HAProxy, which keeps its connections.

Source: HAProxy management guide, "set ssl cert", "commit ssl cert", "abort ssl cert".
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from certwright.kit.hooks import HookError
from certwright.kube.util.encoding import in_words, one_line

_LONGEST_ANSWER = 4096


async def replace_certificate(socket: str, file: Path, *, timeout_s: float) -> None:
    """Replace the certificate that HAProxy has loaded from `file`, by the path in its configuration.

    Raises `HookError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            pem = await asyncio.to_thread(file.read_bytes)
            # An empty line ends the payload.
            payload = b"\n".join(line for line in pem.splitlines() if line.strip())
            await _call(socket, f"set ssl cert {file}", expected="ransaction ", payload=payload)
            try:
                await _call(socket, f"commit ssl cert {file}", expected="Success!")
            except HookError:
                await _call(socket, f"abort ssl cert {file}", expected="")
                raise
    except TimeoutError:
        raise HookError(f"HAProxy did not answer at {socket} within {timeout_s:g} s") from None
    except OSError as error:
        raise HookError(f"HAProxy cannot be reached at {socket}: {in_words(error)}") from error


async def _call(socket: str, command: str, *, expected: str, payload: bytes = b"") -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(command.encode() + (b" <<\n%b\n\n" % payload if payload else b"\n"))
        await writer.drain()
        answer = (await reader.read(-1))[:_LONGEST_ANSWER].decode(errors="replace")
    finally:
        writer.close()
    if expected not in answer:
        raise HookError(f"HAProxy's answer to `{command}` was: {one_line(answer) or '(empty)'}")
