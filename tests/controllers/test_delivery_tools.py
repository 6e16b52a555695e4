"""Hooks of Deliveries, and the certificates that servers present after STARTTLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certwright.controllers.deliveries.hooks import Change, Hooks
from certwright.controllers.deliveries.options import DeliveryOptions
from certwright.controllers.deliveries.served import NotServed, served_certificate
from certwright.kit.hooks import HookError, run_hook
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.clock import SystemClock
from support.pairs import server_pair


def change(name: str, folder: Path) -> Change:
    return Change(ObjectKey("shop", name), folder / name)


async def test_deliveries_of_one_moment_share_one_run(tmp_path: Path) -> None:
    command = f'echo "$CERTWRIGHT_DELIVERIES" >> {tmp_path}/log; echo "$CERTWRIGHT_DIRS" >> {tmp_path}/log'
    hooks = Hooks(DeliveryOptions(hooks={"reload": command}), SystemClock())
    await asyncio.gather(*(hooks.run("reload", change(name, tmp_path)) for name in ("web", "api")))
    log = (tmp_path / "log").read_text()
    assert log.splitlines() == ["shop/web", "shop/api", f"{tmp_path}/web", f"{tmp_path}/api"]


async def test_all_of_a_run_that_fails_have_failed(tmp_path: Path) -> None:
    hooks = Hooks(DeliveryOptions(hooks={"reload": "echo broken; exit 2"}), SystemClock())
    runs = (hooks.run("reload", change(name, tmp_path)) for name in ("web", "api"))
    failures = await asyncio.gather(*runs, return_exceptions=True)
    assert [str(one) for one in failures] == ["it ended with status 2: broken"] * 2


async def test_haproxy_that_does_not_run_is_a_failure(tmp_path: Path) -> None:
    hooks = Hooks(DeliveryOptions(hooks={"lb": f"haproxy:{tmp_path}/none"}), SystemClock())
    (tmp_path / "all.pem").write_text("pem")
    with pytest.raises(HookError, match="HAProxy cannot be reached"):
        await hooks.run("lb", Change(ObjectKey("shop", "web"), tmp_path, (tmp_path / "all.pem",)))
    with pytest.raises(HookError, match="needs an output of format Combined"):
        await hooks.run("lb", Change(ObjectKey("shop", "web"), tmp_path))


async def test_a_file_that_haproxy_refuses_is_the_failure_of_its_delivery_only(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def haproxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if line.endswith(b"<<\n"):
            received.append(line + await reader.readuntil(b"\n\n"))
        writer.write(b"Transaction created\n" if b"good" in line else b"Can't replace a certificate\n")
        writer.write(b"Success!\n" if line.startswith(b"commit") else b"")
        writer.close()

    hooks = Hooks(DeliveryOptions(hooks={"lb": f"haproxy:{tmp_path}/socket"}), SystemClock())
    files = [tmp_path / "bad.pem", tmp_path / "good.pem"]
    for file in files:
        file.write_bytes(b"pem\n\n \n\xff\n")
    changes = [Change(ObjectKey("shop", file.stem), tmp_path, (file,)) for file in files]
    async with await asyncio.start_unix_server(haproxy, tmp_path / "socket"):
        runs = (hooks.run("lb", one) for one in (*changes, change("none", tmp_path)))
        bad, good, none = await asyncio.gather(*runs, return_exceptions=True)
    assert "Can't replace a certificate" in str(bad)
    assert good is None
    assert isinstance(none, HookError)
    assert received[1] == b"set ssl cert %b <<\npem\n\xff\n\n" % bytes(files[1])


async def test_a_private_key_that_a_hook_prints_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(server_pair("web.example.com")[1])
    for command in ("cat key", "head -c 200 key", "base64 -w0 key", "cat key; yes | head -c 9000"):
        with pytest.raises(HookError) as failure:
            await run_hook(f"cd {tmp_path}; {command}; exit 1", {})
        assert str(failure.value) == (
            "it ended with status 1: what it printed contains a private key and is not shown"
        )


@asynccontextmanager
async def mail_server(folder: Path, script: list[tuple[bytes, bytes]], *, tls: bool) -> AsyncIterator[int]:
    """Sends and expects lines, then begins TLS: as RFC 3207 and RFC 9051 §6.2.1 describe."""
    certificate, key = server_pair("mail.example.com")
    (folder / "crt").write_bytes(certificate)
    (folder / "key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for answer, expected in script:
                writer.write(answer)
                if expected:
                    assert (await reader.readline()).startswith(expected)
            await writer.drain()
            if tls:
                await writer.start_tls(context)
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


SMTP = [
    (b"220-mail\r\n220 ready\r\n", b"EHLO"),
    (b"250-mail\r\n250-SIZE\r\n250 STARTTLS\r\n", b"STARTTLS"),
]
IMAP = [(b"* OK ready\r\n", b"a STARTTLS")]


@pytest.mark.parametrize(
    ("protocol", "script"),
    [
        ("smtp", [*SMTP, (b"220 go\r\n", b"")]),
        ("imap", [*IMAP, (b"* CAPABILITY X\r\na OK go\r\n", b"")]),
    ],
)
async def test_starttls(tmp_path: Path, protocol: str, script: list[tuple[bytes, bytes]]) -> None:
    async with mail_server(tmp_path, script, tls=True) as port:
        found = await served_certificate(
            "127.0.0.1", port, server_name="mail.example.com", start_tls=protocol
        )
    assert ssl.DER_cert_to_PEM_cert(found).split() == server_pair("mail.example.com")[0].decode().split()


@pytest.mark.parametrize(
    ("protocol", "script"),
    [
        ("smtp", [*SMTP, (b"454 the secret is 42\r\n", b"")]),
        ("imap", [*IMAP, (b"a NO the secret is 42\r\n", b"")]),
        ("postgres", [(b"N", b"")]),
        ("", [(b"the secret is 42", b"")]),
        ("smtp", [(b"x" * 10_000, b"")]),
    ],
)
async def test_nothing_of_another_answer_is_shown(
    tmp_path: Path, protocol: str, script: list[tuple[bytes, bytes]]
) -> None:
    async with mail_server(tmp_path, script, tls=False) as port:
        with pytest.raises(NotServed) as failure:
            await served_certificate("127.0.0.1", port, server_name="", start_tls=protocol)
    assert "42" not in str(failure.value)
