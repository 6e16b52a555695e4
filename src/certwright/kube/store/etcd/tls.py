"""TLS connections to etcd that gRPC's library does not make, and the reason why one fails.

gRPC's library reports a refused certificate without a reason. With TLS 1.3 a server refuses a client's
certificate only after the handshake (RFC 8446 §4.4.2.4), so the reason arrives with the first read.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

_PATIENCE_S = 5.0


def context_of(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    """The TLS settings of a connection; `ca_file` None: the system's CAs. Raises `OSError`."""
    context = ssl.create_default_context(cafile=ca_file)
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file)
    context.set_alpn_protocols(["h2"])
    return context


async def refusal(member: str, context: ssl.SSLContext, *, has_certificate: bool) -> str:
    """Why a member (`HOST:PORT`) refuses the client, with the fix; empty if it does not, or cannot be reached.
    `has_certificate`: whether the client shows one."""
    host, _, port = member.rpartition(":")
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
            try:
                # Without a request there is nothing to read but an alert; silence is consent.
                await reader.read(1)
            finally:
                writer.transport.abort()
    except ssl.SSLCertVerificationError as error:
        return f"shows a certificate that is not trusted ({error.verify_message}): see --etcd-cafile"
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "ALERT" not in reason:
            return ""
        if not has_certificate:
            return "requires a client certificate: give --etcd-certfile and --etcd-keyfile"
        words = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return (
            f"refuses our client certificate ({words}): --etcd-certfile must be valid, and issued by a CA of"
            " etcd's --trusted-ca-file"
        )
    except OSError:  # TimeoutError among them
        pass
    return ""
