"""Questions to the name servers that tests start."""

from __future__ import annotations

import dns.exception
import dns.message
import dns.query


def answers(port: int, name: str, kind: str) -> bool:
    """Whether the name server at that port of loopback has such a record, by TCP and by UDP."""
    question = dns.message.make_query(name, kind)
    try:
        # By TCP first: where nobody listens yet, that is told at once.
        replies = [ask(question, "127.0.0.1", 2.0, port) for ask in (dns.query.tcp, dns.query.udp)]
    except (OSError, EOFError, dns.exception.DNSException):
        return False
    return all(reply.answer for reply in replies)
