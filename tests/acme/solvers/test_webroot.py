"""HTTP-01 by a web root: what is written, what is deleted again, and what an attacker lays in the way."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from certwright.acme.solvers.contract import SolverError, Task
from certwright.acme.solvers.webroot import WebRoot, WebRoots
from conformance.check_solver import check_solver

TASK = Task(type="http-01", identifier="127.0.0.1", token="abc-DEF_1", key="abc-DEF_1.print", uid="u1")
FOLDER = Path(".well-known/acme-challenge")


def read(path: Path) -> str:
    return path.read_text()


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def web_root(root: Path, *below: str, shared: WebRoots | None = None) -> WebRoot:
    """A solver for a directory below that root."""
    return WebRoot(str(root), below, shared=shared)


async def test_the_web_root_is_a_solver(tmp_path: Path) -> None:
    async def see(task: Task) -> set[str]:
        page = tmp_path / FOLDER / task.token
        return {read(page)} if page.exists() else set()

    await check_solver(web_root(tmp_path), see, TASK)


async def test_the_web_servers_user_may_read_the_page(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        await web_root(tmp_path).present(TASK)
    finally:
        os.umask(before)
    page = tmp_path / FOLDER / TASK.token
    assert page.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in page.parent.iterdir()] == [TASK.token]


async def test_directories_that_were_made_for_the_page_are_deleted_with_the_last_one(tmp_path: Path) -> None:
    shared, other = WebRoots(), replace(TASK, token="other", key="other.print", uid="u2")
    await web_root(tmp_path, shared=shared).present(TASK)
    await web_root(tmp_path, shared=shared).present(other)
    await web_root(tmp_path, shared=shared).clean_up(TASK)
    assert (tmp_path / FOLDER / "other").exists()
    await web_root(tmp_path, shared=shared).clean_up(other)
    assert names_in(tmp_path) == []


async def test_directories_that_existed_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".well-known").mkdir()
    solver = web_root(tmp_path)
    await solver.present(TASK)
    await solver.clean_up(TASK)
    assert names_in(tmp_path) == [".well-known"]


async def test_directories_that_hold_something_else_by_now_are_kept(tmp_path: Path) -> None:
    solver = web_root(tmp_path)
    await solver.present(TASK)
    (tmp_path / ".well-known" / "security.txt").touch()
    await solver.clean_up(TASK)
    assert names_in(tmp_path) == [".well-known", ".well-known/security.txt"]


@pytest.mark.parametrize("token", ["", "../../etc/passwd", "a/b", "ü", "a.b", "a\n", "x" * 257])
async def test_a_token_never_becomes_a_path(tmp_path: Path, token: str) -> None:
    task = replace(TASK, token=token)
    for act in (web_root(tmp_path).present, web_root(tmp_path).clean_up):
        with pytest.raises(SolverError, match="base64url"):
            await act(task)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("link", ["site", "site/.well-known", "site/.well-known/acme-challenge"])
async def test_a_symbolic_link_below_the_root_is_not_followed(tmp_path: Path, link: str) -> None:
    root, victim = tmp_path / "root", tmp_path / "victim"
    victim.mkdir()
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(victim)
    solver = web_root(root, "site")
    with pytest.raises(SolverError, match="symbolic links are not followed"):
        await solver.present(TASK)
    (victim / TASK.token).write_text(TASK.key)
    with pytest.raises(SolverError, match="symbolic links are not followed"):
        await solver.clean_up(TASK)
    assert names_in(victim) == [TASK.token]


async def test_a_root_that_is_a_symbolic_link_is_the_operators_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    await web_root(tmp_path / "root").present(TASK)
    assert read(tmp_path / "real" / FOLDER / TASK.token) == TASK.key


async def test_a_page_that_is_a_symbolic_link_is_neither_written_through_nor_deleted(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / FOLDER
    victim.write_text("mine")
    folder.mkdir(parents=True)
    (folder / TASK.token).symlink_to(victim)
    for act in (web_root(tmp_path).present, web_root(tmp_path).clean_up):
        with pytest.raises(SolverError, match="symbolic links are not followed"):
            await act(TASK)
    assert read(victim) == "mine"
    assert (folder / TASK.token).is_symlink()


@pytest.mark.parametrize("content", ["my own page", "", "abc-DEF_1." + "x" * 1000])
async def test_a_file_that_is_not_a_proof_is_neither_replaced_nor_deleted(
    tmp_path: Path, content: str
) -> None:
    page = tmp_path / FOLDER / TASK.token
    page.parent.mkdir(parents=True)
    page.write_text(content)
    for act in (web_root(tmp_path).present, web_root(tmp_path).clean_up):
        with pytest.raises(SolverError, match="is not a proof of that challenge"):
            await act(TASK)
    assert read(page) == content


async def test_a_proof_of_another_account_is_replaced(tmp_path: Path) -> None:
    await web_root(tmp_path).present(replace(TASK, key=f"{TASK.token}.before"))
    await web_root(tmp_path).present(TASK)
    assert read(tmp_path / FOLDER / TASK.token) == TASK.key


async def test_the_directory_that_is_served_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(SolverError, match=r"cannot write .*/etc/new/.well-known"):
        await web_root(tmp_path, "etc", "new").present(TASK)
    assert names_in(tmp_path) == []


async def test_a_root_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".well-known").write_text("a file")
    with pytest.raises(SolverError, match=r"cannot write .*acme-challenge"):
        await web_root(tmp_path).present(TASK)
