"""Small tools: feature gates, durations, texts of others, addresses and proxies, background tasks, files."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.app import tls_identity
from certwright.kit import logs
from certwright.kube.api import naming
from certwright.kube.apiserver.base import features
from certwright.kube.util.connections import proxy_for
from certwright.kube.util.durations import doubled, format_duration, parse_duration
from certwright.kube.util.encoding import in_words
from certwright.kube.util.files import AlreadyLocked, FileLock, write_atomically
from certwright.kube.util.tasks import TaskSet


@pytest.mark.parametrize(
    ("attempts", "hours"), [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 32), (10**9, 32)]
)
def test_waits_double_up_to_the_cap(attempts: int, hours: int) -> None:
    assert doubled(timedelta(hours=1), attempts, cap=timedelta(hours=32)) == timedelta(hours=hours)


def test_a_base_of_nothing_switches_the_wait_off() -> None:
    assert doubled(timedelta(0), 5, cap=timedelta(hours=32)) == timedelta(0)


@given(st.text(min_size=1, max_size=400), st.integers(30, 253))
def test_a_bounded_name_fits_and_is_the_same_each_time(name: str, limit: int) -> None:
    short = naming.bounded_name(name, limit=limit)
    assert len(short) <= limit
    assert short == naming.bounded_name(name, limit=limit)


def test_two_long_names_with_one_beginning_stay_different() -> None:
    assert naming.bounded_name("a" * 300 + "x", limit=60) != naming.bounded_name("a" * 300 + "y", limit=60)


def test_suffixes_use_only_the_letters_that_make_no_words() -> None:
    assert set("".join(naming.random_suffix(5) for _ in range(500))) <= set(naming.ALPHABET)


def test_no_uid_is_drawn_twice_however_many_are_drawn() -> None:
    drawn = [naming.new_uid() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(UUID(uid).version == 4 and str(UUID(uid)) == uid for uid in drawn)


def test_a_file_is_replaced_whole_and_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "tls.key"
    old_mask = os.umask(0)
    try:
        write_atomically(path, b"one")
        write_atomically(path, b"two")
    finally:
        os.umask(old_mask)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["tls.key"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()  # os.replace of a file onto a directory fails
    with pytest.raises(OSError, match="directory"):
        write_atomically(path, b"x")
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_is_refused_while_another_process_holds_it_and_free_once_that_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    program = (
        "import sys, time; from pathlib import Path; from certwright.kube.util.files import FileLock\n"
        "FileLock(Path(sys.argv[1]), holder='process 42').acquire()\n"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyLocked) as caught:
            FileLock(path, holder="me").acquire()
        assert caught.value.holder == "process 42"
        other.kill()
    with FileLock(path, holder="me"):
        pass


async def test_a_task_that_fails_is_told_and_closing_ends_the_others() -> None:
    tasks = TaskSet()

    async def fail() -> None:
        raise LookupError("gone")

    endless = tasks.start(asyncio.Event().wait(), name="endless")
    tasks.start(fail(), name="failing")
    await tasks.failed.wait()
    assert isinstance(tasks.error, LookupError)
    await tasks.close()
    assert endless.cancelled()


async def test_closing_ends_what_begins_because_of_it() -> None:
    tasks, begun, later = TaskSet(), asyncio.Event(), []

    async def leave_work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            later.append(tasks.start(asyncio.Event().wait(), name="later"))

    tasks.start(leave_work(), name="first")
    await begun.wait()
    await tasks.close()
    assert [task.cancelled() for task in later] == [True]


def test_an_unknown_log_level_is_named() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        logs.set_up(level="loud")


KNOWN = {"Quick": True, "Careful": False}


def test_gates_are_read_as_the_command_line_has_them() -> None:
    assert features.parse("", KNOWN) == {}
    assert features.parse("Quick=false, Careful=T,", KNOWN) == {"Quick": False, "Careful": True}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Nonsense=true", "unrecognized feature gate: Nonsense; there are Careful, Quick"),
        ("Quick", "missing bool value for feature gate Quick"),
        ("Quick=2", "invalid value of feature gate Quick=2"),
    ],
)
def test_wrong_gates_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        features.parse(text, KNOWN)


def test_a_gate_may_have_two_names() -> None:
    aliases = {"Hasty": "Quick"}
    assert features.parse("Hasty=false", KNOWN, aliases) == {"Quick": False}
    assert features.parse("Quick=false,Hasty=false", KNOWN, aliases) == {"Quick": False}


@pytest.mark.parametrize("text", ["Quick=true,Hasty=false", "Hasty=false,Quick=true"])
def test_two_names_of_a_gate_must_agree(text: str) -> None:
    with pytest.raises(ValueError, match="are two names of one feature gate"):
        features.parse(text, KNOWN, {"Hasty": "Quick"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2160h", timedelta(days=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("0", timedelta(0)),
        ("-5m", timedelta(minutes=-5)),
        ("+90s", timedelta(seconds=90)),
        (".5s", timedelta(milliseconds=500)),
        ("300ms", timedelta(milliseconds=300)),
        ("2µs", timedelta(microseconds=2)),
        ("1500ns", timedelta(microseconds=1)),
    ],
)
def test_go_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "h", "1", "1d", "1h 30m", "P90D", "1h-5m", "٣h", "--1h", "99999999h", "1h" * 200]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(days=90), "2160h0m0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(0), "0s"),
        (timedelta(milliseconds=20), "20ms"),
        (timedelta(microseconds=7), "7µs"),
        (timedelta(hours=-1), "-1h0m0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(value: timedelta, text: str) -> None:
    assert format_duration(value) == text


@given(st.timedeltas(min_value=timedelta(days=-90_000), max_value=timedelta(days=90_000)))
def test_what_is_written_is_read_back(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


async def test_a_connection_that_asyncio_could_not_make_is_told_with_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host, port = unused.getsockname()
        with pytest.raises(ConnectionRefusedError) as caught:
            await asyncio.open_connection(host, port)
    assert in_words(caught.value) == f"Connection refused at 127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.EHOSTUNREACH, "Connect call failed ('::1', 80, 0, 0)"),
            "No route to host at [::1]:80",
        ),
        (OSError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError(None, "the name server answered SERVFAIL"), "the name server answered SERVFAIL"),
        (OSError("several things"), "several things"),
    ],
)
def test_an_error_of_the_system_is_told_in_its_words(error: OSError, words: str) -> None:
    assert in_words(error) == words


FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
           |-- 169.254.1.1
              /32 host LOCAL
Local:
           |-- 192.0.2.2
              /32 host LOCAL
"""
IF_INET6 = """fe8000000000000000fc00fffe000001 04 40 20 80     eth0
20010db8000000000000000000000002 04 40 00 80     eth0
20010db800000000abcd000000000003 04 40 00 01     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""


def test_addresses_that_others_can_use_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {tls_identity._IPV4: FIB_TRIE, tls_identity._IPV6: IF_INET6}
    monkeypatch.setattr(tls_identity, "_text", texts.get)
    assert tls_identity.own_addresses() == ("192.0.2.2", "2001:db8::2")


def test_this_machine_can_listen_on_each_of_its_addresses() -> None:
    for address in tls_identity.own_addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((address, 0))


async def test_a_task_that_has_just_ended_does_not_keep_it_from_closing() -> None:
    tasks = TaskSet()
    tasks.start(nothing(), name="brief")
    # The task has ended by then, and the loop has not called its callback yet.
    await asyncio.sleep(0)
    await tasks.close()


async def nothing() -> None:
    """End in the first step."""


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example,192.0.2.7")


@pytest.mark.usefixtures("proxies")
@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://acme.example/dir", "http://proxy.example:3128"),
        ("https://acme.example:14000", "http://proxy.example:3128"),
        ("http://acme.example/dir", ""),
        ("https://ca.inside.example/dir", ""),
        ("https://192.0.2.7:8443", ""),
        ("https://localhost:14000/dir", ""),
        ("https://127.0.0.1:14000/dir", ""),
        ("https://[::1]:14000/dir", ""),
    ],
)
def test_a_proxy_is_taken_for_servers_elsewhere(url: str, proxy: str) -> None:
    assert proxy_for(url) == proxy


@pytest.mark.usefixtures("proxies")
def test_without_variables_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    assert proxy_for("https://acme.example/dir") == ""
