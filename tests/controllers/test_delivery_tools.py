"""Hooks of Deliveries."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from certwright.controllers.deliveries.hooks import Change, Hooks
from certwright.controllers.deliveries.permissions import DeliveryOptions
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
    assert [str(failure) for failure in failures] == ["it ended with status 2: broken"] * 2


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
        runs = (hooks.run("lb", delivered) for delivered in (*changes, change("none", tmp_path)))
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
