"""Which steps make up a pass over one Certificate, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from certwright.controllers import table
from certwright.controllers.acme.ari_poller import RenewalOffice
from certwright.controllers.certificates.contention import Fights
from certwright.controllers.certificates.issuing import Issuing
from certwright.controllers.certificates.keys import Keys
from certwright.controllers.certificates.readiness import Readiness
from certwright.controllers.certificates.reconcile import Steps
from certwright.controllers.certificates.renewal_info import RenewalInformation
from certwright.controllers.certificates.requests import Requests
from certwright.controllers.certificates.revisions import Revisions
from certwright.controllers.certificates.secret_sync import Upkeep
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.issuer_gate import IssuerGate
from certwright.controllers.settings import Settings

S = TypeVar("S")


def enabled_steps(
    names: frozenset[str],
    settings: Settings,
    gate: IssuerGate,
    renewals: RenewalOffice,
    has_failed_at: Callable[[datetime], bool],
) -> Steps:
    """The steps whose names (see `controllers/table.py`) are enabled. `has_failed_at`: see `Issuing`."""

    def enabled(*steps: tuple[str, S]) -> list[S]:
        return [step for name, step in steps if name in names]

    limits, owns_secrets = settings.limits, settings.certificate_owner_references
    fights, trigger = Fights(limits), Trigger(limits, gate.hold_of)
    keys, requests = Keys(settings.acme.policy), Requests(settings.copied_annotation_prefixes)
    issuing = Issuing(limits, owns_secrets=owns_secrets, has_failed_at=has_failed_at)
    upkeep = Upkeep(owns_secrets=owns_secrets)
    readiness, revisions = Readiness(), Revisions()
    renewal_info = RenewalInformation(renewals)
    return Steps(
        deciders=enabled(
            (table.TRIGGER, fights),
            (table.TRIGGER, trigger),
            (table.KEYS, keys),
            (table.ISSUING, issuing),
            (table.ISSUING, upkeep),
            (table.READINESS, renewal_info),
            (table.READINESS, readiness),
        ),
        actors=enabled(
            (table.KEYS, keys),
            (table.REQUESTS, requests),
            (table.ISSUING, issuing),
            (table.ISSUING, upkeep),
            (table.REVISIONS, revisions),
            (table.READINESS, renewal_info),
        ),
        wakers=enabled(
            (table.TRIGGER, trigger),
            (table.ISSUING, issuing),
            (table.ISSUING, upkeep),
            (table.READINESS, renewal_info),
            (table.READINESS, readiness),
        ),
    )
