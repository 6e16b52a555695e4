"""Keep the requests of the last revisions, and delete older ones.

Wakes on:  Ready=True; our CertificateRequests
Reads:     snapshot
Writes:    deletes CertificateRequests beyond spec.revisionHistoryLimit
Next:      –
"""

from __future__ import annotations

from certwright.controllers.certificates.effects import Did, Effects
from certwright.controllers.certificates.snapshot import Snapshot, revision_of
from certwright.kube.api import conditions
from certwright.resources import reasons


class Revisions:
    """Bounds the history. A request without a revision is not ours to judge, and stays."""

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Delete the oldest requests beyond the limit, of a Certificate that is Ready or is to be."""
        status = snapshot.certificate.status
        limit = snapshot.certificate.spec.revisions_kept
        # Where another writer keeps overwriting the Secret, no pass but the issuing one sees it Ready.
        is_well = conditions.is_true(status.conditions, reasons.READY) or snapshot.is_issuing
        if not is_well or limit < 1:
            return Did.NOTHING
        # One that is in progress, or has failed, belongs to the next revision and counts for nothing here.
        done = [r for r in snapshot.requests if 0 < revision_of(r) < snapshot.next_revision]
        beyond = sorted(done, key=revision_of)[:-limit]
        # All in one step: those of years, where the limit is new, are more than a pass has rounds.
        for request in beyond:
            await effects.delete_request(request)
        return Did.CLEARED if beyond else Did.NOTHING
