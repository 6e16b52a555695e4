"""The export directory in the log: why files are not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from certwright.cli.exporting import Exports, ExportSettings
from certwright.kube.api.core import Secret, SecretMeta
from certwright.kube.api.meta import ObjectKey

WEB = ObjectKey("shop", "web")


async def test_a_link_in_the_place_of_a_folder_is_named_once_until_it_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, victim = tmp_path / "out", tmp_path / "victim"
    (root / "shop").mkdir(parents=True)
    victim.mkdir()
    (root / "shop" / "web").symlink_to(victim)
    settings = ExportSettings(reserves_late=False, root=root, with_ca_keys=False, command=None, timeout_s=1)
    secret = Secret(metadata=SecretMeta(name="web", namespace="shop"), data={"tls.crt": b"certificate"})
    async with Exports(settings).opened() as exports:
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
    settings = ExportSettings(
        reserves_late=False, root=tmp_path, with_ca_keys=False, command=None, timeout_s=1
    )
    async with Exports(settings).opened() as exports:
        exports.fail(WEB, "its Secret cannot be read")
        assert await exports.overdue() == [WEB]
        exports.forget(WEB)
        assert await exports.overdue() == []
