"""The first page: is everything all right, what needs attention, what happens next; and the same as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from certwright.dashboard.index import Row, State
from certwright.dashboard.visit import View, Visit
from certwright.kube.util.http_messages import Response


async def rows_of(visit: Visit) -> list[Row]:
    """The certificates that the user may list. Raises `ApiError`."""
    await visit.index.wait_synced()
    scope = await visit.scope("certificates")
    return [row for row in visit.index.rows.values() if scope.allows(row.namespace, row.name)]


def needs_attention(row: Row, now: float) -> bool:
    """Whether somebody has to look: it fails, has ended, or waits for something that is missing."""
    is_over = bool(row.not_after) and row.not_after <= now
    return row.state in (State.FAILED, State.WAITING) or is_over


async def page(visit: Visit) -> View:
    """The first page."""
    rows, now = await rows_of(visit), visit.now.timestamp()
    context = {
        "total": len(rows),
        "attention": [row for row in rows if needs_attention(row, now)],
        "rows": sorted(rows, key=lambda row: row.key)[:50],
    }
    return View("overview.html", context, live=("banner", "attention", "certificates"))


async def status_json(visit: Visit) -> Response:
    """`/ui/status.json`: the facts of the first page."""
    rows, now = await rows_of(visit), visit.now.timestamp()
    content: dict[str, Any] = {
        "total": len(rows),
        "attention": [{"namespace": r.namespace, "name": r.name} for r in rows if needs_attention(r, now)],
        "certificates": [msgspec.structs.asdict(row) for row in sorted(rows, key=lambda row: row.key)],
    }
    return Response(200, {"content-type": "application/json"}, msgspec.json.encode(content))
