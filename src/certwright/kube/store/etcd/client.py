"""etcd client: one connection to each member; fails over to the next member when one does not answer.

Every call here may be repeated: reads and compactions change nothing, and a write is a transaction whose
condition no longer holds once it was done (`store.etcd` finds out which of its attempts succeeded).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certwright.kube.store.contract import (
    Compacted,
    Full,
    FutureRevision,
    Lost,
    StoreError,
    TooLarge,
    Unavailable,
)
from certwright.kube.store.etcd import messages
from certwright.kube.store.etcd.http2 import (
    Call,
    CallFailed,
    Headers,
    Peer,
    Status,
    StreamBroken,
    UnaryCalls,
    responses,
)
from certwright.kube.store.etcd.messages import Method

_log = logging.getLogger(__name__)

_ATTEMPT_S = 5.0
_NO_PATIENCE_S = 2.0
"""Patience of a call after another one has waited for all of `Access.patience_s` in vain."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_DIAGNOSIS_S = 5.0
"""For a connection that tells why TLS fails."""

_PASSING = (
    Status.UNAVAILABLE,
    Status.DEADLINE_EXCEEDED,
    Status.INTERNAL,
    Status.UNKNOWN,
    Status.CANCELLED,
    Status.ABORTED,
)


@dataclass(frozen=True, slots=True)
class Access:
    """The members (`HOST:PORT`), and the settings of the connections.

    `ca_file` None with `tls`: the system's CAs. `user` None: without etcd's authentication. `patience_s`: how
    long a call is retried before it fails. `tick_after_s`: the silence of its watch after which the store
    writes a key, which takes a revision, to learn the watch's position.
    """

    members: tuple[str, ...]
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: str = ""
    patience_s: float = 20.0
    tick_after_s: float = 0.1

    def __str__(self) -> str:
        return ",".join(self.members)


