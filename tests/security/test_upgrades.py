"""An update that brings these rules breaks no write to an issuer that was accepted before, and says what to
do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.calls import Process
from security.conftest import Json, Server, acme, ready, refusal, running_server

ISSUERS: dict[str, tuple[Json, str]] = {
    "program": (acme("https://ca.invalid/dir", b"", {"exec": {"command": ["/bin/true"]}}), "--exec-solver"),
    "plain": (acme("http://127.0.0.1:1/dir"), "--allow-http-servers"),
}


async def test_issuers_of_before_stay_writable_and_the_log_names_their_flags(tmp_path: Path) -> None:
    root = tmp_path / "www"
    root.mkdir()
    webroot = acme("https://ca.invalid/dir", b"", {"http01": {"webroot": {"path": str(root)}}})
    issuers = {**ISSUERS, "files": (webroot, "--webroot")}
    flags = ("--exec-solver", "hook=/bin/true", "--webroot", str(root), "--allow-http-servers")
    async with running_server(tmp_path, *flags) as server:
        for name, (spec, _) in issuers.items():
            await server.tenant().create("Issuer", name, spec=spec)
        await server.stop()
        await server.start("--log-level", "warning")
        tenant, admin = server.tenant(), server.admin("team-a")
        for name, (_, flag) in issuers.items():
            issuer = await tenant.until("Issuer", name, lambda obj: ready(obj).get("reason") == "NotAllowed")
            assert flag in ready(issuer)["message"]
            await tenant.patch("Issuer", name, {"metadata": {"labels": {"a": "b"}}})
            await tenant.patch("Issuer", name, {"spec": {"acme": {"email": "a@example.com"}}})
            await admin.patch("Issuer", name, {"status": {"acme": {"uri": "x"}}}, part="status")
            assert flag in await refusal(tenant.create("Issuer", "new", spec=issuers[name][0]))
        log = await server.stop()
        for name, (_, flag) in issuers.items():
            (line,) = [line for line in log.splitlines() if f"Issuer team-a/{name} is not Ready" in line]
            assert flag in line
        await server.start(*flags)
        await _all_allowed(server, issuers)


async def _all_allowed(server: Server, issuers: dict[str, tuple[Json, str]]) -> None:
    tenant = server.tenant()
    for name in issuers:
        await tenant.until(
            "Issuer", name, lambda issuer: ready(issuer).get("reason") not in ("NotAllowed", None)
        )


async def test_a_backup_with_such_issuers_is_restored(tmp_path: Path) -> None:
    flags = ("--exec-solver", "hook=/bin/true", "--allow-http-servers")
    async with running_server(tmp_path, *flags) as server:
        for name, (spec, _) in ISSUERS.items():
            await server.tenant().create("Issuer", name, spec=spec)
        await _run(tmp_path, "backup", "copy.backup", "--data-dir", "data")
        await server.stop()
        (tmp_path / "data" / "store.sqlite").rename(tmp_path / "gone")
        for rest in ("store.sqlite-wal", "store.sqlite-shm"):
            (tmp_path / "data" / rest).unlink(missing_ok=True)
        await _run(tmp_path, "restore", "copy.backup", "--data-dir", "data")
        await server.start("--log-level", "error")
        for name in ISSUERS:
            await server.tenant().until(
                "Issuer", name, lambda issuer: ready(issuer).get("reason") == "NotAllowed"
            )


async def test_a_server_without_controllers_leaves_it_to_the_flags_of_the_controllers(tmp_path: Path) -> None:
    async with running_server(tmp_path, "--controllers", "") as server:
        for name, (spec, _) in ISSUERS.items():
            await server.tenant().create("Issuer", name, spec=spec)
        words = ("controllers", "--kubeconfig", str(server.kubeconfig), "--log-level", "error")
        process = Process(*words, "--exec-solver", "hook=/bin/true", cwd=tmp_path)
        try:
            await server.tenant().until(
                "Issuer", "plain", lambda issuer: ready(issuer).get("reason") == "NotAllowed"
            )
            await server.tenant().until(
                "Issuer", "program", lambda issuer: ready(issuer).get("reason") not in ("NotAllowed", None)
            )
        finally:
            process.close()


async def _run(folder: Path, *words: str) -> None:
    outcome = await asyncio.to_thread(lambda: Process(*words, cwd=folder).rest())
    assert outcome.status == 0, outcome.err
