"""DNS lookups: by recursive name servers, and by the authoritative servers of a zone.

Messages are dnspython's, sent with `datagrams`, or with `doh` to servers of DNS over HTTPS.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeVar

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import msgspec

from certwright.acme.solvers.addresses import DNS_PORT, check_recursive_server, is_over_https, parse_server
from certwright.acme.solvers.caa import Record
from certwright.acme.solvers.contract import NotYet, Ready, SolverError, Task
from certwright.acme.solvers.datagrams import exchange
from certwright.acme.solvers.doh import DohFailed, DohServer
from certwright.kube.util.caches import Recent
from certwright.kube.util.encoding import in_brackets

T = TypeVar("T")
_TIMEOUT_S = 5.0
# Zones and their servers rarely change, and many certificates of one zone arrive together.
_REMEMBERED_S = 30.0
_MOST_ALIASES = 16


class LookupFailed(Exception):
    """A query failed; the text names the query, the server and the failure."""


class Answer(msgspec.Struct, frozen=True):
    """The values of one name and type. `exists` distinguishes an empty answer from a missing name;
    `negative_for` is how long a negative answer may be cached (RFC 2308 §5)."""

    values: tuple[str, ...]
    exists: bool = True
    negative_for: timedelta = timedelta(0)


class Zone(msgspec.Struct, frozen=True):
    """A zone, and the addresses of its servers by their names."""

    name: str
    servers: tuple[tuple[str, tuple[str, ...]], ...]


class PlainServer(NamedTuple):
    """A name server of DNS over UDP and TCP."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def exchange(self, message: dns.message.Message, timeout_s: float) -> dns.message.Message:
        try:
            address = str(ipaddress.ip_address(self.host))
        except ValueError:
            resolved = await asyncio.get_running_loop().getaddrinfo(self.host, None)
            address = str(resolved[0][4][0])
        return await exchange(message, address, self.port, timeout_s)


class Unreached(NotYet, frozen=True):
    """Nothing answers at the address: a CA then takes the other family."""


async def at_both_families(
    names: NameServers | None, host: str, check: Callable[[str], Awaitable[Ready | NotYet]]
) -> Ready | NotYet:
    """Run a self-check at an address of each family that a host has: CAs prefer IPv6 (Let's Encrypt) or
    IPv4, and take the other family only if they cannot connect. `names` None uses the operating system.

    Ready if all addresses that answer show the proof. Raises `LookupFailed`, `OSError`.
    """
    if names is not None:
        addresses: Sequence[str] = await names.addresses(host)
    else:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = [str(address[0]) for *_, address in infos]
    first = {":" in address: address for address in reversed(addresses)}
    verdicts = await asyncio.gather(*map(check, first.values()))
    pairs = zip(first.values(), verdicts, strict=True)
    answers = [pair for pair in pairs if not isinstance(pair[1], Unreached)]
    for address, verdict in answers:
        if isinstance(verdict, NotYet) and len(first) > 1:
            return NotYet(f"{verdict.reason} (at {in_brackets(address)})", verdict.not_before)
    return answers[0][1] if answers else verdicts[0]


