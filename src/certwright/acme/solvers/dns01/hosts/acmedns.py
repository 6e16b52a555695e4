"""acme-dns: a name server for ACME alone, to which `_acme-challenge` names are delegated by CNAME.

Source: acme-dns's README. acme-dns keeps the last two values of each account and deletes none, so a third
value would replace a value that a CA has not seen yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.api import Endpoint, HostApi
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    EditsTogether,
    HostedZone,
    Outside,
)

_KEPT_VALUES: Final = 2
_PREFIX: Final = "_acme-challenge."
_NO_ZONE: Final = HostedZone("", "")
_RETRY: Final = timedelta(seconds=30)
# A value that was never removed, e.g. of a process that was killed, stands in nobody's way for longer.
_LONGEST_USE: Final = timedelta(minutes=30)


class _Updated(msgspec.Struct):
    txt: str


@dataclass(frozen=True, slots=True)
class Account:
    """An account for one name: `subdomain` identifies it in updates, `fulldomain` is the CNAME's target."""

    username: str
    password: str = field(repr=False)
    fulldomain: str
    subdomain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeDnsSettings:
    """`accounts` are pairs of a domain and its account."""

    endpoint: Endpoint
    accounts: tuple[tuple[str, Account], ...]
    zone: HostedZone | None = _NO_ZONE

    def connect(self, outside: Outside) -> AcmeDns:
        return AcmeDns(self, outside)


class AcmeDns(DnsHost):
    """See `DnsHost`. There are no zones: the account follows from the name."""

    edits_together = EditsTogether(_KEPT_VALUES, of_one_name=True)

    def __init__(self, settings: AcmeDnsSettings, outside: Outside) -> None:
        # An object names the endpoint: its answers are not quoted.
        self._api = HostApi("acme-dns", settings.endpoint, outside)
        self._accounts: Mapping[str, Account] = {
            name: account
            for domain, account in settings.accounts
            for name in (_PREFIX + domain.lower().rstrip("."), account.fulldomain.lower().rstrip("."))
        }
        self._now = outside.now
        self._in_use: dict[str, OrderedDict[str, datetime]] = {}

    async def verify(self) -> None:
        """See `DnsHost`. acme-dns has no request that checks an account without changing its records."""
        await self._api.call("GET", "/health", "report its health", allowed=(404,))

    async def find_zone(self, name: str) -> HostedZone | None:
        return HostedZone(name, "") if _PREFIX + name in self._accounts else None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        del zone
        for edit in edits:
            account = self._account_of(edit.name)
            if edit.adds:
                await self._update(account, edit)
            else:
                self._in_use.get(account.subdomain, OrderedDict()).pop(edit.value, None)
        return ""

    def check_name(self, name: str) -> None:
        self._account_of(name)

    def _account_of(self, name: str) -> Account:
        account = self._accounts.get(name.lower())
        if account is None:
            domain = name.removeprefix(_PREFIX)
            raise SolverError(
                f"accountSecretRef has no account for {domain}; register one, add it to the Secret, and "
                f"point a CNAME record at {name} to its fulldomain"
            )
        return account

    async def _update(self, account: Account, edit: Edit) -> None:
        now = self._now()
        used = self._in_use.setdefault(account.subdomain, OrderedDict())
        for value in [value for value, since in used.items() if now - since > _LONGEST_USE]:
            del used[value]
        if edit.value in used:
            return
        if len(used) >= _KEPT_VALUES:
            raise SolverError(
                f"acme-dns keeps {_KEPT_VALUES} values for {edit.name}, and other challenges use them",
                not_before=now + _RETRY,
            )
        headers = (("x-api-user", account.username), ("x-api-key", account.password))
        body = {"subdomain": account.subdomain, "txt": edit.value}
        what = f"set {edit.name}"
        answer = await self._api.call("POST", "/update", what, body=body, headers=headers)
        # Another server at that URL may answer any request with 200.
        self._api.parse(answer, _Updated, what)
        used[edit.value] = now
