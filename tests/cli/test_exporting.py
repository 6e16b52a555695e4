"""The export directory in the log: why files are not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from certwright.cli.exporting import Exports, ExportSettings
from certwright.kube.api.core import Secret, SecretMeta
from certwright.kube.api.meta import ObjectKey
from support.pairs import server_pair

WEB = ObjectKey("shop", "web")


def settings_for(root: Path) -> ExportSettings:
    return ExportSettings(reserves_late=False, root=root, with_ca_keys=False, command=None, timeout_s=1)


def secret_of(data: dict[str, bytes]) -> Secret:
    return Secret(metadata=SecretMeta(name="web", namespace="shop"), data=data)


async def test_a_link_in_the_place_of_a_folder_is_named_once_until_it_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, victim = tmp_path / "out", tmp_path / "victim"
    (root / "shop").mkdir(parents=True)
    victim.mkdir()
    (root / "shop" / "web").symlink_to(victim)
    crt, key = server_pair("web")
    secret = secret_of({"tls.crt": crt, "tls.key": key})
    async with Exports(settings_for(root)).opened() as exports:
        for _ in range(2):
            assert not await exports.write(WEB, secret)
        (record,) = caplog.records
        assert record.getMessage() == "files not written; trying again"
        assert record.__dict__["values"] == {
            "certificate": "shop/web",
            "directory": f"{root}/shop/web",
            "cause": f"{root}/shop/web: a symbolic link, or not a directory; symbolic links are not followed",
        }
        assert (await exports.overdue(), list(victim.iterdir())) == ([WEB], [])
        (root / "shop" / "web").unlink()
        assert await exports.write(WEB, secret)
        assert await exports.overdue() == []


async def test_a_deleted_certificate_is_not_tried_again(tmp_path: Path) -> None:
    async with Exports(settings_for(tmp_path)).opened() as exports:
        exports.fail(WEB, "its Secret cannot be read")
        assert await exports.overdue() == [WEB]
        exports.forget(WEB)
        assert await exports.overdue() == []


async def test_a_half_edited_secret_replaces_no_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (old, old_key), (new, new_key) = server_pair("web"), server_pair("renewed")
    reports: list[str] = []
    async with Exports(settings_for(tmp_path)).opened() as exports:

        async def report(_key: ObjectKey, message: str) -> None:
            reports.append(message)

        exports.on_unusable = report
        assert await exports.write(WEB, secret_of({"tls.crt": old, "tls.key": old_key}))
        for half in (
            {"tls.crt": new, "tls.key": old_key},
            {"tls.crt": new, "tls.key": old_key},
            {"tls.crt": old},
            {"tls.crt": old[:-100], "tls.key": old_key},
            {"tls.crt": old, "tls.key": b"x"},
        ):
            assert not await exports.write(WEB, secret_of(half))
            folder = tmp_path / "shop" / "web"
            assert ((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes()) == (old, old_key)
            assert await exports.overdue() == [WEB]
        assert await exports.write(WEB, secret_of({"tls.crt": new, "tls.key": new_key}))
        assert await exports.overdue() == []
    stay = "the exported files stay as they are"
    assert reports[:2] == [
        f"Secret web: tls.key is not the private key of tls.crt; {stay}",
        f"Secret web: there is no tls.key; {stay}",
    ]
    assert [report.partition(" cannot")[0] for report in reports[2:]] == [
        "Secret web: tls.crt",
        "Secret web: tls.key",
    ]
    assert [record.message for record in caplog.records] == ["files not written; trying again"] * 4
