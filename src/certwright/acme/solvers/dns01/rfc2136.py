"""DNS-01 by dynamic updates (RFC 2136), signed with TSIG (RFC 8945): BIND, Knot, PowerDNS, Windows."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.tsig
import dns.update

from certwright.acme.solvers.contract import SolverError, Task
from certwright.acme.solvers.datagrams import exchange, exchange_tcp
from certwright.acme.solvers.names import NameServers, resolved_record, zone_of

_TTL_S = 60
_ABSENT = "certwright-permission-check"

ALGORITHMS: Final[dict[str, dns.name.Name]] = {
    "HMACMD5": dns.tsig.HMAC_MD5,
    "HMACSHA1": dns.tsig.HMAC_SHA1,
    "HMACSHA224": dns.tsig.HMAC_SHA224,
    "HMACSHA256": dns.tsig.HMAC_SHA256,
    "HMACSHA384": dns.tsig.HMAC_SHA384,
    "HMACSHA512": dns.tsig.HMAC_SHA512,
}
"""TSIG algorithms: cert-manager's names, and two more."""


def tsig_key(name: str, secret: str, algorithm: str) -> dns.tsig.Key:
    """The key with that name and secret, which is base64 as in a BIND key file; `algorithm` is one of
    `ALGORITHMS`, in any case. Raises `SolverError` for an invalid one."""
    if algorithm.upper() not in ALGORITHMS:
        raise SolverError(f'"{algorithm}" is no TSIG algorithm; write one of {", ".join(ALGORITHMS)}')
    try:
        content = base64.b64decode(secret.strip(), validate=True)
        return dns.tsig.Key(dns.name.from_text(name), content, ALGORITHMS[algorithm.upper()])
    except (binascii.Error, ValueError, dns.exception.DNSException):
        raise SolverError(
            f'the TSIG secret of key "{name}" cannot be read; it is base64, as in the key file'
        ) from None


class Rfc2136:
    """Adds and deletes single values, so that concurrent tasks at one name do not interfere.

    `server` is host and port of the primary server, which has `timeout_s` seconds to respond; `names` finds
    zones and aliases.
    """

    def __init__(
        self,
        server: tuple[str, int],
        names: NameServers,
        *,
        key: dns.tsig.Key | None = None,
        tcp: bool = False,
        follow: bool = False,
        timeout_s: float = 10.0,
    ) -> None:
        self._host, self._port = server
        self._names = names
        self._key = key
        self._tcp = tcp
        self._follow = follow
        self._timeout_s = timeout_s

    async def present(self, task: Task) -> None:
        name, update = await self._update(task)
        update.add(name, _TTL_S, _txt(task.key))
        await self._send(update, f"add the TXT record {name.to_text(omit_final_dot=True)}")

    async def clean_up(self, task: Task) -> None:
        name, update = await self._update(task)
        update.delete(name, _txt(task.key))
        await self._send(update, f"delete the TXT record {name.to_text(omit_final_dot=True)}")

    async def verify(self) -> None:
        """See `Verifiable`. Only an update of a zone shows whether the key works: see `verify_name`."""

    async def verify_name(self, task: Task) -> str:
        """See `Verifiable`. Deletes a value that does not exist, which changes nothing ("silently ignored",
        RFC 2136 §3.4.2.4), and which the server refuses if it would refuse an addition."""
        name, update = await self._update(task)
        update.delete(name, _txt(_ABSENT))
        await self._send(update, f"change the TXT record {name.to_text(omit_final_dot=True)}")
        return update.origin.to_text(omit_final_dot=True) if update.origin is not None else ""

    async def _update(self, task: Task) -> tuple[dns.name.Name, dns.update.UpdateMessage]:
        name = await resolved_record(task, self._names, follow=self._follow)
        zone = await zone_of(name, self._names)
        message = dns.update.UpdateMessage(zone)
        if self._key is not None:
            message.use_tsig(self._key)
        return dns.name.from_text(name), message

    async def _send(self, update: dns.update.UpdateMessage, what: str) -> None:
        server = f"{self._host}:{self._port}"
        try:
            address = (await self._names.addresses(self._host))[0]
            # Safe to resend: adding or deleting a value twice has the effect of doing it once.
            send = exchange_tcp if self._tcp else exchange
            reply = await send(update, address, self._port, self._timeout_s)
        except (TimeoutError, dns.exception.Timeout):
            message = f"{server} did not answer within {self._timeout_s:g} s (request: {what})"
            raise SolverError(message) from None
        except dns.tsig.PeerError as error:
            raise SolverError(
                f"{server} does not accept the TSIG signature: {_tsig_reason(error)}"
            ) from error
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise SolverError(f"{server} could not be reached to {what}: {error}") from error
        if reply.rcode() != dns.rcode.NOERROR:
            code = dns.rcode.to_text(reply.rcode())
            raise SolverError(f"{server} refused to {what}: {code}{_HINTS.get(code, '')}")


_HINTS: Final = {
    "NOTAUTH": " (the server has no such zone, or the TSIG key is wrong)",
    "REFUSED": " (the server's update-policy does not allow it for this key)",
    "NOTZONE": " (the record does not lie in the zone)",
    "SERVFAIL": " (the server's log says why; often its journal file cannot be written)",
}


def _tsig_reason(error: dns.tsig.PeerError) -> str:
    match error:
        case dns.tsig.PeerBadKey():
            return "the server does not know the key's name or algorithm"
        case dns.tsig.PeerBadSignature():
            return "the secret differs"
        case dns.tsig.PeerBadTime():
            return "the clocks of the two machines differ by more than five minutes"
        case _:
            return str(error)


def _txt(value: str) -> dns.rdata.Rdata:
    return dns.rdata.from_text(dns.rdataclass.IN, dns.rdatatype.TXT, f'"{value}"')
