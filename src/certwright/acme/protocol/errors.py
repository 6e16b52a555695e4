"""Errors of the exchange with an ACME server; problem documents, and the reaction to each problem type.

    AcmeError
    ├── Unreachable         no response: no connection, no DNS name, no trust, timeout
    │   └── Untrusted       the server's TLS certificate is not trusted; waiting does not help
    ├── NotAcme             a response, but not from an ACME server
    ├── ForeignUrl          a URL of another server; no request is sent
    └── Refused             the server refuses, with or without a problem document
        └── AccountTrouble  … because of our account

Whether and when to retry is in the type and in `retry_after`, never in a text. One table holds every problem
type; a test compares it with the list of RFC 8555 §6.7.

Source: RFC 7807 §3.1; RFC 8555 §6.7, §6.7.1; RFC 9773 §7.4; draft-ietf-acme-profiles §4.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from certwright.acme.protocol.messages import Response
from certwright.kit.outgoing import place_of, quote
from certwright.kube.util.decoders import UNDECODABLE

_PREFIX: Final = "urn:ietf:params:acme:error:"
_MEDIA_TYPE: Final = "application/problem+json"
_MAX_TEXT: Final = 2000


class Reaction(Enum):
    """How a client reacts to an error."""

    AT_ONCE = "send the same request again immediately, with the fresh nonce of the error response"
    WAIT = "send the same again later; nothing is lost"
    ORDER_FAILS = "this order can never succeed; another one with the same content would fail as well"
    LOOK_AGAIN = "the order is in another state than we thought: fetch it"
    ACCOUNT = "the account must be mended first: its key, its terms, its binding"
    WITHOUT_REPLACES = "order again without naming the certificate that is replaced"
    DONE = "the request had been fulfilled before"
    OUR_MISTAKE = "the request was wrong; sending it again changes nothing"


class Fault(Enum):
    """The party at fault. Only the first three count against the issuer (its circuit breaker)."""

    SERVER = "the server is overloaded or broken"
    LIMIT = "the server grants no more at present"
    ACCOUNT = "the issuer's account"
    REQUEST = "the request can never succeed as it is: spec"
    NAME = "a name could not be validated: DNS, firewall, web server"
    PROTOCOL = "how this client speaks ACME"


class ProblemType(NamedTuple):
    """The meaning of a problem type. `advice` is a clause for the user; empty: it depends."""

    reaction: Reaction
    fault: Fault
    advice: str = ""


_CHANGE_NAMES: Final = "change spec.dnsNames"
_CORRECT_EMAIL: Final = "correct spec.acme.email of the issuer"

PROBLEM_TYPES: Final[Mapping[str, ProblemType]] = {
    # RFC 8555 §6.7
    "accountDoesNotExist": ProblemType(Reaction.ACCOUNT, Fault.ACCOUNT),
    "alreadyRevoked": ProblemType(Reaction.DONE, Fault.PROTOCOL),
    "badCSR": ProblemType(Reaction.ORDER_FAILS, Fault.REQUEST, "change spec.dnsNames or spec.privateKey"),
    "badNonce": ProblemType(Reaction.AT_ONCE, Fault.PROTOCOL),
    "badPublicKey": ProblemType(
        Reaction.ORDER_FAILS,
        Fault.REQUEST,
        "change spec.privateKey: this CA requires another algorithm or size",
    ),
    "badRevocationReason": ProblemType(Reaction.OUR_MISTAKE, Fault.PROTOCOL),
    "badSignatureAlgorithm": ProblemType(Reaction.ACCOUNT, Fault.ACCOUNT, "use an RSA or P-256 account key"),
    "caa": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "compound": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "connection": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "dns": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "externalAccountRequired": ProblemType(
        Reaction.ACCOUNT,
        Fault.ACCOUNT,
        "set spec.acme.externalAccountBinding of the issuer to what your CA gave you",
    ),
    "incorrectResponse": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "invalidContact": ProblemType(Reaction.ACCOUNT, Fault.ACCOUNT, _CORRECT_EMAIL),
    "malformed": ProblemType(Reaction.OUR_MISTAKE, Fault.PROTOCOL),
    "orderNotReady": ProblemType(Reaction.LOOK_AGAIN, Fault.PROTOCOL),
    "rateLimited": ProblemType(Reaction.WAIT, Fault.LIMIT),
    "rejectedIdentifier": ProblemType(
        Reaction.ORDER_FAILS, Fault.REQUEST, f"{_CHANGE_NAMES}: this CA refuses one of them"
    ),
    "serverInternal": ProblemType(Reaction.WAIT, Fault.SERVER),
    "tls": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "unauthorized": ProblemType(Reaction.ORDER_FAILS, Fault.NAME),
    "unsupportedContact": ProblemType(Reaction.ACCOUNT, Fault.ACCOUNT, _CORRECT_EMAIL),
    "unsupportedIdentifier": ProblemType(
        Reaction.ORDER_FAILS,
        Fault.REQUEST,
        "change spec.dnsNames and spec.ipAddresses: this CA does not support one of the kinds",
    ),
    "userActionRequired": ProblemType(
        Reaction.ACCOUNT, Fault.ACCOUNT, "do what the CA requires, e.g. agree to its new terms of service"
    ),
    # RFC 9773 §7.4
    "alreadyReplaced": ProblemType(Reaction.WITHOUT_REPLACES, Fault.PROTOCOL),
    # draft-ietf-acme-profiles
    "invalidProfile": ProblemType(
        Reaction.ORDER_FAILS, Fault.REQUEST, "change spec.acme.profile of the issuer"
    ),
    # draft-aaron-acme… "conflict" of the drafts before RFC 9773, which servers still send.
    "conflict": ProblemType(Reaction.WITHOUT_REPLACES, Fault.PROTOCOL),
}
"""Every known problem type, without its prefix."""


class Identifier(msgspec.Struct, frozen=True):
    """An identifier to validate: `type` is `dns` or `ip` (RFC 8555 §9.7.7, RFC 8738 §3); others survive."""

    type: str = ""
    value: str = ""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem document. `subproblems` give the problem of each identifier (RFC 8555 §6.7.1)."""

    type: str = "about:blank"
    title: str = ""
    detail: str = ""
    status: int = 0
    instance: str = ""
    identifier: Identifier | None = None
    subproblems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The problem type without the ACME prefix, e.g. `rateLimited`."""
        return self.type.removeprefix(_PREFIX)

    @property
    def known(self) -> ProblemType | None:
        """The row of the table; None for an unknown type."""
        return PROBLEM_TYPES.get(self.name) if self.type.startswith(_PREFIX) else None

    @property
    def reaction(self) -> Reaction:
        """How to react. The HTTP status decides for an unknown type: wait after a server error or 429, any
        other status is a fault of the request (RFC 7807 §3.1 requires tolerance of unknown types)."""
        if (known := self.known) is not None:
            return known.reaction
        waits = self.status >= 500 or self.status in (408, 425, 429)
        return Reaction.WAIT if waits else Reaction.ORDER_FAILS

    @property
    def is_of_unknown_account(self) -> bool:
        """Whether the server does not know the account, or not any more."""
        return self.name == "accountDoesNotExist"

    @property
    def demands_action(self) -> bool:
        """Whether the server demands something of the account's owner before it accepts another order."""
        return self.name == "userActionRequired"

    @property
    def may_be_of_signer(self) -> bool:
        """Whether the server may refuse the account or key that has signed: `unauthorized` may as well be
        about a name."""
        return self.is_of_unknown_account or self.name == "unauthorized"

    @property
    def may_be_of_key(self) -> bool:
        """Whether the server may refuse that a request is signed by a certificate's key (RFC 8555 §7.6)."""
        return self.may_be_of_signer or self.name == "malformed"

    @property
    def sentence(self) -> str:
        """One line: the server's words, then the problem of each identifier, then the type."""
        return self._words(self.name)

    @property
    def sentence_with_urn(self) -> str:
        """`sentence` with the HTTP status and the whole type, "[400 urn:ietf:params:acme:error:badCSR]":
        scripts written for cert-manager look for it."""
        return self._words(f"{self.status or ''} {self.type}".strip())

    def _words(self, kind: str) -> str:
        text = self.detail or self.title or "the server gives no reason"
        parts = []
        for sub in self.subproblems:
            part = sub.detail or sub.title or sub.name
            part = f"{sub.identifier.value}: {part}" if sub.identifier else part
            if part and part not in text:
                parts.append(part)
        if parts:
            text = f"{text.rstrip('.')} ({'; '.join(parts)})"
        # A long text must not cut the type off.
        end = f" [{quote(kind)}]" if self.name != "about:blank" else ""
        return quote(text, _MAX_TEXT - len(end)) + end


