"""Plug-ins: the documented example against a real PowerDNS, and plug-ins with every fault."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time as real_time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child.messages import Provider, Request
from certwright.acme.solvers.dns01.hosts.contract import (
    DEFAULT_PAUSE,
    Children,
    Edit,
    HostedZone,
    Outside,
    Throttled,
)
from certwright.acme.solvers.dns01.hosts.in_child import ChildHost, settings_of
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.app.options import plugin_problem
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host, solver_of, task
from support.dns.outside import START
from support.dns.plugins import EXAMPLE, install, write_plugins
from support.dns.powerdns import KEY, PowerDnsServer, running_powerdns, served, set_records

GOOD = """
    class Plugin:
        def __init__(self, *, config, secrets): pass
        def has_zone(self, name): return name == "example.org"
        def add(self, zone, name, value): print("added")
        def remove(self, zone, name, value): pass
"""
BLOCK = "__import__('time').sleep(600)"
SECRET = "a-secret-value"
EDIT = Edit(f"_acme-challenge.a.{ZONE}", "v", True)


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns([ZONE]) as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder, EXAMPLE)
    return folder


def host_of(name: str, outside: Outside, *, timeout_s: float = 60.0, config: object = None) -> ChildHost:
    provider = Provider(kind="plugin", name=name, config=config, secrets={"apiKey": SECRET.encode()})
    return settings_of(provider, [SECRET[:6], SECRET]).connect(
        replace(outside, children=Children(timeout_s=timeout_s))
    )


async def reason_of(host: ChildHost) -> str:
    """The error of a change."""
    with pytest.raises(SolverError) as caught:
        await host.apply(HostedZone(ZONE, ZONE), [EDIT])
    return str(caught.value)


async def test_the_example_behaves_as_a_dns_host(
    server: PowerDnsServer, site: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("DNS01_PLUGIN_PDNS_URL", server.url)
    await set_records(server, f"_acme-challenge.{SHARED}", [OF_OTHERS])
    assert plugin_problem(("pdns-example",)) == ""
    provider = Provider(
        kind="plugin", name="pdns-example", config={"ttl": "60"}, secrets={"apiKey": KEY.encode()}
    )

    async def see(name: str) -> set[str]:
        return served(server, name)

    # PowerDNS has no change of a single value: only one process may edit a name at a time.
    session = HostSession(settings_of(provider, [KEY]).connect(outside), outside.now)
    await check_dns_host(lambda: session, see)


async def test_faults_are_sentences_of_the_plugin_that_has_them(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def method(body: str) -> str:
        return GOOD.replace('print("added")', body)

    write_plugins(
        tmp_path,
        good=GOOD,
        raises=method("raise KeyError(name)"),
        exits=method("raise SystemExit(0)"),
        dies=method("__import__('os')._exit(3)"),
        leaks=GOOD.replace("pass\n", "self.key = secrets['apiKey'].decode()\n", 1).replace(
            'print("added")', "raise ValueError(self.key)"
        ),
        coroutine=GOOD.replace("def add", "async def add"),
        nonsense=GOOD.replace('return name == "example.org"', 'return "yes"'),
        lacks=GOOD.replace("def add", "def put"),
        import_error="import no_such_module",
        no_class="Plugin = 3",
    )
    monkeypatch.syspath_prepend(tmp_path)
    edit = f"cannot add the TXT record _acme-challenge.a.{ZONE}: "
    for name, reason in {
        "raises": f"plug-in raises {edit}KeyError: '_acme-challenge.a.{ZONE}' (raises.py, line 5)",
        "exits": f"plug-in exits {edit}SystemExit: 0 (exits.py, line 5)",
        "dies": f"plug-in dies {edit}its process ended with status 3 and without an answer",
        "leaks": f"plug-in leaks {edit}ValueError: … (leaks.py, line 5)",
        "coroutine": f"plug-in coroutine {edit}add returned an object of type coroutine instead of None",
        "lacks": f"plug-in lacks {edit}it has no method add",
        "import_error": f"plug-in import_error {edit}ModuleNotFoundError: No module named 'no_such_module'",
        "no_class": f"plug-in no_class {edit}TypeError: 'int' object is not callable",
        "missing": f"plug-in missing {edit}no installed package has the entry point missing",
    }.items():
        assert (await reason_of(host_of(name, outside))).startswith(reason)
    with pytest.raises(SolverError, match=r"has_zone returned an object of type str, neither True nor False"):
        await host_of("nonsense", outside).find_zone(ZONE)
    # What it prints is no answer.
    await host_of("good", outside).apply(HostedZone(ZONE, ZONE), [EDIT])
    assert "installed: coroutine, dies, " in plugin_problem(("missing",))


async def test_one_that_blocks_delays_no_other(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = GOOD.replace('print("added")', BLOCK)
    write_plugins(tmp_path, good=GOOD, blocks=blocks, slow=f"{GOOD}\n    {BLOCK}")
    monkeypatch.syspath_prepend(tmp_path)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    counter = asyncio.create_task(count())
    stuck = [
        asyncio.create_task(reason_of(host_of(name, outside, timeout_s=600)))
        for name in ("blocks", "blocks", "slow")
    ]
    begin = real_time.monotonic()
    await host_of("good", outside).apply(HostedZone(ZONE, ZONE), [EDIT])
    taken = real_time.monotonic() - begin
    counter.cancel()
    assert not any(call.done() for call in stuck)
    assert turns > taken / 0.01 / 10, "the event loop stood still"
    for pending_call in stuck:
        pending_call.cancel()
    assert {type(outcome) for outcome in await asyncio.gather(*stuck, return_exceptions=True)} == {
        asyncio.CancelledError
    }


async def test_one_that_blocks_is_killed_and_pauses_its_own_challenges(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugins(tmp_path, blocks=GOOD.replace('print("added")', BLOCK))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Throttled, match="did not end within 1 s and was killed") as caught:
        await host_of("blocks", outside, timeout_s=1).apply(HostedZone(ZONE, ZONE), [EDIT])
    assert caught.value.until == START + DEFAULT_PAUSE


async def test_more_calls_than_allowed_wait_and_then_fail(outside: Outside) -> None:
    children = Children(1, 0.1)
    host = settings_of(Provider(kind="plugin", name="any"), []).connect(replace(outside, children=children))
    async with children.slot("plug-in any"):
        assert "1 earlier calls have not ended within 0.1 s" in await reason_of(host)
    assert "no installed package has the entry point any" in await reason_of(
        settings_of(Provider(kind="plugin", name="any"), []).connect(outside)
    )


async def test_changes_that_are_too_slow_together_are_made_one_by_one(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "added"
    note = f"print(name, file=open({str(log)!r}, 'a'))"
    second = f"self.added = getattr(self, 'added', 0) + 1; self.added < 2 or {BLOCK}; {note}"
    write_plugins(tmp_path, slow=GOOD.replace('print("added")', second))
    monkeypatch.syspath_prepend(tmp_path)
    session = HostSession(host_of("slow", outside, timeout_s=5), outside.now)
    zone = await session.find_zone((ZONE,))
    edits = [Edit(f"n{number}.{ZONE}", "v", True) for number in range(2)]
    await asyncio.gather(*(session.edit((zone.name,), edit) for edit in edits))
    assert log.read_text().split() == [edits[0].name, *sorted(edit.name for edit in edits)]


async def test_a_pause_that_the_plugin_asks_for_is_kept(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "    class Busy(Exception):\n        retry_after = 90.0\n"
    raises = GOOD.replace('print("added")', "raise Busy('slow down')")
    write_plugins(tmp_path, busy=f"{raises}\n{error}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Throttled, match="slow down") as caught:
        await host_of("busy", outside).apply(HostedZone(ZONE, ZONE), [EDIT])
    assert caught.value.until == START + timedelta(seconds=90)


async def test_twenty_names_of_one_zone_take_five_processes(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    counts = "    import os\n    open(os.environ['DNS01_PLUGIN_LOG'], 'a').write('.')\n"
    write_plugins(tmp_path, counts=f"{GOOD}\n{counts}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DNS01_PLUGIN_LOG", str(log))
    session = HostSession(host_of("counts", outside), outside.now)
    tasks = [task(f"n{number}.{ZONE}", "v") for number in range(20)]
    await asyncio.gather(*(solver_of(session).present(dns_task) for dns_task in tasks))
    await asyncio.gather(*(solver_of(session).clean_up(dns_task) for dns_task in tasks))
    assert log.read_text() == "....."


async def test_it_sees_little_of_the_servers_environment(
    tmp_path: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows = "raise ValueError(sorted(__import__('os').environ))"
    write_plugins(tmp_path, shows=GOOD.replace('print("added")', shows))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CERTWRIGHT_KEY", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("DNS01_PLUGIN_URL", "https://dns.example")
    reason = await reason_of(host_of("shows", outside))
    assert "'DNS01_PLUGIN_URL'" in reason
    assert "CERTWRIGHT_KEY" not in reason
    assert "AWS_SECRET" not in reason


def test_a_child_whose_parent_was_killed_ends_itself(tmp_path: Path) -> None:
    write_plugins(
        tmp_path, blocks=GOOD.replace('return name == "example.org"', "__import__('time').sleep(600)")
    )
    provider = msgspec.Raw(msgspec.json.encode(Provider(kind="plugin", name="blocks")))
    request = Request(provider=provider, action="find_zone", zone=ZONE, seconds=1.0)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "certwright.acme.solvers.dns01.child"]
    ended = subprocess.run(
        command, input=msgspec.json.encode(request), env=environment, capture_output=True, timeout=60
    )
    assert ended.returncode != 0
    assert ended.stdout == b""


async def test_settings_that_are_too_long_are_refused(outside: Outside) -> None:
    host = host_of("any", outside, config="x" * 60_000)
    with pytest.raises(SolverError, match=r"have 60\d{3} bytes; at most 60000"):
        await host.verify()
