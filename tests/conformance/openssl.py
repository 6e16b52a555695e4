"""OpenSSL as a second opinion on what we issue: a program that shares no line with us."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import datetime
from pathlib import Path

from support.real import require


async def run(*arguments: str, stdin: bytes = b"") -> str:
    """What `openssl` prints. Raises `AssertionError` with its words where it does not succeed."""
    process = await asyncio.create_subprocess_exec(
        require("openssl"),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(stdin)
    text = out.decode(errors="replace")
    assert process.returncode == 0, f"openssl {' '.join(arguments)}: {text}"
    return text


async def verify(chain: bytes, ca: bytes, at: datetime, *options: str) -> None:
    """Build the path from the first certificate of `chain` to `ca` and check it as of `at`."""
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, {"chain.pem": chain, "ca.pem": ca})
        await run(
            "verify",
            *("-CAfile", f"{folder}/ca.pem", "-untrusted", f"{folder}/chain.pem"),
            *(
                "-no-CApath",
                "-x509_strict",
                "-attime",
                str(int(at.timestamp())),
                *options,
                f"{folder}/chain.pem",
            ),
        )


def _write(folder: str, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        Path(folder, name).write_bytes(content)


async def text_of(certificate: bytes) -> str:
    """What `openssl x509 -text` says of the first certificate of a PEM."""
    return await run("x509", "-noout", "-text", "-nameopt", "RFC2253", stdin=certificate)


async def public_keys(certificate: bytes, private_key: bytes) -> tuple[str, str]:
    """The public key of a certificate, and that of a private key."""
    return (
        await run("x509", "-noout", "-pubkey", stdin=certificate),
        await run("pkey", "-pubout", stdin=private_key),
    )
