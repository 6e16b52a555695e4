"""Connection limits: in all, per address, per user, and for clients not yet identified.

A connection counts from the moment its socket is accepted, before TLS. Until a request on it has been
authenticated it is *unidentified*. Unidentified connections have a separate limit, within which a new
connection displaces the oldest of the address with the most. So connections that send nothing never keep a
new client out. Identified connections are limited per flow: a user, or the ServiceAccounts of a namespace.
They leave a reserve for `system:masters` and the controllers' ServiceAccounts. When all flows together have
reached their limit, a connection of a flow with fewer displaces the newest of the flow with the most.
"""

from __future__ import annotations

import logging
import resource
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from certwright.kube.api.errors import Details, TooManyRequests, Unavailable

_log = logging.getLogger(__name__)

_OTHER_FILES = 128
"""File descriptors for other uses: the store, its log, connections to CAs."""
_RETRY_AFTER_S = 5
_LOG_EVERY = 1000
"""Refused connections per log line."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`total`: concurrent connections. The other limits are shares of it.

    The share of one address is large because all clients have the same address behind a load balancer.
    """

    total: int = 4096

    @property
    def unidentified(self) -> int:
        """The limit on connections whose clients have not been authenticated."""
        return max(1, self.total // 4)

    @property
    def reserve(self) -> int:
        """Connections reserved for privileged users."""
        return max(1, self.total // 8)

    @property
    def identified(self) -> int:
        """The limit for all unprivileged flows together."""
        return max(1, self.total - self.unidentified - self.reserve)

    @property
    def per_flow(self) -> int:
        """The limit for one unprivileged flow."""
        return max(1, self.total // 4)

    @property
    def per_address(self) -> int:
        """The limit for one address."""
        return max(1, self.total * 3 // 4)


def limits_within_files(limits: ConnectionLimits) -> ConnectionLimits:
    """`limits`, or lower ones where the process may open fewer files. The limit of the process is read each
    time because it can be changed from outside."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files - _OTHER_FILES >= limits.total:
        return limits
    return replace(limits, total=max(4, files - _OTHER_FILES))


class Connection:
    """An accepted socket. `close` ends it, even during its handshake; `is_closed`: whether it has ended."""

    __slots__ = ("_table", "address", "close", "flow", "is_closed", "is_privileged")

    def __init__(self, table: Connections, address: str, close: Callable[[], None]) -> None:
        self._table = table
        self.address = address
        self.close = close
        self.is_closed: Callable[[], bool] = lambda: False
        self.flow = ""
        self.is_privileged = False

    @property
    def is_identified(self) -> bool:
        """Whether a request on it has been authenticated."""
        return bool(self.flow)

    def identify(self, flow: str, *, is_privileged: bool) -> None:
        """Record the flow of its requests. Raises `TooManyRequests` where the flow has too many connections,
        and `Unavailable` where all flows together have."""
        if self.flow != flow or self.is_privileged != is_privileged:
            self._table.identify(self, flow, is_privileged=is_privileged)

    def release(self) -> None:
        """Stop counting it; idempotent."""
        self._table.release(self)


class Connections:
    """The accepted sockets of a server."""

    def __init__(
        self,
        limits: ConnectionLimits,
        within_files: Callable[[ConnectionLimits], ConnectionLimits] = limits_within_files,
    ) -> None:
        self._limits = limits
        self._within_files = within_files
        self._all: set[Connection] = set()
        self._unidentified: dict[str, dict[Connection, None]] = {}  # by address, the oldest first
        self._unidentified_count = 0
        self._by_address: Counter[str] = Counter()
        self._by_flow: dict[str, dict[Connection, None]] = {}  # the unprivileged ones, the oldest first
        self.refused = 0
        """Sockets closed on accept."""
        self.displaced = 0
        """Connections closed for newer ones."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def limits(self) -> ConnectionLimits:
        """The current limits."""
        return self._within_files(self._limits)

    def accept(self, address: str, close: Callable[[], None]) -> Connection | None:
        """Count a newly accepted socket; None: it must be closed."""
        limits = self.limits
        if self._by_address[address] >= limits.per_address:
            has_room = self._displace(address)
        elif self._unidentified_count >= limits.unidentified or len(self._all) >= limits.total:
            most = max(self._unidentified, key=lambda each: len(self._unidentified[each]), default="")
            has_room = self._displace(most)
        else:
            has_room = True
        if not has_room:
            if self.refused % _LOG_EVERY == 0:
                _log.warning("refused a connection from %s: %d connections are open", address, len(self))
            self.refused += 1
            return None
        connection = Connection(self, address, close)
        self._all.add(connection)
        self._by_address[address] += 1
        self._unidentified.setdefault(address, {})[connection] = None
        self._unidentified_count += 1
        return connection

    def _displace(self, address: str) -> bool:
        """Close the oldest unidentified connection of an address, if there is one."""
        oldest = next(iter(self._unidentified.get(address, ())), None)
        if oldest is None:
            return False
        self._close_for_another(
            oldest,
            "closed a connection from %s that has not been authenticated: %d such connections are open",
            address,
            self._unidentified_count,
        )
        return True

    def _close_for_another(self, connection: Connection, text: str, *facts: object) -> None:
        if self.displaced % _LOG_EVERY == 0:
            _log.warning(text, *facts)
        self.displaced += 1
        self.release(connection)
        connection.close()

    def identify(self, connection: Connection, flow: str, *, is_privileged: bool) -> None:
        """See `Connection.identify`."""
        if connection not in self._all:
            return
        limits = self.limits
        if not is_privileged:
            if len(self._by_flow.get(flow, ())) >= limits.per_flow and connection.flow != flow:
                raise TooManyRequests(
                    f'"{flow}" has {limits.per_flow} connections open, please close some of them',
                    details=Details(retry_after_seconds=_RETRY_AFTER_S),
                )
            is_full = sum(map(len, self._by_flow.values())) >= limits.identified
            if is_full and not self._is_counted(connection) and not self._displace_of_largest(flow):
                raise Unavailable(
                    "the server has as many connections as it takes, please try again later",
                    details=Details(retry_after_seconds=_RETRY_AFTER_S),
                )
        self._uncount(connection)
        connection.flow, connection.is_privileged = flow, is_privileged
        if not is_privileged:
            self._by_flow.setdefault(flow, {})[connection] = None

    def _displace_of_largest(self, flow: str) -> bool:
        """Close the newest connection of the flow with the most, if `flow` has fewer with one more."""
        largest = max(self._by_flow.values(), key=len)
        if len(largest) <= len(self._by_flow.get(flow, ())) + 1:
            return False
        newest = next(reversed(largest))
        self._close_for_another(
            newest,
            'closed a connection of "%s", which has %d: all users together have as many connections as the'
            " server takes",
            newest.flow,
            len(largest),
        )
        return True

    def _is_counted(self, connection: Connection) -> bool:
        return connection.is_identified and not connection.is_privileged

    def _uncount(self, connection: Connection) -> None:
        """Subtract a connection from the counts of its kind."""
        if self._is_counted(connection):
            flow = self._by_flow[connection.flow]
            del flow[connection]
            if not flow:
                del self._by_flow[connection.flow]
        elif not connection.is_identified:
            there = self._unidentified[connection.address]
            del there[connection]
            self._unidentified_count -= 1
            if not there:
                del self._unidentified[connection.address]

    def release(self, connection: Connection) -> None:
        """See `Connection.release`."""
        if connection not in self._all:
            return
        self._uncount(connection)
        self._all.remove(connection)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
