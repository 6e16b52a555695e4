"""`backup`, `restore` and `encryption`, with real servers."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import signal
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from certwright.resources.names import NEXT_PRIVATE_KEY_LABEL
from cli.calls import EXAMPLES, PATIENT, Process, Start, serve
from support.etcd import Etcd, running_etcd

HERE = ("--kubeconfig", "one/kubeconfig")


@pytest.fixture
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


def served(start: Start, data_dir: str, *flags: str) -> Process:
    """A server that is ready."""
    return serve(start, "--data-dir", data_dir, *flags)


def stopped(process: Process) -> None:
    process.kill(signal.SIGTERM)
    assert process.rest().status == 0


def issue(start: Start) -> None:
    """The certificates of an example, issued by the server in `one`."""
    done = start("apply", "-f", str(EXAMPLES / "quickstart.yaml"), *HERE).rest()
    assert done.status == 0, done.err
    no_longer_needed = ("-A", "-l", NEXT_PRIVATE_KEY_LABEL, "--for=delete")
    for what in (("certificates", "--all", "--for=condition=Ready"), ("secrets", *no_longer_needed)):
        done = start("wait", *what, *PATIENT, *HERE).rest()
        assert done.status == 0, done.err


def secrets_of(start: Start, data_dir: str) -> dict[str, dict[str, str]]:
    """What the Secrets hold, by their names."""
    listing = start("get", "secrets", "-A", "-o", "json", "--kubeconfig", f"{data_dir}/kubeconfig").rest()
    assert listing.status == 0, listing.err
    return {item["metadata"]["name"]: item["data"] for item in json.loads(listing.out)["items"]}


def serials(start: Start, data_dir: str) -> dict[str, int]:
    """How often each certificate was issued."""
    listing = start(
        "get", "certificates", "-A", "-o", "json", "--kubeconfig", f"{data_dir}/kubeconfig"
    ).rest()
    return {item["metadata"]["name"]: item["status"]["revision"] for item in json.loads(listing.out)["items"]}


def saved(start: Start, *words: str) -> str:
    """What a command says that succeeds."""
    done = start(*words).rest()
    assert done.status == 0, done.err
    return done.out


@dataclass(frozen=True, slots=True)
class Issued:
    """A folder with the data directory `one` of a stopped server that issued certificates, and `all.backup`,
    which it made while it was running."""

    folder: Path
    secrets: dict[str, dict[str, str]] = field(repr=False)
    revisions: dict[str, int]
    stored: bytes = field(repr=False)
    """The content of the store's files while the server was running, and of the backup."""

    def copy_to(self, folder: Path, *names: str) -> None:
        """Copy the data directory, the backup or both."""
        for name in names or ("one", "all.backup"):
            source = self.folder / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, folder / name)


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    """Issued once for all tests of this module, which work on copies."""
    folder = tmp_path_factory.mktemp("issued")
    with ExitStack() as stack:

        def start(*words: str) -> Process:
            process = Process(*words, cwd=folder)
            stack.callback(process.close)
            return process

        server = served(start, "one")
        issue(start)
        assert "saved in all.backup" in saved(start, "backup", "--data-dir", "one", "all.backup")
        files = [*(folder / "one").glob("store.sqlite*"), folder / "all.backup"]
        stored = b"".join(path.read_bytes() for path in files)
        state = Issued(folder, secrets_of(start, "one"), serials(start, "one"), stored)
        stopped(server)
    return state


def test_a_backup_of_a_running_server_is_restored_into_a_new_directory(
    start: Start, issued: Issued, tmp_path: Path
) -> None:
    issued.copy_to(tmp_path)
    assert stat.S_IMODE((issued.folder / "all.backup").stat().st_mode) == 0o600
    (tmp_path / "two").mkdir()
    shutil.copy(tmp_path / "one" / "encryption.key", tmp_path / "two")
    restored = saved(start, "restore", "--data-dir", "two", "all.backup")
    assert "restored; start the server with `certwright serve --data-dir two`" in restored
    two = served(start, "two")
    assert secrets_of(start, "two") == issued.secrets
    assert serials(start, "two") == issued.revisions
    # The administrator's token of the old server is valid at the restored one.
    tokens = [(tmp_path / name / "pki" / "admin.token").read_text() for name in ("one", "two")]
    assert tokens[0] == tokens[1]
    assert start("renew", "web", "-n", "default", "--kubeconfig", "two/kubeconfig").rest().status == 0
    stopped(two)