def read_problem(body: bytes, status: int, *, media_type: str) -> Problem | None:
    """Parse the problem document in a body; the HTTP status fills in a missing `status`. Returns None if
    there is none. Drops members of the wrong type and keeps the rest.

    Its words are shown to tenants, who may name any server: so it counts only with the media type of a
    problem document (RFC 7807 §6.1), or with an ACME problem type. Other JSON may have a `detail` as well.
    """
    try:
        document = msgspec.json.decode(body)
    except UNDECODABLE:
        return None
    if not isinstance(document, dict) or not ({"type", "detail", "title"} & document.keys()):
        return None
    is_called_so = media_type.partition(";")[0].strip().lower() == _MEDIA_TYPE
    if not is_called_so and not _text(document, "type").startswith(_PREFIX):
        return None
    return _problem(document, status, depth=0)


def _problem(document: dict[str, Any], status: int, *, depth: int) -> Problem:
    raw = document.get("subproblems")
    # A subproblem of a subproblem has no meaning (RFC 8555 §6.7.1): ignored.
    subs = [sub for sub in raw if isinstance(sub, dict)] if isinstance(raw, list) and depth == 0 else []
    own, identifier = document.get("status"), document.get("identifier")
    return Problem(
        type=_text(document, "type") or "about:blank",
        title=_text(document, "title"),
        detail=_text(document, "detail"),
        status=own if isinstance(own, int) and not isinstance(own, bool) else status,
        instance=_text(document, "instance"),
        identifier=Identifier(_text(identifier, "type"), _text(identifier, "value"))
        if isinstance(identifier, dict)
        else None,
        subproblems=tuple(_problem(sub, 0, depth=depth + 1) for sub in subs),
    )


