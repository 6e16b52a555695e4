"""The page of certificates that are not managed here: in Secrets of other programs, in the files and on the
hosts that the operator has named for it.
"""

from __future__ import annotations

from typing import Any, Final

from certwright.dashboard.overview import visible_rows
from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import inventory
from certwright.diagnosis.inventory import Record
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError
from certwright.resources import names

_MOST: Final = 500


async def page(visit: Visit) -> View:
    """The page. Raises `ApiError`."""
    scope = await visit.scope("certificates")
    await visit.index.wait_synced()
    rows = visible_rows(visit.index, scope)
    records, refused = await _secrets(visit)
    elsewhere, problems = visit.tools.elsewhere, list[str]()
    if elsewhere.is_named and scope.everywhere:
        found = await elsewhere.find(visit.now.timestamp())
        records = inventory.linked([*records, *found.files, *found.hosts])
        problems = [*found.problems, *(record.problem for record in found.hosts if record.problem)]
    managed = {name for row in rows for name in row.names}
    context: dict[str, Any] = {
        "records": inventory.soonest_first(records, visit.now, None)[:_MOST],
        "more": max(len(records) - _MOST, 0),
        "managed": managed,
        "refused": refused,
        "problems": problems,
        "is_named": elsewhere.is_named,
        "may_see_hosts": scope.everywhere,
    }
    return View("elsewhere.html", context)


async def _secrets(visit: Visit) -> tuple[list[Record], bool]:
    """Records of TLS Secrets that no Certificate manages, and whether some may not be read."""
    scope = await visit.scope("secrets")
    places = [""] if scope.everywhere else sorted(scope.namespaces)
    found: list[Record] = []
    for namespace in places:
        try:
            listed = await visit.client.list(
                SECRETS,
                namespace,
                fields=f"type={names.TLS_SECRET_TYPE}",
                labels=f"{names.FAO_LABEL}!=true",
                limit=_MOST,
            )
        except ApiError:
            return found, True
        found += [inventory.of_secret(secret) for secret in listed.items]
    return found, not scope.everywhere
