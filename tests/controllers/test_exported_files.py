"""Secrets as files."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from certwright.controllers.deliveries.export import Exporter, ExportFailed, UnsafeName
from certwright.kube.api.meta import ObjectKey
from support.pairs import ca_pair

DATA = {"tls.crt": b"certificate", "tls.key": b"key", "ca.crt": b"ca"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith("..")}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_key_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    changed = Exporter(tmp_path).write("shop", "web", DATA).changed
    folder = tmp_path / "shop" / "web"
    assert names(folder) == set(DATA)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == DATA
    assert changed == ["tls.crt", "tls.key", "ca.crt"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("tls.crt", 0o644), ("ca.crt", 0o644), ("tls.key", 0o600), ("keystore.p12", 0o600), ("key.der", 0o600)],
)
def test_only_certificates_can_be_read_by_others(tmp_path: Path, key: str, expected: int) -> None:
    Exporter(tmp_path).write("shop", "web", {key: b"x"})
    assert mode(tmp_path / "shop" / "web" / key) == expected


def test_nothing_is_written_when_nothing_has_changed(tmp_path: Path) -> None:
    Exporter(tmp_path).write("shop", "web", DATA)
    before = (tmp_path / "shop" / "web" / "tls.crt").stat().st_ino
    assert Exporter(tmp_path).write("shop", "web", DATA).changed == []
    assert (tmp_path / "shop" / "web" / "tls.crt").stat().st_ino == before


def test_a_key_file_that_others_could_read_is_closed_again(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.write("shop", "web", DATA)
    (tmp_path / "shop" / "web" / "tls.key").chmod(0o644)
    assert exporter.write("shop", "web", DATA).changed == ["tls.key"]
    assert mode(tmp_path / "shop" / "web" / "tls.key") == 0o600


def test_files_whose_key_has_gone_are_removed_and_strangers_stay(tmp_path: Path) -> None:
    folder = tmp_path / "shop" / "web"
    first = Exporter(tmp_path)
    first.write("shop", "web", {**DATA, "extra.pem": b"x"})
    (folder / "notes.txt").write_text("mine")
    changed = first.write("shop", "web", {"tls.crt": b"1", "tls.key": b"2"}).changed
    assert changed == ["tls.crt", "tls.key", "ca.crt", "extra.pem"]
    assert names(folder) == {"tls.crt", "tls.key", "notes.txt"}
    # A later run of the program knows the names that certificates have.
    (folder / "key.der").write_bytes(b"stale")
    again = Exporter(tmp_path).write("shop", "web", {"tls.crt": b"1", "tls.key": b"2"})
    assert again.changed == ["key.der"]


@pytest.mark.parametrize("key", ["..", ".", ".hidden", "../tls.crt", "a/b", "", "a\0b", "x" * 300])
def test_a_key_that_is_no_file_name_is_refused_before_anything_is_written(tmp_path: Path, key: str) -> None:
    with pytest.raises(UnsafeName):
        Exporter(tmp_path).write("shop", "web", {**DATA, key: b"x"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("namespace", "name"), [("..", "web"), ("shop", ".."), ("", "web"), ("shop", "a/b")])
def test_a_name_that_is_no_dns_name_is_refused(tmp_path: Path, namespace: str, name: str) -> None:
    with pytest.raises(UnsafeName):
        Exporter(tmp_path).write(namespace, name, DATA)


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"key")
    folder = tmp_path / "out" / "shop" / "web"
    folder.mkdir(parents=True)
    (folder / "tls.key").symlink_to(victim)
    Exporter(tmp_path / "out").write("shop", "web", {"tls.key": b"secret"})
    assert victim.read_bytes() == b"key"
    assert (folder / "tls.key").resolve().is_relative_to(folder)


def test_mode_and_group_of_a_file_are_kept_when_it_is_replaced(tmp_path: Path) -> None:
    key = tmp_path / "shop" / "web" / "tls.key"
    exporter = Exporter(tmp_path)
    exporter.write("shop", "web", DATA)
    group = os.getgroups()[-1] if os.geteuid() else 33
    os.chown(key, -1, group)
    key.chmod(0o640)
    assert exporter.write("shop", "web", DATA).changed == []
    assert Exporter(tmp_path).write("shop", "web", {**DATA, "tls.key": b"next"}).changed == ["tls.key"]
    assert (key.read_bytes(), mode(key), key.stat().st_gid) == (b"next", 0o640, group)


def test_files_of_the_layout_before_are_adopted_with_their_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shop" / "web"
    folder.mkdir(parents=True)
    for name, content in DATA.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o640)
    Exporter(tmp_path).write("shop", "web", DATA)
    assert names(folder) == set(DATA)
    assert (folder / "tls.key").is_symlink()
    assert mode(folder / "tls.key") == 0o640


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
def test_a_file_that_was_deleted_or_changed_is_noticed_and_written_again(tmp_path: Path, name: str) -> None:
    exporter, file = Exporter(tmp_path), tmp_path / "shop" / "web" / name
    exporter.write("shop", "web", DATA)
    assert exporter.changed_by_others() == []
    file.unlink()
    assert exporter.changed_by_others() == [("shop", "web")]
    assert exporter.write("shop", "web", DATA).changed == [name]
    file.write_bytes(b"edited")
    assert exporter.changed_by_others() == [("shop", "web")]
    assert exporter.write("shop", "web", DATA).changed == [name]
    assert (file.read_bytes(), exporter.changed_by_others()) == (DATA[name], [])


def test_files_may_be_compared_while_others_are_written(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.write("shop", "first", DATA)
    with ThreadPoolExecutor(1) as pool:
        writes = pool.submit(lambda: [exporter.write("shop", f"web-{number}", DATA) for number in range(200)])
        while not writes.done():
            assert exporter.changed_by_others() == []
        writes.result()


def test_files_of_a_deleted_certificate_are_left_as_they_are(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.write("shop", "web", DATA)
    (tmp_path / "shop" / "web" / "tls.crt").unlink()
    exporter.forget(ObjectKey("shop", "web"))
    assert exporter.changed_by_others() == []


def test_the_private_key_of_a_ca_is_removed_unless_the_operator_wants_it(tmp_path: Path) -> None:
    certificate, key = ca_pair()
    data = {"tls.crt": certificate, "tls.key": key, "tls-combined.pem": key + certificate}
    folder = tmp_path / "shop" / "ca"
    Exporter(tmp_path, with_ca_keys=True).write("shop", "ca", data)
    assert names(folder) == set(data)
    written = Exporter(tmp_path).write("shop", "ca", data)
    assert (written.removed_ca_key, names(folder)) == (True, {"tls.crt"})
    assert not [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    again = Exporter(tmp_path).write("shop", "ca", data)
    assert (again.changed, again.removed_ca_key) == ([], False)


def test_only_one_process_exports_to_a_directory(tmp_path: Path) -> None:
    first, second = Exporter(tmp_path / "out"), Exporter(tmp_path / "out")
    first.lock()
    with pytest.raises(ExportFailed, match=rf"process {os.getpid()}.*--export"):
        second.lock()
    first.release()
    second.lock()
    second.release()


def test_new_folders_can_be_entered_by_servers_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Exporter(tmp_path).write("shop", "web", DATA)
    finally:
        os.umask(before)
    folders = (tmp_path / "shop", tmp_path / "shop" / "web", tmp_path / "shop" / "web" / "..data")
    assert [mode(folder) for folder in folders] == [0o755] * 3
    assert mode(tmp_path / "shop" / "web" / "tls.key") == 0o600
