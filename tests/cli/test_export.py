"""Secrets as files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from certwright.cli.export import Exporter, UnsafeName

DATA = {"tls.crt": b"certificate", "tls.key": b"key", "ca.crt": b"ca"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_key_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    changed = Exporter(tmp_path).write("shop", "web", DATA)
    folder = tmp_path / "shop" / "web"
    assert names(folder) == set(DATA)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == DATA
    assert changed == ["tls.key", "ca.crt", "tls.crt"]  # the key first, so that a pair always fits


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
    assert Exporter(tmp_path).write("shop", "web", DATA) == []
    assert (tmp_path / "shop" / "web" / "tls.crt").stat().st_ino == before


def test_a_key_file_that_others_could_read_is_closed_again(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.write("shop", "web", DATA)
    (tmp_path / "shop" / "web" / "tls.key").chmod(0o644)
    assert exporter.write("shop", "web", DATA) == ["tls.key"]
    assert mode(tmp_path / "shop" / "web" / "tls.key") == 0o600


def test_files_whose_key_has_gone_are_removed_and_strangers_stay(tmp_path: Path) -> None:
    folder = tmp_path / "shop" / "web"
    first = Exporter(tmp_path)
    first.write("shop", "web", {**DATA, "extra.pem": b"x"})
    (folder / "notes.txt").write_text("mine")
    assert first.write("shop", "web", {"tls.crt": b"1", "tls.key": b"2"}) == [
        "tls.key",
        "tls.crt",
        "ca.crt",
        "extra.pem",
    ]
    assert names(folder) == {"tls.crt", "tls.key", "notes.txt"}
    # A later run of the program knows the names that certificates have.
    (folder / "key.der").write_bytes(b"stale")
    assert Exporter(tmp_path).write("shop", "web", {"tls.crt": b"1", "tls.key": b"2"}) == ["key.der"]


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
    assert not (folder / "tls.key").is_symlink()
