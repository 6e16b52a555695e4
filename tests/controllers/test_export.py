"""The export directory of a server, with its API and a real shell for the command of --on-change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from certwright.controllers.deliveries.export import Exporter, Exports, ExportSettings, OnChange
from certwright.kube.api import conditions
from certwright.kube.api.core import EVENTS, SECRETS, Secret, SecretMeta
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.tasks import TaskSet
from certwright.resources.certificate import Certificate, CertificateSpec
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES
from controllers import scene
from support.pairs import server_pair
from support.waiting import until
from support.world import World, eventually, make_world

WEB = ObjectKey("default", "web")
DATA = {"tls.crt": b"certificate"}
CERTIFICATE = Certificate(
    metadata=ObjectMeta(name="web", namespace="default"),
    spec=CertificateSpec(
        secret_name="web", dns_names=("web.example.com",), issuer_ref=IssuerReference(name="none")
    ),
)


class FastClock(SystemClock):
    """The system clock, a hundred times as fast for those who sleep."""

    def monotonic(self) -> float:
        return super().monotonic() * 100

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


class Scene:
    """A server with the Certificate web, whose files are exported to `root`."""

    def __init__(self, world: World, exports: Exports, root: Path) -> None:
        self.world, self.exports, self.root = world, exports, root

    async def store(self, data: dict[str, bytes]) -> None:
        """Replace the data of the Secret."""
        try:
            secret = await self.world.client.get(SECRETS, "web", "default")
        except Exception:
            secret = Secret(metadata=SecretMeta(name="web", namespace="default"))
            await self.world.client.create(SECRETS, replace(secret, data=data))
            return
        await self.world.client.update(SECRETS, replace(secret, data=data))

    def files(self) -> dict[str, bytes]:
        folder = self.root / "default" / "web"
        return {name: (folder / name).read_bytes() for name in ("tls.crt", "tls.key")}


def exports_to(root: Path) -> AbstractAsyncContextManager[Exports]:
    settings = ExportSettings(reserves_late=False, root=root, with_ca_keys=False, command=None, timeout_s=1)
    return Exports(settings, FastClock()).opened()


@asynccontextmanager
async def exporting(root: Path) -> AsyncIterator[Scene]:
    async with make_world(controllers=False) as world, exports_to(root) as exports:
        await world.client.create(CERTIFICATES, CERTIFICATE)
        tasks = TaskSet()
        tasks.start(exports.follow(world.client), name="export")
        try:
            yield Scene(world, exports, root)
        finally:
            await tasks.close()


async def test_a_link_in_the_place_of_a_folder_is_named_once_until_it_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, victim = tmp_path / "out", tmp_path / "victim"
    (root / "default").mkdir(parents=True)
    victim.mkdir()
    (root / "default" / "web").symlink_to(victim)
    async with exporting(root) as scene:
        crt, key = server_pair("web")
        await scene.store({"tls.crt": crt, "tls.key": key})
        for _ in range(2):
            await scene.exports.write_now([WEB])
        assert await scene.exports.settled() == set()
        (record,) = caplog.records
        assert record.getMessage() == "files not written; trying again"
        assert record.__dict__["values"] == {
            "certificate": "default/web",
            "directory": f"{root}/default/web",
            "cause": f"{root}/default/web: a symbolic link, or not a directory; "
            "symbolic links are not followed",
        }
        assert list(victim.iterdir()) == []
        (root / "default" / "web").unlink()
        await until(lambda: bool(scene.exports.names(WEB)))
        assert await scene.exports.settled() == {WEB}
        assert scene.exports.names(WEB) == ["tls.crt", "tls.key"]


async def test_a_half_edited_secret_replaces_no_files_and_is_an_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (old, old_key), (new, new_key) = server_pair("web"), server_pair("renewed")
    async with exporting(tmp_path) as scene:
        await scene.store({"tls.crt": old, "tls.key": old_key})
        await scene.exports.write_now([WEB])
        for half in (
            {"tls.crt": new, "tls.key": old_key},
            {"tls.crt": old},
            {"tls.crt": old[:-100], "tls.key": old_key},
            {"tls.crt": old, "tls.key": b"x"},
        ):
            await scene.store(half)
            for _ in range(2):
                await scene.exports.write_now([WEB])
            assert scene.files() == {"tls.crt": old, "tls.key": old_key}
        await scene.store({"tls.crt": new, "tls.key": new_key})
        await until(lambda: scene.files() == {"tls.crt": new, "tls.key": new_key})
        failures = [record.__dict__["values"]["cause"] for record in caplog.records]
        stay = "the exported files stay as they are"
        assert failures[:2] == [
            f"Secret web: tls.key is not the private key of tls.crt; {stay}",
            f"Secret web: there is no tls.key; {stay}",
        ]
        assert [failure.partition(" cannot")[0] for failure in failures[2:]] == [
            "Secret web: tls.crt",
            "Secret web: tls.key",
        ]
        events = await scene.world.client.list(EVENTS, "default")
        while len(events.items) < 4:
            await asyncio.sleep(0.01)
            events = await scene.world.client.list(EVENTS, "default")
        assert {(event.reason, event.involved_object.name) for event in events.items} == {
            ("NotExported", "web")
        }
        assert sorted(event.message for event in events.items) == sorted(failures)


async def test_files_are_written_again_until_the_certificate_is_deleted(tmp_path: Path) -> None:
    async with exporting(tmp_path) as scene:
        crt, key = server_pair("web")
        await scene.store({"tls.crt": crt, "tls.key": key})
        file = tmp_path / "default" / "web" / "tls.crt"
        await until(lambda: bool(scene.exports.names(WEB)))
        file.unlink()
        await until(file.exists)
        await scene.world.client.delete(CERTIFICATES, "web", "default")
        await asyncio.sleep(0.01)
        await scene.exports.settled()
        file.unlink()
        await asyncio.sleep(0.2)  # four scans
        assert not file.exists()


@asynccontextmanager
async def running(root: Path, command: str, *, timeout_s: float = 10.0) -> AsyncIterator[OnChange]:
    exporter, tasks = Exporter(root), TaskSet()
    on_change = OnChange(exporter, command, FastClock(), timeout_s=timeout_s)
    for name in ("web", "api"):
        exporter.write("shop", name, DATA)
    tasks.start(on_change.run(), name="on change")
    try:
        yield on_change
    finally:
        await tasks.close()


def version(root: Path, name: str = "web") -> str:
    return (root / "shop" / name / "..data").readlink().name


def is_hook_done(root: Path, name: str = "web") -> bool:
    return not Exporter(root).write("shop", name, DATA).changed and (
        Exporter(root).write("shop", name, DATA).is_hook_done
    )


SHOP_WEB, SHOP_API = ObjectKey("shop", "web"), ObjectKey("shop", "api")


async def test_the_command_runs_once_for_each_certificate_with_its_name_and_folder(tmp_path: Path) -> None:
    command = f'echo "$CERTWRIGHT_CERTIFICATE $CERTWRIGHT_DIR" >> {tmp_path}/log'
    async with running(tmp_path, command) as on_change:
        for key in (SHOP_WEB, SHOP_API):
            for _ in range(3):
                on_change.add(key, version(tmp_path, key.name))
        assert await on_change.wait_tried()
    assert sorted((tmp_path / "log").read_text().splitlines()) == [
        f"shop/api {tmp_path}/shop/api",
        f"shop/web {tmp_path}/shop/web",
    ]
    assert is_hook_done(tmp_path, "web")
    assert is_hook_done(tmp_path, "api")


async def test_versions_in_quick_succession_are_one_run(tmp_path: Path) -> None:
    async with running(tmp_path, f"echo run >> {tmp_path}/log") as on_change:
        for each in ("..0000000000000001", "..0000000000000002", version(tmp_path)):
            on_change.add(SHOP_WEB, each)
        assert await on_change.wait_tried()
    assert ((tmp_path / "log").read_text(), is_hook_done(tmp_path)) == ("run\n", True)


async def test_a_failed_command_is_logged_and_repeated_until_it_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certwright.controllers.deliveries.export._FIRST_RETRY", timedelta(seconds=0.1))
    command = f'echo x >> {tmp_path}/log; echo "no such unit" >&2; test $(wc -l < {tmp_path}/log) -ge 3'
    async with running(tmp_path, command) as on_change:
        on_change.add(SHOP_WEB, version(tmp_path))
        assert not await on_change.wait_tried()
        await until(lambda: is_hook_done(tmp_path))
    assert (tmp_path / "log").read_text() == "x\nx\nx\n"
    failures = [record for record in caplog.records if record.levelname == "WARNING"]
    assert {record.getMessage() for record in failures} == {"--on-change command failed"}
    values = [record.__dict__["values"] for record in failures]
    assert [(value["certificate"], value["cause"]) for value in values] == [
        ("shop/web", "it ended with status 1: no such unit")
    ] * 2
    waits = [
        value["nextAttempt"].timestamp() - record.created
        for record, value in zip(failures, values, strict=True)
    ]
    assert [round(wait_s, 1) for wait_s in waits] == [0.1, 0.2]


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    command = f"(sleep 1; touch {tmp_path}/late) & wait"
    async with running(tmp_path, command, timeout_s=0.1) as on_change:
        on_change.add(SHOP_WEB, version(tmp_path))
        assert not await on_change.wait_tried()
    await asyncio.sleep(1.1)
    assert (is_hook_done(tmp_path), (tmp_path / "late").exists()) == (False, False)


async def test_a_program_that_the_command_starts_may_go_on(tmp_path: Path) -> None:
    async with running(tmp_path, "sleep 3 & exit 0", timeout_s=2) as on_change:
        on_change.add(SHOP_WEB, version(tmp_path))
        assert await on_change.wait_tried()
    assert is_hook_done(tmp_path)


async def test_the_condition_exported_is_set_when_the_files_are_there_and_ends_with_them(
    tmp_path: Path,
) -> None:
    async with make_world() as world, exports_to(tmp_path) as exports:

        async def is_exported() -> bool:
            await world.settle()
            return conditions.is_true((await world.certificate("web")).status.conditions, "Exported")

        issued = scene.Scene(world)
        await issued.add_ca()
        tasks = TaskSet()
        tasks.start(exports.follow(world.client), name="export")
        await issued.issue("web")
        await eventually(is_exported)
        assert (tmp_path / "default" / "web" / "tls.crt").exists()
        first = (await world.condition("web", "Exported")).message
        await tasks.close()
        await world.advance(timedelta(seconds=2))
        # Without an export, the next issuance removes it.
        await world.renew()
        assert not await is_exported()
        assert (await world.certificate("web")).status.revision == 2
        tasks = TaskSet()
        tasks.start(exports.follow(world.client), name="export")
        await eventually(is_exported)
        assert (await world.condition("web", "Exported")).message != first
        await tasks.close()