def problem_of(value: Any) -> Problem | None:
    """The problem inside another object (`error` of an order or a challenge)."""
    return _problem(value, 0, depth=0) if isinstance(value, dict) else None


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


class AcmeError(Exception):
    """Base class. The text is one sentence for a condition: what happened, and the server's words."""

    @property
    def reaction(self) -> Reaction:
        """How to react to the error."""
        return Reaction.WAIT

    @property
    def in_full(self) -> str:
        """The text for an object that fails by the error."""
        return str(self)


class Unreachable(AcmeError):
    """No response arrived, and the request may have had no effect: retry later."""


class Untrusted(Unreachable):
    """The server's TLS certificate is not trusted, has expired, or is for another name."""


class NotAcme(AcmeError):
    """The server does not speak ACME, or violates RFC 8555."""


class ForeignUrl(AcmeError):
    """A URL whose origin is neither the directory's nor that of a URL in it. No request was sent."""

    def __init__(self, url: str, directory_url: str) -> None:
        super().__init__(
            f"{place_of(url)} is not a URL of the ACME server at {directory_url}: neither its "
            "directory nor a URL in it has this scheme, host and port; no request is sent there"
        )

    @property
    def reaction(self) -> Reaction:
        """Sending the request again changes nothing."""
        return Reaction.OUR_MISTAKE


class Refused(AcmeError):
    """The server refused the request to `url`. `retry_after` is the moment that the server named, if any."""

    def __init__(
        self, problem: Problem, *, status: int, retry_after: datetime | None = None, url: str = ""
    ) -> None:
        super().__init__(problem.sentence)
        self.problem = problem
        self.status = status
        self.retry_after = retry_after
        self.url = url

    @property
    def reaction(self) -> Reaction:
        """How to react to the error."""
        return self.problem.reaction

    @property
    def in_full(self) -> str:
        """With the HTTP status and the URN of the problem type."""
        return self.problem.sentence_with_urn

    @property
    def is_gone(self) -> bool:
        """Whether the server does not know what the URL names, or not any more."""
        return self.status in (404, 405, 410)

    @property
    def is_limit(self) -> bool:
        """Whether a rate limit is the cause (RFC 8555 §6.6)."""
        known = self.problem.known
        return self.status == 429 or (known is not None and known.fault is Fault.LIMIT)


class AccountTrouble(Refused):
    """The account must be repaired before any other request can succeed."""

    @property
    def reaction(self) -> Reaction:
        """Also for `unauthorized`, if the account is the cause."""
        return Reaction.ACCOUNT


def refusal(problem: Problem, response: Response) -> Refused:
    """The error of the right type for the problem in a response."""
    kind = AccountTrouble if problem.reaction is Reaction.ACCOUNT else Refused
    return kind(problem, status=response.status, retry_after=response.retry_after, url=response.url)


def checked(response: Response) -> Response:
    """The response, if it is a success. Raises `Refused` otherwise."""
    problem = problem_in(response)
    if problem is None:
        return response
    raise refusal(problem, response)


def problem_in(response: Response) -> Problem | None:
    """The problem that the response reports; None for a success. A refusal without a problem document
    (e.g. by a proxy) becomes one."""
    if 200 <= response.status < 300:
        return None
    problem = read_problem(response.body, response.status, media_type=response.header("content-type"))
    if problem is not None:
        return problem
    return Problem(
        detail=f"{place_of(response.url)} answered HTTP status {response.status} without saying why",
        status=response.status,
    )
