"""The files of a server: who can read them, and what they hold."""

from __future__ import annotations

import stat
from pathlib import Path

import click
import pytest

from certwright.cli.acme_flags import parse_directories, parse_environment, parse_programs
from security.conftest import Server


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_the_servers_user_reads_what_the_data_directory_holds(server: Server) -> None:
    data = server.folder / "data"
    files = {str(file.relative_to(data)): file for file in data.rglob("*")}
    assert mode(data) == 0o700
    for name, path in files.items():
        assert mode(path) & 0o077 == 0 or name.endswith(".crt"), name
    names = set(files)
    for name in ("pki/admin.token", "encryption.key", "kubeconfig", "store.sqlite"):
        assert name in names


async def test_secrets_are_encrypted_in_the_store(server: Server) -> None:
    await server.tenant().create("Secret", "s", stringData={"password": "MARKER-OF-A-SECRET"})
    await server.stop()
    for path in (server.folder / "data").glob("store.sqlite*"):
        assert b"MARKER-OF-A-SECRET" not in path.read_bytes()
        assert b"TUFSS0VSLU9GLUEtU0VDUkVU" not in path.read_bytes()
    await server.start("--log-level", "error")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("hook", "write NAME="),
        ("=/bin/true", "write NAME="),
        ("a b=/bin/true", "write NAME="),
        ("hook=", "by its absolute path"),
        ("hook=true", "by its absolute path"),
        ("hook=./true", "by its absolute path"),
        ("hook='/bin/true", "cannot be split"),
    ],
)
def test_a_program_is_named_exactly(value: str, words: str) -> None:
    with pytest.raises(click.BadParameter, match=words):
        parse_programs((value,))


def test_programs_are_split_as_a_shell_does() -> None:
    given = ("hook=/bin/sh -c 'exit 0'", "other=/bin/true")
    assert parse_programs(given) == {"hook": ("/bin/sh", "-c", "exit 0"), "other": ("/bin/true",)}
    with pytest.raises(click.BadParameter, match="another program of the name"):
        parse_programs(("hook=/bin/true", "hook=/bin/false"))


def test_the_file_of_the_environment_is_never_quoted(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("# of the hook\n\nTOKEN=a=b \nEMPTY=\n")
    assert parse_environment(path) == {"TOKEN": "a=b ", "EMPTY": ""}
    for text in ("SECRETVALUE\n", "A B=SECRETVALUE\n", "ACME_NAME=SECRETVALUE\n", "=SECRETVALUE\n"):
        path.write_text(text)
        with pytest.raises(click.BadParameter) as caught:
            parse_environment(path)
        assert "line 1" in str(caught.value)
        assert "SECRETVALUE" not in str(caught.value)
    with pytest.raises(click.BadParameter, match="No such file"):
        parse_environment(tmp_path / "none")


def test_a_web_root_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "www").mkdir()
    assert parse_directories((Path("www"),)) == (str(tmp_path / "www"),)
    with pytest.raises(click.BadParameter, match="is not a directory"):
        parse_directories((tmp_path / "none",))
