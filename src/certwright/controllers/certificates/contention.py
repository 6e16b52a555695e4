"""Contention: detect another writer that keeps overwriting or deleting the target Secret, and back off.

Wakes on:  Certificate; its Secret
Reads:     snapshot
Writes:    Certificate.status.conditions[Issuing] = False, lastFailureTime, failedIssuanceAttempts
Next:      trigger, when the wait is over

Each damage costs a new certificate, and two programs that write the same Secret would otherwise continue as
fast as an issuer can sign. The wait is stored in the status, as after a failed issuance, so it survives a
restart. The damages before the first wait are counted in memory only.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import retry_time as waits
from certwright.controllers.certificates import rules
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.ownership import Part, others_that_set
from certwright.controllers.certificates.snapshot import Rule, Snapshot, Verdict
from certwright.kube.api import conditions
from certwright.resources import names, reasons
from certwright.resources.retry import RetryRecord

# These are damage only where the spec has not changed since the certificate was issued.
_FOREIGN: tuple[Rule, ...] = (
    rules.issuer_is_another,
    rules.certificate_is_another,
    rules.key_differs_from_request,
)
_CHECKED_PARTS = frozenset(
    {
        Part("data", names.TLS_CERT_KEY),
        Part("data", names.TLS_PRIVATE_KEY_KEY),
        Part("annotations", names.CERTIFICATE_NAME),
        Part("annotations", names.ISSUER_NAME),
        Part("annotations", names.ISSUER_KIND),
        Part("annotations", names.ISSUER_GROUP),
    }
)

_WINDOW = timedelta(hours=1)
# This many damages within an hour are repaired immediately. People and scripts delete Secrets to have them
# renewed; an accidental overwrite happens a few times at most.
_OVERWRITTEN, _DELETED = 3, 120
# After this long without damage, earlier damage is forgotten.
_QUIET = timedelta(hours=24)
_REMEMBERED = 2048


class _Damage(NamedTuple):
    revision: int
    when: datetime
    is_deletion: bool


class _History(msgspec.Struct, frozen=True):
    """Damages of the last hour, one for each revision, and how many waits in a row they caused."""

    damages: tuple[_Damage, ...] = ()
    waits: int = 0
    waited_at: int = 0
    last: datetime | None = None

    def with_damage(self, damage: _Damage) -> _History:
        """The history with this damage added; old damages are dropped."""
        is_quiet = self.last is not None and damage.when - self.last > _QUIET
        damages = tuple(former for former in self.damages if damage.when - former.when <= _WINDOW)
        if not damages or damages[-1].revision != damage.revision:
            damages = (*damages, damage)
        return replace(self, damages=damages, waits=0 if is_quiet else self.waits, last=damage.when)

    def is_fight(self, *, is_deletion: bool) -> bool:
        """Whether the last damage is one too many. After a first wait each one is."""
        of_kind = sum(damage.is_deletion == is_deletion for damage in self.damages)
        if is_deletion:
            return of_kind > _DELETED
        return of_kind > _OVERWRITTEN or self.waits > 0


class SecretContention:
    """The step that decides, before `trigger` does, whether this damage has to wait."""

    def __init__(self, limits: BackoffLimits) -> None:
        self._limits = limits
        self._histories: dict[str, _History] = {}

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Begin a wait, or end a needless wait."""
        revision = snapshot.certificate.status.revision
        if revision is None or snapshot.is_issuing:
            return
        damage = _damage(snapshot)
        is_waiting = rules.is_contested(snapshot)
        is_deletion = snapshot.secret is None
        if is_waiting and (damage is None or _was_changed(snapshot)):
            # Sound again, or the cause was dealt with: no reason to wait any longer.
            draft.change(last_failure_time=None, failed_issuance_attempts=None)
            draft.remove_condition(reasons.ISSUING)
        elif damage is not None and not is_waiting:
            self._judge(damage, revision, snapshot, draft, is_deletion=is_deletion)

    def _judge(
        self, damage: Verdict, revision: int, snapshot: Snapshot, draft: Draft, *, is_deletion: bool
    ) -> None:
        retry_at = waits.retry_at(snapshot, self._limits)
        if retry_at is not None and retry_at > snapshot.now:
            return
        uid = snapshot.certificate.metadata.uid
        former = self._histories.get(uid, _History())
        history = former.with_damage(_Damage(revision, snapshot.now, is_deletion))
        if history.waited_at == revision or not history.is_fight(is_deletion=is_deletion):
            draft.note(self._remember, uid, history)
            return
        history = replace(history, waits=history.waits + 1, waited_at=revision)
        draft.note(self._remember, uid, history)
        message = _message(damage, snapshot)
        reason = reasons.SECRET_DELETED if is_deletion else reasons.SECRET_OVERWRITTEN
        failed_at = snapshot.now.replace(microsecond=0)
        draft.set_condition(reasons.ISSUING, "False", reason, message, now=snapshot.now)
        draft.set_retry(RetryRecord(failed_at=failed_at, message=message, by_request=False))
        draft.change(last_failure_time=failed_at, failed_issuance_attempts=history.waits)
        draft.add_event("Warning", reason, message)

    def _remember(self, uid: str, history: _History) -> None:
        if uid not in self._histories and len(self._histories) >= _REMEMBERED and history.last is not None:
            old = history.last - _QUIET
            self._histories = {
                k: h for k, h in self._histories.items() if h.last is not None and h.last > old
            }
        self._histories[uid] = history


def _was_changed(snapshot: Snapshot) -> bool:
    """Whether the spec was changed since the wait began, or the Secret that was overwritten deleted."""
    issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
    assert issuing is not None, "the wait stands in that condition"
    is_changed = issuing.observed_generation != snapshot.certificate.metadata.generation
    return is_changed or (snapshot.secret is None and issuing.reason != reasons.SECRET_DELETED)


def _damage(snapshot: Snapshot) -> Verdict | None:
    """The damage to the Secret by another writer, in the words of the rule that demands a new certificate."""
    if (broken := rules.first(rules.NO_PAIR, snapshot)) is not None:
        return broken
    foreign, request = rules.first(_FOREIGN, snapshot), snapshot.current_request
    # The spec is compared last: the comparison costs most, and the spec is nearly always unchanged.
    if foreign is None or request is None or snapshot.differences(request):
        return None
    return foreign


def _message(damage: Verdict, snapshot: Snapshot) -> str:
    name, secret = snapshot.certificate.spec.secret_name, snapshot.secret
    if secret is None:
        return (
            f'Secret "{name}" was deleted more than {_DELETED} times within an hour; new certificates for it '
            "are issued at growing intervals now"
        )
    who = " and ".join(f'"{other}"' for other in others_that_set(secret, _CHECKED_PARTS)) or "another program"
    return (
        f'Secret "{name}" is repeatedly overwritten by {who}; new certificates for it are issued at '
        "growing intervals now, until that ends or this Certificate has another spec.secretName. Found last: "
        f"{damage.message}"
    )
