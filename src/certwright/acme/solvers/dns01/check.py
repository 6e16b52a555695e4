"""Self-check of DNS-01: queries every server of the record's zone, or only recursive servers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from certwright.acme.protocol.challenges import dns_name
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import Answer, LookupFailed, NameServers
from certwright.kit.outgoing import quote

# The maximum wait for a cache, whatever the zone's TTL.
_LONGEST_MEMORY = timedelta(minutes=5)


class DnsCheck:
    """`recursive_only` queries recursive servers alone (`--dns01-recursive-nameservers-only`); otherwise each
    authoritative server of the record's zone (after aliases) must have the record, because a CA may query
    any of them."""

    def __init__(self, names: NameServers, *, recursive_only: bool = False) -> None:
        self._names = names
        self._recursive_only = recursive_only

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        name = dns_name(task.identifier)
        try:
            if self._recursive_only:
                return await self._ask_recursive(name, task.key)
            return await self._ask_authorities(name, task.key)
        except LookupFailed as error:
            return NotYet(f"the TXT record {name} cannot be looked up: {error}")

    async def _ask_recursive(self, name: str, value: str) -> Ready | NotYet:
        answer = await self._names.txt(name)
        if value in answer.values:
            return Ready()
        # "SOA negative TTL": a cache repeats a negative response until then.
        remembered = min(answer.negative_for, _LONGEST_MEMORY)
        return NotYet(f"the recursive name server {_seen(answer, name)}", remembered)

    async def _ask_authorities(self, name: str, value: str) -> Ready | NotYet:
        end = await self._names.alias_of(name)
        zone = await self._names.authorities(end)
        found = await asyncio.gather(
            *(self._ask_server(host, addresses, end, value) for host, addresses in zone.servers)
        )
        missing = [reason for reason in found if reason]
        return NotYet("; ".join(missing)) if missing else Ready()

    async def _ask_server(self, host: str, addresses: tuple[str, ...], name: str, value: str) -> str:
        """Why that server lacks the record; empty if it has it. One of its addresses is enough."""
        reason = ""
        for address in addresses:
            try:
                answer = await self._names.ask_authority(address, name)
            except LookupFailed as error:
                reason = reason or str(error)
                continue
            return "" if value in answer.values else f"the name server {host} {_seen(answer, name)}"
        return reason


def _seen(answer: Answer, name: str) -> str:
    if not answer.exists:
        return f"has no {name} yet"
    if not answer.values:
        return f"has no TXT record at {name} yet"
    others = ", ".join(f'"{quote(value, 60)}"' for value in answer.values[:3])
    return f"has only other TXT records at {name}: {others}"
