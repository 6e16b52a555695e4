"""Self-check of the DNS challenges: queries every server of the record's zone, or only recursive servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import Answer, LookupFailed, NameServers
from certwright.kit.outgoing import quote

# The maximum wait for a cache, whatever the zone's TTL.
_LONGEST_MEMORY = timedelta(minutes=5)


class DnsCheck:
    """`recursive_only` queries recursive servers alone (`--dns01-recursive-nameservers-only`); otherwise each
    authoritative server of the record's zone (after aliases) must have the record, because a CA may query
    any of them. `now` is for records that expire (dns-persist-01)."""

    def __init__(
        self,
        names: NameServers,
        now: Callable[[], datetime],
        *,
        recursive_only: bool = False,
    ) -> None:
        self._names = names
        self._recursive_only = recursive_only
        self._now = now

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        try:
            state = await (
                self._check_recursive(task) if self._recursive_only else self._check_authorities(task)
            )
        except LookupFailed as error:
            state = NotYet(f"the TXT record {task.record} cannot be looked up: {error}")
        if isinstance(state, NotYet) and task.persistent is not None:
            value = task.persistent.value(wildcard=task.wildcard)
            fix = f'create the TXT record {task.record} once, with the value "{value}"'
            return NotYet(f"{state.reason}; {fix}", state.not_before)
        return state

    def _shows(self, task: Task, values: Collection[str]) -> bool:
        if task.persistent is None:
            return task.key in values
        return task.persistent.is_authorized_by(values, wildcard=task.wildcard, now=self._now())

    async def _check_recursive(self, task: Task) -> Ready | NotYet:
        name = task.record
        answer = await self._names.txt(name)
        if self._shows(task, answer.values):
            return Ready()
        # "SOA negative TTL": a cache repeats a negative response until then.
        remembered = min(answer.negative_for, _LONGEST_MEMORY)
        return NotYet(f"the recursive name server {_seen(answer, name)}", remembered)

    async def _check_authorities(self, task: Task) -> Ready | NotYet:
        end = await self._names.alias_of(task.record)
        zone = await self._names.authorities(end)
        reasons = await asyncio.gather(
            *(self._query_server(host, addresses, end, task) for host, addresses in zone.servers)
        )
        missing = [reason for reason in reasons if reason]
        return NotYet("; ".join(missing)) if missing else Ready()

    async def _query_server(self, host: str, addresses: tuple[str, ...], name: str, task: Task) -> str:
        """Why that server lacks the record; empty if it has it. One of its addresses is enough."""
        reason = ""
        for address in addresses:
            try:
                answer = await self._names.query_authority(address, name)
            except LookupFailed as error:
                reason = reason or str(error)
                continue
            return "" if self._shows(task, answer.values) else f"the name server {host} {_seen(answer, name)}"
        return reason


def _seen(answer: Answer, name: str) -> str:
    if not answer.exists:
        return f"has no {name} yet"
    if not answer.values:
        return f"has no TXT record at {name} yet"
    others = ", ".join(f'"{quote(value, 120)}"' for value in answer.values[:3])
    return f"has only other TXT records at {name}: {others}"
