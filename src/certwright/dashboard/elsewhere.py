"""The page of unmanaged certificates: in Secrets of other programs, and in the files and on the hosts that
the operator has named for it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final

from certwright.dashboard.overview import visible_rows
from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import inventory
from certwright.diagnosis.inventory import Record
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError
from certwright.kube.client.listing import RawPage, decode_item
from certwright.resources import names

_MOST: Final = 500
_READ: Final = 10_000


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
    """Records of TLS Secrets without a Certificate, and whether Secrets are missing: Secrets that the user
    may not read, and Secrets beyond the first `_READ`."""
    scope = await visit.scope("secrets")
    places = [""] if scope.everywhere else sorted(scope.namespaces)
    found: list[Record] = []
    fields, labels = f"type={names.TLS_SECRET_TYPE}", f"{names.FAO_LABEL}!=true"
    is_whole = scope.everywhere
    for namespace in places:
        if len(found) >= _READ:
            return found, True
        pages = visit.client.list_pages(
            SECRETS, namespace, fields=fields, labels=labels, most=_READ - len(found)
        )
        try:
            async with aclosing(pages):
                async for page in pages:
                    found += await asyncio.to_thread(_records, page)
                    is_last = not page.continue_token
            is_whole = is_whole and is_last
        except ApiError:
            return found, True
    return found, not is_whole


def _records(page: RawPage) -> list[Record]:
    return [inventory.of_secret(decode_item(SECRETS, item)) for item in page.items]