class EtcdClient:
    """Calls one member at a time, as long as that answers. Must be made on the event loop.

    Raises `Unavailable` when a file of `access` cannot be used.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        if access.tls:
            _check_files(access)
        self._unary = UnaryCalls(self._tls)
        self._turn = 0
        self._token = ""
        self.retries = 0
        """The number of retries, of all calls together."""
        self.trouble = ""
        """Why the last attempt failed; empty once one has succeeded."""
        self.lost: Lost | None = None
        """Why this etcd is not used any more."""
        self.on_lost: Callable[[Lost], None] = lambda _: None
        """Called once, when it is lost."""
        self.on_full: Callable[[], None] = lambda: None
        """Called when it has refused a write because it is full."""
        self._cluster = self._revision = 0
        self._given_up = False  # no member has answered since a call waited in vain

    @property
    def access(self) -> Access:
        """The settings of this client."""
        return self._access

    @property
    def member(self) -> str:
        """The member in use."""
        return self._access.members[self._turn % len(self._access.members)]

    def turn_from(self, member: str) -> None:
        """Use another member from now on, unless that was done already."""
        if member == self.member:
            self._turn += 1

    async def call(self, method: Method, request: Any) -> Any:
        """Call with retries until a response arrives. Raises `Unavailable`, `Compacted`, `FutureRevision`,
        `TooLarge`; and `Lost` when the cluster is another one, or went back in time."""
        self._require()
        seen = self._revision
        answer = await self._repeat(method, request)
        if method in (messages.RANGE, messages.TXN):
            # Linearizable: the revision of a response is never lower than one seen before the request.
            self._check_header(answer.header, seen)
        return answer

    async def call_each(self, method: Method, request: Any, timeout_s: float) -> list[tuple[str, Any]]:
        """The members that respond within this time, with their responses; the member in use is retried as by
        `call`. For requests about one member, e.g. its status. Raises `Unavailable`."""
        first = await self.call(method, request)
        used, data = self.member, _serialize(request)
        others = [member for member in self._access.members if member != used]
        calls = [
            self._unary.call(member, method.path, self._metadata(), data, timeout_s) for member in others
        ]
        answers = [(used, first)]
        for member, answer in zip(others, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, bytes):
                answers.append((member, method.response.FromString(answer)))
            elif not isinstance(answer, CallFailed):
                raise answer
        return answers

    def _check_header(self, header: Any, seen: int) -> None:
        if self._cluster and header.cluster_id != self._cluster:
            self.lose("is another cluster than before")
        elif header.revision < seen:
            self.lose(f"went back from revision {seen} to {header.revision}")
        self._require()
        self._cluster, self._revision = header.cluster_id, max(self._revision, header.revision)

    def lose(self, what: str) -> None:
        """Refuse all calls from now on: `what` has become of this etcd."""
        if self.lost is None:
            self.lost = Lost(
                f"etcd at {self._access} {what}: nothing is read or written any more; restore a snapshot of"
                " etcd or a backup, and start the server again"
            )
            _log.error("%s", self.lost)
            self.on_lost(self.lost)

    def _require(self) -> None:
        if self.lost is not None:
            raise Lost(str(self.lost))

    async def _repeat(self, method: Method, request: Any) -> Any:
        loop = asyncio.get_running_loop()
        # The first call waits for a new leader or a restart; later calls need not wait for that as well.
        patience_s = self._access.patience_s
        give_up = loop.time() + (min(patience_s, _NO_PATIENCE_S) if self._given_up else patience_s)
        pause, last_error = _FIRST_PAUSE_S, None
        while True:
            member = self.member
            left = max(give_up - loop.time(), 0.05)
            try:
                answer = await self._call_member(member, method, request, min(_ATTEMPT_S, left))
            except CallFailed as error:
                if self._is_final(error):
                    self._given_up = False
                    raise self.explain(error) from None
                self.turn_from(member)
                self.retries += 1
                # A timeout in the little time that is left says less than the error before it.
                if last_error is None or left >= _ATTEMPT_S or error.status is not Status.DEADLINE_EXCEEDED:
                    last_error = error
                self.trouble = str(self.explain(last_error))
                if loop.time() + pause >= give_up:
                    self._given_up = last_error.status is Status.UNAVAILABLE
                    raise await self._reason(member, last_error) from None
            else:
                self.trouble, self._given_up = "", False
                return answer
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _call_member(self, member: str, method: Method, request: Any, timeout_s: float) -> Any:
        if self._access.user is not None and not self._token:
            await self._authenticate(member, timeout_s)
        data = _serialize(request)
        answer = await self._unary.call(member, method.path, self._metadata(), data, timeout_s)
        return method.response.FromString(answer)

    async def _authenticate(self, member: str, timeout_s: float) -> None:
        access, method = self._access, messages.AUTHENTICATE
        request = messages.AuthenticateRequest(name=access.user, password=access.password)
        answer = await self._unary.call(member, method.path, (), _serialize(request), timeout_s)
        self._token = method.response.FromString(answer).token

    def _metadata(self) -> Headers:
        # With `hasleader` a member that has lost its cluster returns an error instead of no response.
        always = (("hasleader", "true"),)
        return (*always, ("token", self._token)) if self._token else always

    async def watch(self, create: Any) -> AsyncGenerator[list[Any], None]:
        """The responses to one watch request, from the current member, in batches of those that are there.

        Ends when the connection does; raises `Unavailable` if a retry makes no sense.
        """
        member, method = self.member, messages.WATCH
        request = _serialize(messages.WatchRequest(create_request=create))
        try:
            if self._access.user is not None and not self._token:
                await self._authenticate(member, _ATTEMPT_S)
            call = Call(Peer.of(member, self._tls()), method.path, self._metadata(), request)
            async with responses(call) as stream:
                async for batch in stream:
                    yield list(map(method.response.FromString, batch))
        except CallFailed as error:
            if self._is_final(error):
                raise self.explain(error) from None
            _log.debug("the watch of etcd at %s ended: %s", member, error)
        except (StreamBroken, OSError) as error:  # TimeoutError among them
            _log.debug("the watch of etcd at %s ended: %s", member, error)
        self.turn_from(member)

    def _tls(self) -> ssl.SSLContext | None:
        return _tls_context(self._access) if self._access.tls else None

    def _is_final(self, error: CallFailed) -> bool:
        """Whether a retry is of no use. Drops an expired token."""
        is_old = error.status is Status.UNAUTHENTICATED or "revision in header is old" in error.details
        if self._access.user is not None and self._token and is_old:
            self._token = ""
            return False
        return error.status not in _PASSING

    async def _reason(self, member: str, error: CallFailed) -> StoreError:
        """As `explain`; a TLS connection that a certificate has prevented is diagnosed."""
        if error.status is not Status.UNAVAILABLE and self._cluster:
            return self.explain(error)
        with suppress(OSError):  # a file may be missing by now
            if self._access.tls and (problem := await _refusal(member, self._access)):
                self.trouble = f"etcd at {member} {problem}"
                return Unavailable(self.trouble)
        return self.explain(error)

    def explain(self, error: CallFailed) -> StoreError:
        """Translate a failed call to a `StoreError` of one sentence."""
        text = str(error)
        match error.status:
            case Status.OUT_OF_RANGE if "compacted" in text:
                return Compacted(0)
            case Status.OUT_OF_RANGE:
                return FutureRevision(text)
            case Status.INVALID_ARGUMENT if "too large" in text:
                return TooLarge(f"etcd takes no request of this size ({text}); see its --max-request-bytes")
            case Status.RESOURCE_EXHAUSTED if "larger than max" in text:
                return TooLarge(f"etcd takes no request of this size ({text}); see its --max-request-bytes")
            case Status.RESOURCE_EXHAUSTED if "space exceeded" in text:
                self.on_full()
                return Full(
                    f"etcd at {self._access} is full ({text}): raise its --quota-backend-bytes, or compact"
                    " and defragment it; then disarm the alarm"
                )
        return Unavailable(f"etcd at {self._access} {self._what(error.status, text)}")

    def _what(self, status: Status, text: str) -> str:
        access = self._access
        if "authentication failed" in text:
            return f"does not take the password of the user {access.user!r}"
        if "user name is empty" in text:
            return "asks who we are: give --etcd-user and --etcd-password-file"
        if "authentication is not enabled" in text:
            return "knows no users: leave --etcd-user out, or enable etcd's authentication"
        if status is Status.PERMISSION_DENIED:
            return f"does not let the user {access.user!r} read and write below the prefix ({text})"
        if "CERTIFICATE_VERIFY_FAILED" in text or "certificate" in text.lower():
            return f"shows a certificate that is not trusted, or refuses ours: see --etcd-cafile ({text})"
        if "WRONG_VERSION_NUMBER" in text:
            return "does not speak TLS: begin --store with etcd://, not etcds://"
        # A server of TLS closes plain connections, or waits.
        hint = "" if access.tls or self._cluster else "; if it speaks TLS, begin --store with etcds://"
        if status is Status.UNAVAILABLE and "etcdserver" not in text:
            return f"cannot be reached ({text}{hint})"
        if status is Status.DEADLINE_EXCEEDED:
            return f"does not answer{hint}"
        return f"refuses ({text})"

    async def close(self) -> None:
        """Drop the connections."""
        self._unary.close()


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _tls_context(access: Access) -> ssl.SSLContext:
    """The TLS settings of a connection. Raises `OSError`."""
    context = ssl.create_default_context(cafile=access.ca_file)
    if access.cert_file is not None:
        context.load_cert_chain(access.cert_file, access.key_file)
    context.set_alpn_protocols(["h2"])
    return context


def _check_files(access: Access) -> None:
    """Raise `Unavailable` for a file of the TLS settings that cannot be used."""
    _check_pem(access.ca_file, "--etcd-cafile")
    _check_pem(access.cert_file, "--etcd-certfile")
    _check_pem(access.key_file, "--etcd-keyfile")
    try:
        _tls_context(access)
    except ssl.SSLError as error:
        raise Unavailable(
            f"--etcd-cafile, --etcd-certfile and --etcd-keyfile cannot be used together ({error.reason}): the"
            " key must be that of the certificate, without a password"
        ) from error


def _check_pem(path: Path | None, flag: str) -> None:
    if path is None:
        return
    try:
        data = path.read_bytes()
    except OSError as error:
        what = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise Unavailable(f"{flag} {path} {what}") from error
    if b"-----BEGIN " not in data:
        raise Unavailable(f"{flag} {path} holds nothing in PEM form")


async def _refusal(member: str, access: Access) -> str:
    """Why a TLS connection to a member (`HOST:PORT`) fails, with the fix; empty if it does not, or the member
    is unreachable. Raises `OSError` for a missing file.

    With TLS 1.3 a server refuses a client's certificate only after the handshake (RFC 8446 §4.4.2.4), so the
    reason arrives with the first read, which a failed write of a call can forestall.
    """
    host, _, port = member.rpartition(":")
    context = _tls_context(access)
    try:
        async with asyncio.timeout(_DIAGNOSIS_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
            try:
                # Without a request there is nothing to read but an alert; silence is consent.
                await reader.read(1)
            finally:
                writer.transport.abort()
    except ssl.SSLCertVerificationError as error:
        return f"shows a certificate that is not trusted ({error.verify_message}): see --etcd-cafile"
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "ALERT" not in reason:
            return ""
        if access.cert_file is None:
            return "requires a client certificate: give --etcd-certfile and --etcd-keyfile"
        words = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return (
            f"refuses our client certificate ({words}): --etcd-certfile must be valid, and issued by a CA of"
            " etcd's --trusted-ca-file"
        )
    except OSError:  # TimeoutError among them
        pass
    return ""
