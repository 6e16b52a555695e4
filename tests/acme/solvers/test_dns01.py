"""DNS-01: against a real BIND, and by webhooks and programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import pytest

from certwright.acme.solvers import names
from certwright.acme.solvers.addresses import parse_server
from certwright.acme.solvers.checks import DnsCheck
from certwright.acme.solvers.contract import NotYet, Ready, SolverError, Task
from certwright.acme.solvers.dns01.rfc2136 import ALGORITHMS, Rfc2136, tsig_key
from certwright.acme.solvers.dns01.webhook import Webhook
from certwright.acme.solvers.names import LookupFailed, NameServers
from certwright.acme.solvers.program import Program
from certwright.kube.util.clock import SystemClock
from conformance.check_solver import check_solver
from support.bind import Bind, running_bind

TASK = Task(type="dns-01", identifier="a.example.org", token="t", key="value", uid="u")
ALIAS = replace(TASK, identifier="alias.example.org")
RECORDS = """\
_acme-challenge.alias CNAME _acme-challenge.there.delegated.test.
_acme-challenge.loop CNAME _acme-challenge.pool
_acme-challenge.pool CNAME _acme-challenge.loop
dead NS ns.dead
ns.dead A 127.0.0.2
"""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than name servers are given."""
    monkeypatch.setattr(names, "_TIMEOUT_S", 60.0)


@pytest.fixture(scope="module")
def bind() -> Iterator[Bind]:
    with running_bind(["example.org", "delegated.test"], records={"example.org": RECORDS}) as running:
        yield running


def names_of(bind: Bind) -> NameServers:
    return NameServers([bind.address], authority_port=bind.port)


def solver_of(bind: Bind, algorithm: str = "HMACSHA256", **options: bool) -> Rfc2136:
    key = tsig_key(algorithm.lower(), bind.secrets[algorithm.lower()], algorithm)
    return Rfc2136(("127.0.0.1", bind.port), names_of(bind), key=key, **options)


async def values_at(bind: Bind, task: Task) -> set[str]:
    asking = names_of(bind)
    return set((await asking.txt(await asking.alias_of(f"_acme-challenge.{task.identifier}"))).values)


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_updates_are_a_solver_with_every_algorithm(bind: Bind, algorithm: str, tcp: bool) -> None:
    await check_solver(solver_of(bind, algorithm, tcp=tcp), lambda task: values_at(bind, task), TASK)


async def test_an_alias_is_followed_where_that_is_wanted(bind: Bind) -> None:
    follows = solver_of(bind, follow=True)
    await check_solver(follows, lambda task: values_at(bind, task), ALIAS)
    await follows.present(ALIAS)
    assert (await names_of(bind).txt("_acme-challenge.there.delegated.test")).values == ("value",)
    assert await DnsCheck(names_of(bind), SystemClock().now).check(ALIAS) == Ready()
    assert await DnsCheck(names_of(bind), SystemClock().now, recursive_only=True).check(ALIAS) == Ready()
    await follows.clean_up(ALIAS)
    with pytest.raises(SolverError, match="lead in a circle"):
        await follows.present(replace(TASK, identifier="loop.example.org"))


async def test_wildcard_and_apex_and_many_certificates_share_a_name(bind: Bind) -> None:
    solver = solver_of(bind)
    tasks = [replace(TASK, key=f"v{number}", uid=str(number)) for number in range(20)]
    await asyncio.gather(*(solver.present(task) for task in tasks))
    assert await values_at(bind, TASK) == {task.key for task in tasks}
    await asyncio.gather(*(solver.clean_up(task) for task in tasks[1:]))
    assert await values_at(bind, TASK) == {"v0"}
    await solver.clean_up(tasks[0])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (tsig_key("nobody", "QUJDRA==", "HMACSHA256"), "does not know the key"),
        (tsig_key("hmacsha256", "QUJDRA==", "HMACSHA256"), "the secret differs"),
        (None, "REFUSED .the server's update-policy"),
    ],
)
async def test_a_refusal_says_why(bind: Bind, key: dns.tsig.Key | None, words: str) -> None:
    with pytest.raises(SolverError, match=words):
        await Rfc2136(("127.0.0.1", bind.port), names_of(bind), key=key).present(TASK)


