"""Questions to the name servers that tests start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import dns.exception
import dns.message
import dns.query

from support.programs import running, wait_for


def answers(port: int, name: str, kind: str) -> bool:
    """Whether the name server at that port of loopback has such a record, by TCP and by UDP."""
    question = dns.message.make_query(name, kind)
    try:
        # By TCP first: where nobody listens yet, that is told at once.
        replies = [ask(question, "127.0.0.1", 2.0, port) for ask in (dns.query.tcp, dns.query.udp)]
    except (OSError, EOFError, dns.exception.DNSException):
        return False
    return all(reply.answer for reply in replies)


@contextlib.contextmanager
def running_with_zones(command: Sequence[str], log: Path, port: int, zones: Sequence[str]) -> Iterator[None]:
    """A name server, from when it has read its zones, which is after it listens."""
    with running(command, log) as process:
        for zone in zones:
            wait_for(partial(answers, port, zone, "SOA"), process, log, what=f"have the zone {zone}")
        yield
