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
            pem = await asyncio.to_thread(file.read_text)
            # An empty line ends the payload.
            payload = "\n".join(line for line in pem.splitlines() if line.strip())
            await _call(socket, f"set ssl cert {file} <<\n{payload}\n\n", expected="ransaction ")
            try:
                await _call(socket, f"commit ssl cert {file}\n", expected="Success!")
            except HookError:
                await _call(socket, f"abort ssl cert {file}\n", expected="")
                raise
    except TimeoutError:
        raise HookError(f"HAProxy did not answer at {socket} within {timeout_s:g} s") from None
    except OSError as error:
        raise HookError(f"HAProxy cannot be reached at {socket}: {in_words(error)}") from error


async def _call(socket: str, command: str, *, expected: str) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(command.encode())
        await writer.drain()
        answer = (await reader.read(-1))[:_LONGEST_ANSWER].decode(errors="replace")
    finally:
        writer.close()
    if expected not in answer:
        first = " ".join(command.split("\n", 1)[0].split()[:3])
        raise HookError(f"HAProxy's answer to `{first}` was: {one_line(answer) or '(empty)'}")
