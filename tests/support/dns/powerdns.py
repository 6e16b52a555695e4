"""PowerDNS Authoritative Server on loopback, with its HTTP API and dynamic updates signed with TSIG."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import dns.message
import dns.query
import dns.rdatatype

from support.programs import free_port
from support.questions import running_with_zones
from support.real import missing, require

KEY = "powerdns-api-key"
TSIG_SECRET = "NTgwODMzMzU0MTZhYmE0NTk0MzI3NDk2NzY2Zjk1YTA="
_SCHEMA = Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql")


@dataclass(frozen=True, slots=True)
class PowerDnsServer:
    """A PowerDNS that is running."""

    port: int
    api_port: int

    @property
    def url(self) -> str:
        """The URL of the HTTP API."""
        return f"http://127.0.0.1:{self.api_port}"

    async def add_record(self, zone: str, name: str, kind: str, content: str) -> None:
        """Create a record set of one record by the API; `content` as in a zone file."""
        records = [{"content": content, "disabled": False}]
        change = {"name": f"{name}.", "type": kind, "ttl": 1, "changetype": "REPLACE", "records": records}
        url = f"{self.url}/api/v1/servers/localhost/zones/{zone}."
        body = {"rrsets": [change]}
        async with aiohttp.request("PATCH", url, json=body, headers={"x-api-key": KEY}) as answer:
            answer.raise_for_status()

    async def names(self, zone: str) -> set[str]:
        """The names with TXT records in a zone."""
        url = f"{self.url}/api/v1/servers/localhost/zones/{zone}."
        async with aiohttp.request("GET", url, headers={"x-api-key": KEY}) as answer:
            rrsets = (await answer.json())["rrsets"]
        return {rrset["name"].rstrip(".") for rrset in rrsets if rrset["type"] == "TXT"}

    async def create_zone(self, zone: str) -> None:
        """Create a zone by the API."""
        body = {
            "name": f"{zone}.",
            "kind": "Native",
            "nameservers": [f"ns1.{zone}."],
            "rrsets": [
                {"name": f"ns1.{zone}.", "type": "A", "ttl": 60, "records": [{"content": "127.0.0.1"}]}
            ],
        }
        url = f"{self.url}/api/v1/servers/localhost/zones"
        headers = {"x-api-key": KEY}
        async with aiohttp.request("POST", url, json=body, headers=headers) as answer:
            answer.raise_for_status()

    @property
    def address(self) -> str:
        """Host and port of the name server."""
        return f"127.0.0.1:{self.port}"


def _program(name: str) -> str:
    path = require(name, debian="pdns-server")
    if not _SCHEMA.exists():
        missing(f"{_SCHEMA} does not exist (Debian: pdns-backend-sqlite3)")
    return path


@contextlib.contextmanager
def running_powerdns(zones: Sequence[str] = ("example.org",)) -> Iterator[PowerDnsServer]:
    """A PowerDNS with these zones; the TSIG key `certwright` (hmac-sha256) may update them."""
    program, util = _program("pdns_server"), _program("pdnsutil")
    with tempfile.TemporaryDirectory(prefix="pdns-") as name:
        folder = Path(name)
        database = folder / "pdns.sqlite3"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.executescript(_SCHEMA.read_text())
        port, api_port = free_port(), free_port()
        settings = {
            "launch": "gsqlite3",
            "gsqlite3-database": database,
            "local-address": "127.0.0.1",
            "local-port": port,
            "webserver": "yes",
            "webserver-address": "127.0.0.1",
            "webserver-port": api_port,
            "api": "yes",
            "api-key": KEY,
            "dnsupdate": "yes",
            "allow-dnsupdate-from": "127.0.0.0/8",
            "socket-dir": folder,
            "cache-ttl": 0,
            "query-cache-ttl": 0,
            "negquery-cache-ttl": 0,
            "zone-cache-refresh-interval": 0,
        }
        (folder / "pdns.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

        def run(*words: str) -> None:
            subprocess.run([util, f"--config-dir={folder}", *words], check=True, capture_output=True)

        run("import-tsig-key", "certwright", "hmac-sha256", TSIG_SECRET)
        for zone in zones:
            run("create-zone", zone, f"ns1.{zone}")
            run("add-record", zone, "ns1", "A", "127.0.0.1")
            run("set-meta", zone, "TSIG-ALLOW-DNSUPDATE", "certwright")
        command = [program, f"--config-dir={folder}", "--daemon=no", "--guardian=no"]
        with running_with_zones(command, folder / "log", port, zones):
            yield PowerDnsServer(port, api_port)


def served(server: PowerDnsServer, name: str) -> set[str]:
    """The TXT values that the name server answers with."""
    question = dns.message.make_query(name, "TXT")
    reply = dns.query.tcp(question, "127.0.0.1", 10, server.port)
    rrsets = [rrset for rrset in reply.answer if rrset.rdtype == dns.rdatatype.TXT]
    return {b"".join(item.strings).decode() for rrset in rrsets for item in rrset}


async def set_records(
    server: PowerDnsServer, name: str, values: Sequence[str], *, disabled: bool = False
) -> None:
    """What another client writes, in the zone example.org."""
    records = [{"content": f'"{value}"', "disabled": disabled} for value in values]
    change = {"name": f"{name}.", "type": "TXT", "ttl": 60, "changetype": "REPLACE", "records": records}
    url = f"{server.url}/api/v1/servers/localhost/zones/example.org."
    async with aiohttp.ClientSession(raise_for_status=True) as client:
        await client.patch(url, json={"rrsets": [change]}, headers={"X-API-Key": KEY})
