"""Deciding about a Certificate changes nothing but the draft: Events and notes follow the write."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import reconcile
from certwright.controllers.certificates.contention import SecretContention
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.issuing import Issuing
from certwright.controllers.certificates.keys import Keys
from certwright.controllers.certificates.readiness import Readiness
from certwright.controllers.certificates.reconcile import Decides
from certwright.controllers.certificates.secret_sync import CONFLICT, SecretSync
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.controllers.certificates.trigger import Trigger
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources.certificate import Certificate
from certwright.resources.operator_policy import OperatorPolicy
from controllers.test_rules import DATA, certificate, secret, snapshot
from support.world import START, condition_of

MINUTE = timedelta(minutes=1)
BROKEN = {"tls.key": DATA["tls.key"]}


def steps() -> tuple[Decides, ...]:
    """The steps that own a part of the status, in their order."""
    limits = BackoffLimits()
    return (
        SecretContention(limits),
        Trigger(limits),
        Keys(OperatorPolicy()),
        Issuing(limits),
        SecretSync(),
        Readiness(),
    )


def apply(draft: Draft) -> None:
    """What the reconciler does after the write."""
    for note in draft.notes:
        note.apply(*note.args)


def showing(kind: str, status: str, reason: str) -> Certificate:
    """A Certificate with that condition."""
    current = certificate()
    condition = Condition(type=kind, status=status, reason=reason, message="m")
    with_condition = conditions.with_condition(current.status.conditions, condition, START)
    changed = msgspec.structs.replace(current.status, conditions=with_condition)
    return msgspec.structs.replace(current, status=changed)


def damaged(revision: int, now: datetime) -> Snapshot:
    """A Certificate at that revision whose Secret was overwritten."""
    current = certificate()
    status = msgspec.structs.replace(current.status, revision=revision)
    current = msgspec.structs.replace(current, status=status)
    return snapshot(certificate=current, now=now, secret=secret(BROKEN))


CASES: dict[str, dict[str, Any]] = {
    "nothing is due": {},
    "the Secret is missing": {"secret": None},
    "the Secret is overwritten": {"secret": secret(BROKEN)},
    "an issuance begins": {"certificate": showing("Issuing", "True", "DoesNotExist"), "secret": None},
    "a conflict of an earlier process": {"certificate": showing("Issuing", "False", CONFLICT)},
}


@pytest.mark.parametrize("case", CASES)
def test_deciding_twice_on_one_snapshot_gives_the_same_draft(case: str) -> None:
    deciders, around = steps(), snapshot(**CASES[case], suffix="abcde")
    first = reconcile.decide(deciders, around)
    assert reconcile.decide(deciders, around) == first
    # A write that fails leaves nothing behind: a process that has not decided yet decides alike.
    assert reconcile.decide(steps(), around).certificate == first.certificate


def test_a_damage_counts_once_its_status_is_written() -> None:
    deciders = steps()
    for revision in range(1, 4):
        apply(reconcile.decide(deciders, damaged(revision, START + revision * MINUTE)))
    last = damaged(4, START + 4 * MINUTE)
    drafts = [reconcile.decide(deciders, last) for _ in range(3)]
    assert drafts[0] == drafts[1] == drafts[2]
    condition = condition_of(drafts[0].certificate, "Issuing")
    assert (condition.status, condition.reason) == ("False", "SecretOverwritten")
    assert drafts[0].certificate.status.failed_issuance_attempts == 1


def test_a_damage_whose_status_was_not_written_does_not_count() -> None:
    deciders = steps()
    for revision in range(1, 10):
        reconcile.decide(deciders, damaged(revision, START + revision * MINUTE))
    draft = reconcile.decide(deciders, damaged(10, START + 10 * MINUTE))
    condition = condition_of(draft.certificate, "Issuing")
    assert condition.status == "True"


def test_a_new_key_gets_the_letters_of_the_snapshot() -> None:
    issuing = showing("Issuing", "True", "DoesNotExist")
    draft = Draft(issuing)
    Keys(OperatorPolicy()).decide(snapshot(certificate=issuing, secret=None, suffix="abcde"), draft)
    assert draft.certificate.status.next_private_key_secret_name == "web-abcde"
