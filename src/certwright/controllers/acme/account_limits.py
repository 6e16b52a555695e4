"""How many new accounts the CAs allow: a part of their rate limits (`rate_limits.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from certwright.acme.ratelimits.decisions import WaitUntil
from certwright.controllers.acme.shared_ledger import SharedLedger
from certwright.kube.api.naming import new_uid


class AccountLimits:
    """See `AccountLimit`. `ledger_of` gives the loaded ledger of a server, `save_later` schedules the write
    of a changed one."""

    def __init__(
        self,
        ledger_of: Callable[[str], Awaitable[SharedLedger]],
        save_later: Callable[[SharedLedger], None],
        now: Callable[[], datetime],
    ) -> None:
        self._ledger_of = ledger_of
        self._save_later = save_later
        self._now = now
        self._attempts: dict[str, list[tuple[SharedLedger, str]]] = {}

    async def admit(self, server: str) -> tuple[str, datetime] | None:
        """See `AccountLimit`."""
        shared = await self._ledger_of(server)
        uid, now = f"account-{new_uid()}", self._now()
        self._attempts.setdefault(server, []).append((shared, uid))
        try:
            answer = await shared.reserve(lambda ledger: ledger.admit_account(uid, now))
        except BaseException:
            self.ended(server, is_made=False)
            raise
        if not isinstance(answer, WaitUntil):
            return None
        self._attempts[server].remove((shared, uid))
        return answer.sentence, answer.moment

    def ended(self, server: str, *, is_made: bool) -> None:
        """See `AccountLimit`."""
        # Which of several attempts at one server it was makes no difference.
        shared, uid = self._attempts[server].pop()
        now = self._now()
        shared.change(lambda ledger: ledger.account_ended(uid, now, is_made=is_made))
        self._save_later(shared)