_FULL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (32768, 32768))
"""


def test_a_backup_that_the_disk_has_no_room_for_is_one_sentence_and_no_file(
    issued: Issued, tmp_path: Path
) -> None:
    words = ("backup", "--data-dir", "one", str(tmp_path / "b.backup"))
    outcome = Process(*words, cwd=issued.folder, prologue=_FULL_DISK).rest()
    expected = f"error: {tmp_path}/b.backup cannot be written: File too large\n"
    assert (outcome.status, outcome.out, outcome.err) == (1, "", expected)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_needs_its_key(start: Start, issued: Issued, tmp_path: Path) -> None:
    issued.copy_to(tmp_path, "all.backup")
    refused = start("restore", "--data-dir", "two", "all.backup").rest()
    assert refused.status == 1
    assert "two/encryption.key has no key, or is missing" in refused.err
    assert not (tmp_path / "two" / "store.sqlite").exists()


def test_an_existing_store_is_replaced_only_by_force(start: Start, issued: Issued, tmp_path: Path) -> None:
    issued.copy_to(tmp_path)
    server = served(start, "one", "--controllers", "")
    saved(start, "delete", "certificates", "--all", "-A", *HERE)
    assert serials(start, "one") == {}
    refused = start("restore", "--data-dir", "one", "--force", "all.backup").rest()
    assert "in use by another certwright" in refused.err
    stopped(server)
    refused = start("restore", "--data-dir", "one", "all.backup").rest()
    assert (refused.status, "--force replaces it" in refused.err) == (1, True)
    saved(start, "restore", "--data-dir", "one", "--force", "all.backup")
    server = served(start, "one", "--controllers", "")
    assert serials(start, "one") == issued.revisions
    stopped(server)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[: len(content) // 2], "damaged or cut short"),
        (lambda content: content[:10], "is not a backup"),
        (lambda content: b"", "is not a backup"),
        (lambda content: content[:300] + bytes([content[300] ^ 1]) + content[301:], "damaged or cut short"),
        (lambda content: b"PK\x03\x04" + content, "is not a backup"),
    ],
    ids=["half", "head", "empty", "one bit", "another file"],
)
def test_a_wrong_file_is_reported(
    start: Start, issued: Issued, tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    issued.copy_to(tmp_path)
    path = tmp_path / "all.backup"
    path.write_bytes(change(path.read_bytes()))
    refused = start("restore", "--data-dir", "one", "--force", "all.backup").rest()
    assert refused.status == 1
    assert words in refused.err


def test_a_backup_moves_from_sqlite_to_etcd_and_back(
    start: Start, issued: Issued, etcd: Etcd, tmp_path: Path
) -> None:
    issued.copy_to(tmp_path)
    key = ("--encryption-key-file", "one/encryption.key")
    before, revisions = issued.secrets, issued.revisions
    store = ("--store", etcd.url)
    saved(start, "restore", "--data-dir", "two", *store, *key, "all.backup")
    two = served(start, "two", *store, *key)
    assert (secrets_of(start, "two"), serials(start, "two")) == (before, revisions)
    saved(start, "backup", "--data-dir", "two", *store, *key, "two.backup")
    stopped(two)
    refused = start("restore", "--data-dir", "two", *store, *key, "all.backup").rest()
    assert "--force replaces it" in refused.err
    saved(start, "restore", "--data-dir", "two", *store, *key, "--force", "two.backup")
    saved(start, "restore", "--data-dir", "three", *key, "two.backup")
    three = served(start, "three", *key)
    assert (secrets_of(start, "three"), serials(start, "three")) == (before, revisions)
    stopped(three)


def test_no_private_key_is_in_any_file_of_the_store(issued: Issued) -> None:
    # Certificates are no secret, and are in the objects that ask for them too.
    secret = [fields["tls.key"] for fields in issued.secrets.values() if "tls.key" in fields]
    secret += [line for key in secret for line in base64.b64decode(key).decode().split("\n")[1:-2]]
    assert len(secret) > 6
    assert not [text for text in secret if text.encode() in issued.stored]


def test_keys_are_rotated_in_a_running_server_and_it_starts_again(
    start: Start, issued: Issued, tmp_path: Path
) -> None:
    issued.copy_to(tmp_path, "one")
    server = served(start, "one")
    before = secrets_of(start, "one")
    assert before == issued.secrets
    first = json.loads(saved(start, "encryption", "status", "-o", "json", *HERE))
    assert first["settled"]
    assert "the old one is gone" in saved(start, "encryption", "rotate", *HERE)
    assert "is new" in saved(start, "encryption", "rotate", "--key-file", *HERE)
    second = json.loads(saved(start, "encryption", "status", "-o", "json", *HERE))
    assert second["wrapped_by"] != first["wrapped_by"]
    stopped(server)
    server = served(start, "one")
    assert secrets_of(start, "one") == before
    stopped(server)
    (tmp_path / "one" / "encryption.key").unlink()
    refused = start("serve", "--data-dir", "one", "--listen", "127.0.0.1:0").rest()
    assert refused.status == 1
    assert second["wrapped_by"] in refused.err


def test_only_the_administrator_may_see_and_turn_the_keys(start: Start, tmp_path: Path) -> None:
    server = served(start, "one", "--anonymous-auth", "true")
    match = re.search(r"server: https://(\S+)", (tmp_path / "one" / "kubeconfig").read_text())
    assert match is not None
    trust = ssl.create_default_context(cafile=str(tmp_path / "one" / "pki" / "ca.crt"))
    for method, path in (("GET", ""), ("POST", "/rotate"), ("POST", "/rewrap")):
        with closing(http.client.HTTPSConnection(match[1], context=trust, timeout=200)) as connection:
            connection.request(method, f"/certwright/encryption{path}")
            assert connection.getresponse().status == 403
    stopped(server)