@pytest.mark.parametrize(
    "key",
    [("k", "no base64!", "HMACSHA256"), ("k", "QUJD", "HMACSHA3"), ("a..b", "QUJD", "HMACMD5")],
)
def test_a_key_without_sense_is_refused_at_once(key: tuple[str, str, str]) -> None:
    with pytest.raises(SolverError) as error:
        tsig_key(*key)
    assert key[1] not in str(error.value)


async def test_a_name_without_a_zone_and_a_server_that_is_gone_are_told(bind: Bind) -> None:
    gone = Rfc2136(("127.0.0.1", 1), names_of(bind), timeout_s=0.2)
    with pytest.raises(
        SolverError, match=r"127\.0\.0\.1:1 did not answer within 0.2 s .request: add the TXT"
    ):
        await gone.present(TASK)
    with pytest.raises(SolverError, match="SERVFAIL"):
        await solver_of(bind).present(replace(TASK, identifier="nowhere.test"))


async def test_the_check_asks_the_servers_of_the_zone(bind: Bind) -> None:
    check, solver = DnsCheck(names_of(bind), SystemClock().now), solver_of(bind)
    verdict = await check.check(TASK)
    assert isinstance(verdict, NotYet)
    assert "the name server ns1.example.org has no" in verdict.reason
    other = replace(TASK, key="other", uid="o")
    await solver.present(other)
    verdict = await check.check(TASK)
    assert isinstance(verdict, NotYet)
    assert 'only other TXT records at _acme-challenge.a.example.org: "other"' in verdict.reason
    await solver.present(TASK)
    assert await check.check(TASK) == Ready()
    await solver.clean_up(TASK)
    await solver.clean_up(other)