class NameServers:
    """Recursive name servers: `host:port`, `host` or `[v6]:port`, with `over_https` also https URLs; none
    means the system's. Caches for half a minute the zone of a name and the zone's servers.

    Raises `ValueError` with a sentence for a malformed server.
    """

    def __init__(
        self, servers: Sequence[str] = (), *, authority_port: int = DNS_PORT, over_https: bool = False
    ) -> None:
        self._servers: tuple[PlainServer | DohServer, ...] = tuple(
            _doh_server(text) if over_https and is_over_https(text) else PlainServer(*parse_server(text))
            for text in servers
        )
        self._authority_port = authority_port
        self._zones: Recent[str, str] = Recent(_REMEMBERED_S)
        self._authorities: Recent[str, Zone] = Recent(_REMEMBERED_S)

    async def txt(self, name: str) -> Answer:
        """The TXT values of a name as a recursive server returns them, aliases followed."""
        return await self._recursively(name, dns.rdatatype.TXT)

    async def caa(self, name: str) -> tuple[Record, ...]:
        """The CAA records of a name as a recursive server returns them, aliases followed. Raises
        `LookupFailed`."""
        answer = await self._recursively(name, dns.rdatatype.CAA)
        parts = (value.split(" ", 2) for value in answer.values)
        return tuple(Record(int(flags), tag, value) for flags, tag, value in parts)

    async def addresses(self, name: str) -> tuple[str, ...]:
        """The addresses of a host. Raises `LookupFailed` if it has none."""
        try:
            return (str(ipaddress.ip_address(name)),)
        except ValueError:
            pass
        kinds = (dns.rdatatype.A, dns.rdatatype.AAAA)
        answers = await asyncio.gather(*(self._recursively(name, kind) for kind in kinds))
        values = tuple(value for answer in answers for value in answer.values)
        if not values:
            raise LookupFailed(f"{name} has no address")
        return values

    async def alias_of(self, name: str) -> str:
        """The end of the chain of CNAME records that begins at `name`; `name` itself without one.

        Raises `LookupFailed` for an endless chain.
        """
        seen = [name]
        while True:
            answer = await self._recursively(seen[-1], dns.rdatatype.CNAME)
            if not answer.values:
                return seen[-1]
            target = answer.values[0].rstrip(".")
            if target.lower() in (alias.lower() for alias in seen) or len(seen) > _MOST_ALIASES:
                raise LookupFailed(f"the CNAME records of {name} lead in a circle: {' → '.join(seen)}")
            seen.append(target)

    async def zone_of(self, name: str) -> str:
        """The zone of a name: the nearest name above it, or itself, that has an SOA record."""
        plain = name.rstrip(".")
        return await self._zones.get(plain.lower(), lambda: self._find_zone(plain))

    async def _find_zone(self, name: str) -> str:
        labels = name.split(".")
        for start in range(len(labels)):
            candidate = ".".join(labels[start:])
            answer = await self._raw(candidate, dns.rdatatype.SOA)
            if _of_type(answer.answer, dns.rdatatype.SOA, candidate):
                return candidate
            if zone := _negative_zone(answer, candidate):
                return zone
        raise LookupFailed(f"no zone was found that {name} lies in")

    async def authorities(self, name: str) -> Zone:
        """The zone of a name, and its servers."""
        zone = await self.zone_of(name)
        return await self._authorities.get(zone.lower(), lambda: self._find_authorities(zone))

    async def _find_authorities(self, zone: str) -> Zone:
        answer = await self._recursively(zone, dns.rdatatype.NS)
        hosts = sorted(value.rstrip(".") for value in answer.values)
        if not hosts:
            raise LookupFailed(f"the zone {zone} names no name servers")

        async def known_addresses(host: str) -> tuple[str, ...]:
            try:
                return await self.addresses(host)
            except LookupFailed:
                return ()

        resolved = await asyncio.gather(*map(known_addresses, hosts))
        servers = tuple(
            (host, addresses) for host, addresses in zip(hosts, resolved, strict=True) if addresses
        )
        if not servers:
            raise LookupFailed(f"none of the name servers of {zone} has an address: {', '.join(hosts)}")
        return Zone(zone, servers)

    async def query_authority(self, server: str, name: str) -> Answer:
        """The TXT values at the authoritative server with this address. Aliases that leave its zones are not
        followed."""
        question = dns.message.make_query(dns.name.from_text(name), dns.rdatatype.TXT)
        question.flags &= ~dns.flags.RD
        reply = await _query(question, PlainServer(server, self._authority_port))
        return _answer(reply, name, dns.rdatatype.TXT, server)

    async def _recursively(self, name: str, kind: dns.rdatatype.RdataType) -> Answer:
        reply = await self._raw(name, kind)
        return _answer(reply, name, kind, "the recursive name server")

    async def _raw(self, name: str, kind: dns.rdatatype.RdataType) -> dns.message.Message:
        try:
            question = dns.message.make_query(dns.name.from_text(name), kind)
        except dns.exception.DNSException as error:
            raise LookupFailed(f"{name} is not a name that can be queried: {error}") from error
        failures = []
        for server in self._servers or _system_servers():
            try:
                return await _query(question, server)
            except LookupFailed as error:
                failures.append(str(error))
        raise LookupFailed("; ".join(failures) or "no name server is configured")


def _doh_server(text: str) -> DohServer:
    check_recursive_server(text)
    return DohServer(text)


