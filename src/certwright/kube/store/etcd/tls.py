"""TLS settings of connections to etcd, and the reason why one fails.

gRPC's library reports a refused certificate without a reason. With TLS 1.3 a server refuses a client's
certificate only after the handshake (RFC 8446 §4.4.2.4), so the reason arrives with the first read.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from certwright.kube.store.contract import Unavailable

_PATIENCE_S = 5.0


class TlsFiles(NamedTuple):
    """The files of `--etcd-cafile` (None: the system's CAs), `--etcd-certfile` and `--etcd-keyfile`."""

    ca: Path | None
    cert: Path | None
    key: Path | None


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """The TLS settings of a connection of our own. Raises `OSError`."""
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert is not None:
        context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["h2"])
    return context


def credentials_of(files: TlsFiles) -> grpc.ChannelCredentials:
    """The TLS settings of gRPC's library. Raises `Unavailable` for a file that cannot be used."""
    ca = _read(files.ca, "--etcd-cafile") or _system_cas()
    cert, key = _read(files.cert, "--etcd-certfile"), _read(files.key, "--etcd-keyfile")
    try:
        context_of(files)
    except ssl.SSLError as error:
        raise Unavailable(
            f"--etcd-cafile, --etcd-certfile and --etcd-keyfile cannot be used together ({error.reason}): the"
            " key must be that of the certificate, without a password"
        ) from error
    return grpc.ssl_channel_credentials(ca, key, cert)


def _system_cas() -> bytes | None:
    """The CAs that the system trusts, None if it has no file of them (then gRPC uses its built-in ones)."""
    path = ssl.get_default_verify_paths().cafile
    return Path(path).read_bytes() if path else None


def _read(path: Path | None, flag: str) -> bytes | None:
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        what = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise Unavailable(f"{flag} {path} {what}") from error
    if b"-----BEGIN " not in data:
        raise Unavailable(f"{flag} {path} holds nothing in PEM form")
    return data


async def refusal(member: str, context: ssl.SSLContext, *, has_certificate: bool) -> str:
    """Why a member (`HOST:PORT`) refuses the client, with the fix; empty if it does not, or is unreachable.
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
