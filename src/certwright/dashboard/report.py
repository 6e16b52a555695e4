"""The first page as one file, and as text: for mail, auditors and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from certwright.dashboard.access import Credential, Options
from certwright.dashboard.elsewhere_sources import Elsewhere
from certwright.dashboard.index import Index, Scope
from certwright.dashboard.log_lines import LogLines
from certwright.dashboard.overview import Overview, Query, as_json, overview
from certwright.dashboard.rendering import environment, static_files
from certwright.dashboard.visit import Scopes, Tools, Visit
from certwright.diagnosis.words import count
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity

_MOST = 100_000
_PATIENCE_S = 300.0
"""How long the lists of a report may take: it says "so far" where that was not enough."""


class _Everything(Scopes):
    """All rows are visible: the user's own client has listed the index."""

    async def of(self, client: Client, identity: Identity, plural: str, index: Index) -> Scope:  # noqa: ARG002
        return Scope(everywhere=True)


class Report:
    """The content of the first page for the user of the client, of one namespace or all."""

    def __init__(self, shown: Overview, visit: Visit) -> None:
        self._shown = shown
        self._visit = visit

    def html(self) -> str:
        """One file without scripts and external references."""
        style = next(content for name, (_, content) in static_files().items() if name.endswith(".css"))
        context = {
            "it": self._shown,
            "root": "#",
            "path": "",
            "query": {},
            "user": "",
            "now": self._visit.now,
            "is_read_only": True,
            "form_token": "",
            "command": self._visit.command,
            "live": (),
            "notice": "",
            "is_report": True,
            "style": Markup(style.decode()),  # noqa: S704 - our own file
        }
        return environment().get_template("overview.html").render(context)

    def json(self) -> dict[str, Any]:
        """As `/ui/status.json`."""
        return as_json(self._shown, self._visit.now, _MOST)

    def lines(self) -> Sequence[str]:
        """The sentence, and what needs attention, in lines of text."""
        shown = self._shown
        lines = [f"{shown.headline}."]
        for incident in shown.incidents:
            number = count(len(incident.rows), "certificate")
            place = f"{incident.namespace}/" if incident.namespace else ""
            lines.append(f"{incident.kind} {place}{incident.name}: {incident.cause} ({number})")
        for card in shown.cards:
            lines.append(f"{card.row.namespace}/{card.row.name}: {card.diagnosis}")
        return [*lines, *([f"and {shown.more:,} more"] if shown.more else [])]


async def make_report(client: Client, clock: Clock, *, namespace: str = "") -> Report:
    """The report for the user of `client`, of that namespace or all. Raises `ApiError`."""
    index, log = Index(client, clock, namespace=namespace), LogLines()
    try:
        await index.wait_synced(patience_s=_PATIENCE_S)
        tools = Tools(lambda: index, _Everything(clock), log, Options(seal_key=b""), Elsewhere((), ()))
        identity = Identity("")
        visit = Visit("", {}, identity, Credential(), None, client, tools, clock.now())
        return Report(await overview(visit, Query(), limit=_MOST), visit)
    finally:
        log.close()
        await index.close()