async def test_the_check_tells_of_zones_that_cannot_be_asked(
    bind: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(names, "_TIMEOUT_S", 0.5)
        verdict = await DnsCheck(NameServers(["127.0.0.1:1"]), SystemClock().now).check(TASK)
    assert isinstance(verdict, NotYet)
    assert "the name server 127.0.0.1:1 did not answer within 0.5 s" in verdict.reason
    loop = replace(TASK, identifier="loop.example.org")
    verdict = await DnsCheck(names_of(bind), SystemClock().now).check(loop)
    assert isinstance(verdict, NotYet)
    assert "circle" in verdict.reason


class _Cache(asyncio.DatagramProtocol):
    """A recursive server that has remembered that there is no such record, and loses the first `lost`
    questions."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost
        self.asked = 0
        self.numbers: set[int] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.asked += 1
        if self.asked <= self.lost:
            return
        question = dns.message.from_wire(data)
        self.numbers.add(question.id)
        reply = dns.message.make_response(question)
        reply.set_rcode(dns.rcode.NXDOMAIN)
        soa = "ns.example.org. a.example.org. 1 2 3 4 30"
        reply.authority.append(dns.rrset.from_text("example.org.", 90, "IN", "SOA", soa))
        self.transport.sendto(reply.to_wire(), address)


@asynccontextmanager
async def running(cache: _Cache) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: cache, local_addr=("127.0.0.1", 0))
    try:
        yield f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    finally:
        transport.close()


async def test_what_a_cache_remembers_is_not_asked_for_again_before_it_forgets() -> None:
    async with running(_Cache()) as cache:
        verdict = await DnsCheck(NameServers([cache]), SystemClock().now, recursive_only=True).check(TASK)
    assert isinstance(verdict, NotYet)
    assert verdict.not_before.total_seconds() == 30


async def test_one_question_tells_the_zone_and_it_is_remembered() -> None:
    server = _Cache()
    async with running(server) as cache:
        asking = NameServers([cache])
        zones = await asyncio.gather(*(asking.zone_of("a.b.c.d.example.org") for _ in range(5)))
        assert {*zones, await asking.zone_of("A.b.c.d.example.org.")} == {"example.org"}
        assert len(server.numbers) == 1
        with pytest.raises(LookupFailed, match="no zone was found"):
            await asking.zone_of("example.net")


async def test_a_question_that_was_lost_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is sent again after a tenth of the time, and once more after three.
    monkeypatch.setattr(names, "_TIMEOUT_S", 4.0)
    server = _Cache(lost=2)
    async with running(server) as cache:
        assert await NameServers([cache]).zone_of("a.example.org") == "example.org"
    assert server.asked == 3


async def test_the_zone_of_an_alias_is_not_where_it_leads() -> None:
    records = {"inner.example.org": "_acme-challenge.web CNAME proof.example.org."}
    with running_bind(["example.org", "inner.example.org"], records=records) as bind:
        asking = NameServers([bind.address], authority_port=bind.port)
        assert await asking.zone_of("_acme-challenge.web.inner.example.org") == "inner.example.org"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)),
        ("192.0.2.1:5353", ("192.0.2.1", 5353)),
        ("ns.example.org:53", ("ns.example.org", 53)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]:54", ("2001:db8::1", 54)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
    ],
)
def test_name_servers_are_written_in_these_ways(text: str, parsed: tuple[str, int]) -> None:
    assert parse_server(text) == parsed


@pytest.mark.parametrize("text", ["", ":53", "a:0", "a:65536", "a:b", "a:", "[::1]:x"])
def test_a_name_server_written_wrongly_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a name server; write it as"):
        parse_server(text)


async def test_a_webhook_is_asked_in_cert_managers_words(bind: Bind) -> None:
    """The webhook is a function here: a real one needs a DNS provider."""
    asked: list[Mapping[str, Any]] = []

    async def call(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(payload)
        return {"response": {"uid": payload["request"]["uid"], "success": True}}

    solver = Webhook(call, names_of(bind), namespace="ns", config={"zone": "x"}, follow=True)
    await solver.present(ALIAS)
    await solver.clean_up(ALIAS)
    assert asked[0] == {
        "apiVersion": "webhook.acme.cert-manager.io/v1alpha1",
        "kind": "ChallengePayload",
        "request": {
            "uid": "u",
            "action": "Present",
            "type": "dns-01",
            "dnsName": "alias.example.org",
            "key": "value",
            "resourceNamespace": "ns",
            "resolvedFQDN": "_acme-challenge.there.delegated.test.",
            "resolvedZone": "delegated.test.",
            "allowAmbientCredentials": False,
            "config": {"zone": "x"},
        },
    }
    assert asked[1]["request"]["action"] == "CleanUp"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "it gives no reason"),
        ({"response": {"success": False, "status": {"message": "no such zone"}}}, "no such zone"),
        ({"response": {"success": "yes"}}, "it gives no reason"),
        ({"response": []}, "it gives no reason"),
    ],
)
async def test_a_webhooks_refusal_is_told(bind: Bind, answer: Mapping[str, Any], words: str) -> None:
    async def call(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer

    with pytest.raises(SolverError, match=words):
        await Webhook(call, names_of(bind), namespace="ns").present(TASK)


SCRIPT = """\
import os, pathlib, sys
page = pathlib.Path(sys.argv[1]) / f"{os.environ['ACME_UID']}"
if sys.argv[2] == "present":
    page.write_text(f"{os.environ['ACME_RECORD']} {os.environ['ACME_VALUE']} {os.environ['ACME_WILDCARD']}")
else:
    page.unlink(missing_ok=True)
"""


async def test_a_program_is_a_solver(tmp_path: Path) -> None:
    script = tmp_path / "solver.py"
    script.write_text(SCRIPT)
    shown = tmp_path / "shown"
    shown.mkdir()

    async def see(task: Task) -> set[str]:
        pages = [page.read_text().split() for page in shown.iterdir()]
        return {value for record, value, _ in pages if record == f"_acme-challenge.{task.identifier}"}

    await check_solver(Program([sys.executable, str(script), str(shown)]), see, TASK)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program"], "cannot be run: No such file"),
        (["/bin/true\0"], "cannot be run: embedded null byte"),
        (
            [sys.executable, "-c", "import sys; sys.exit('the zone is locked')"],
            "status 1: the zone is locked",
        ),
        ([sys.executable, "-c", "raise SystemExit(3)"], "status 3: it printed nothing"),
    ],
)
async def test_what_goes_wrong_with_a_program_is_told(command: list[str], words: str) -> None:
    with pytest.raises(SolverError, match=words):
        await Program(command).present(TASK)


async def test_a_program_that_does_not_end_is_killed_and_told() -> None:
    program = Program(["sh", "-c", "sleep 600"], timeout_s=0.1)
    with pytest.raises(SolverError, match=r"did not end within 0\.1 s and was killed"):
        await program.present(TASK)
