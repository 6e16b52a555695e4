"""Health endpoints: `/healthz`, `/livez` and `/readyz`, as a whole and per check.

The checks have the names of Kubernetes', so that existing probes and dashboards work; the check of the store
is `etcd`.

Source: Kubernetes documentation, "Kubernetes API health endpoints"; words of apiserver
`pkg/server/healthz/healthz.go`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from urllib.parse import parse_qs

from certwright.kube.store.contract import Key, Limited, Store, StoreError
from certwright.kube.store.key_rotation import Sealed
from certwright.kube.util.http_messages import Response

_log = logging.getLogger(__name__)
_TEXT = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
_ALIVE = ("ping", "log", "etcd")
_CHECKS: Mapping[str, Sequence[str]] = {
    "healthz": _ALIVE,
    "livez": _ALIVE,
    "readyz": (*_ALIVE, "etcd-readiness", "informer-sync", "shutdown"),
}
_PROBE_KEY = Key("healthz", "", "healthz")


class Health:
    """The health of a server.

    `started`: it has loaded what it needs to answer; `stopping`: it accepts no more work. `budget_s`: timeout
    of each check, as kube-apiserver has for its check of etcd; all checks of a request run concurrently.
    """

    def __init__(self, store: Store, *, budget_s: float = 2.0) -> None:
        self._budget_s = budget_s
        self.started = False
        self.stopping = False
        self._store = store

    async def respond(self, path: str, query: str, *, gives_reasons: bool = True) -> Response | None:
        """The answer for a health path, None for any other. `query` is the text after the `?`.
        `gives_reasons`: whether the caller may see why a check fails, which can name files."""
        root, _, check = path.strip("/").partition("/")
        checks = _CHECKS.get(root)
        if checks is None or (check and check not in checks):
            return None
        if check:
            problem = await self._problem(check)
            return _text(500, f"internal server error: {problem}\n") if problem else _text(200, "ok")
        asked = parse_qs(query, keep_blank_values=True)
        is_verbose, excluded = "verbose" in asked, asked.get("exclude", [])
        gives_reasons = gives_reasons and is_verbose
        lines: list[str] = []
        failed = False
        # Concurrently, so that one slow check does not use up a probe's time for the others.
        included = [check for check in checks if check not in excluded]
        problems = dict(zip(included, await asyncio.gather(*map(self._problem, included)), strict=True))
        for check in checks:
            if check in excluded:
                lines.append(f"[+]{check} excluded: ok\n")
            elif problem := problems[check]:
                failed = True
                _log.warning("%s check %s failed: %s", root, check, problem)
                # Kubernetes withholds the reason here; `/readyz/CHECK` gives it to the same readers.
                lines.append(f"[-]{check} failed: {problem if gives_reasons else 'reason withheld'}\n")
            else:
                lines.append(f"[+]{check} ok\n")
        if unknown := ", ".join(f'"{name}"' for name in sorted(set(excluded) - set(checks))):
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}\n")
        if gives_reasons:
            lines += [f"warn: {row}\n" for row in self._store.damage]
            if isinstance(self._store, Limited) and (usage := self._store.usage) and usage.warning:
                lines.append(f"warn: {usage.warning}\n")
            if isinstance(self._store, Sealed) and (rotation := self._store.rotation) and rotation.warning:
                lines.append(f"warn: {rotation.warning}\n")
        if failed:
            return _text(500, f"{''.join(lines)}{root} check failed\n")
        return _text(200, f"{''.join(lines)}{root} check passed\n" if is_verbose else "ok")

    async def _problem(self, check: str) -> str:
        """The problem; empty when the check passes."""
        match check:
            case "etcd":
                return await self._problem_of(self._store.get(_PROBE_KEY))
            case "etcd-readiness":
                # Not a liveness check, because a restart does not help against a full disk.
                return await self._problem_of(self._store.check())
            case "informer-sync":
                return "" if self.started else "the server is still loading what it serves"
            case "shutdown":
                return "process is shutting down" if self.stopping else ""
            case _:
                return ""

    async def _problem_of(self, work: Awaitable[object]) -> str:
        """Why the store cannot do it; empty when it can."""
        try:
            async with asyncio.timeout(self._budget_s):
                await work
        except TimeoutError:
            cause = self._store.trouble
            return f"the store does not answer within {self._budget_s:g} s{f' ({cause})' if cause else ''}"
        except StoreError as error:
            return str(error)
        return ""


def _text(status: int, text: str) -> Response:
    return Response(status, dict(_TEXT), text.encode())