def _system_servers() -> tuple[PlainServer, ...]:
    try:
        resolver = dns.asyncresolver.get_default_resolver()
    except dns.exception.DNSException as error:
        raise LookupFailed(f"this machine names no name servers: {error}") from error
    return tuple(PlainServer(str(server), resolver.port) for server in resolver.nameservers)


async def _query(question: dns.message.Message, server: PlainServer | DohServer) -> dns.message.Message:
    try:
        reply = await server.exchange(question, _TIMEOUT_S)
    except (TimeoutError, dns.exception.Timeout):
        raise LookupFailed(f"the name server {server} did not answer within {_TIMEOUT_S:g} s") from None
    except (dns.exception.DNSException, DohFailed, OSError, EOFError) as error:
        raise LookupFailed(f"the name server {server} cannot be queried: {error}") from error
    if reply.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        asked = question.question[0]
        raise LookupFailed(
            f"the name server {server} answered {dns.rcode.to_text(reply.rcode())} for "
            f"{asked.name.to_text(omit_final_dot=True)}"
        )
    return reply


def _answer(reply: dns.message.Message, name: str, kind: dns.rdatatype.RdataType, server: str) -> Answer:
    target = name.rstrip(".").lower()
    if kind is not dns.rdatatype.CNAME:
        target = _end_of_aliases(reply, target, server)
    values = _of_type(reply.answer, kind, target)
    if values:
        return Answer(tuple(values))
    return Answer((), reply.rcode() == dns.rcode.NOERROR, _negative_ttl(reply))


def _end_of_aliases(reply: dns.message.Message, name: str, server: str) -> str:
    for _ in range(_MOST_ALIASES):
        aliases = _of_type(reply.answer, dns.rdatatype.CNAME, name)
        if not aliases:
            return name
        name = aliases[0].rstrip(".").lower()
    raise LookupFailed(f"{server} answered with CNAME records that lead in a circle at {name}")


def _of_type(sections: Iterable[dns.rrset.RRset], kind: dns.rdatatype.RdataType, name: str) -> list[str]:
    values = []
    for rrset in sections:
        if rrset.rdtype != kind or rrset.name.to_text(omit_final_dot=True).lower() != name.lower():
            continue
        for item in rrset:
            if kind == dns.rdatatype.TXT:
                # A long value arrives in strings of 255 bytes, to be concatenated.
                values.append(b"".join(item.strings).decode(errors="replace"))
            elif kind == dns.rdatatype.CAA:
                # Its text form quotes and escapes the value.
                tag, value = (part.decode(errors="replace") for part in (item.tag, item.value))
                values.append(f"{item.flags} {tag} {value}")
            else:
                values.append(item.to_text())
    return values


def _negative_zone(reply: dns.message.Message, name: str) -> str:
    """The zone that a negative answer names (RFC 2308 §2); empty if it names none, or names the zone of an
    alias's target."""
    if reply.answer:
        return ""
    for rrset in reply.authority:
        zone = rrset.name.to_text(omit_final_dot=True)
        if rrset.rdtype == dns.rdatatype.SOA and f".{name}".lower().endswith(f".{zone}".lower()):
            return zone
    return ""


def _negative_ttl(reply: dns.message.Message) -> timedelta:
    for rrset in reply.authority:
        if rrset.rdtype == dns.rdatatype.SOA:
            # RFC 2308 §5: the lesser of the record's TTL and the SOA's minimum.
            return timedelta(seconds=min(rrset.ttl, rrset[0].minimum))
    return timedelta(0)


async def resolved_record(task: Task, names: NameServers, *, follow: bool) -> str:
    """The name of the task's record; with `follow` the end of its chain of CNAME records, so that a zone can
    be delegated. Raises `SolverError`."""
    if not follow:
        return task.record
    try:
        return await names.alias_of(task.record)
    except LookupFailed as error:
        raise SolverError(f"the CNAME record of {task.record} cannot be followed: {error}") from error


async def zone_of(name: str, names: NameServers) -> str:
    """The zone of a name. Raises `SolverError`."""
    try:
        return await names.zone_of(name)
    except LookupFailed as error:
        raise SolverError(f"the zone of {name} cannot be found: {error}") from error
