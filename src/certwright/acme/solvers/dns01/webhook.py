"""DNS-01 by an external webhook, in cert-manager's protocol, so that existing webhooks work.

Source: cert-manager `pkg/acme/webhook/apis/acme/v1alpha1/types.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from certwright.acme.solvers.contract import SolverError, Task
from certwright.acme.solvers.names import NameServers, resolved_record, zone_of
from certwright.kit.outgoing import quote

_VERSION = "webhook.acme.cert-manager.io/v1alpha1"

Call = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Posts a ChallengePayload to the solver's API and returns its response. Raises `SolverError`."""


class Webhook:
    """Calls the webhook. `config` is passed through; `namespace`: of the Secrets that it names; `ambient`:
    whether the webhook may use its ambient credentials."""

    def __init__(
        self,
        call: Call,
        names: NameServers,
        *,
        namespace: str,
        config: object = None,
        ambient: bool = False,
        follow: bool = False,
    ) -> None:
        self._call = call
        self._names = names
        self._namespace = namespace
        self._config = config
        self._ambient = ambient
        self._follow = follow

    async def present(self, task: Task) -> None:
        await self._send("Present", task)

    async def clean_up(self, task: Task) -> None:
        await self._send("CleanUp", task)

    async def _send(self, action: str, task: Task) -> None:
        record = await resolved_record(task, self._names, follow=self._follow)
        zone = await zone_of(record, self._names)
        request: dict[str, Any] = {
            "uid": task.uid,
            "action": action,
            "type": "dns-01",
            "dnsName": task.identifier,
            "key": task.key,
            "resourceNamespace": self._namespace,
            "resolvedFQDN": f"{record}.",
            "resolvedZone": f"{zone}.",
            "allowAmbientCredentials": self._ambient,
        }
        if self._config is not None:
            request["config"] = self._config
        answer = await self._call({"apiVersion": _VERSION, "kind": "ChallengePayload", "request": request})
        response = answer.get("response")
        if not isinstance(response, Mapping) or response.get("success") is not True:
            status = response.get("status") if isinstance(response, Mapping) else None
            status = status if isinstance(status, Mapping) else {}
            reason = quote(str(status.get("message") or status.get("reason") or "it gives no reason"))
            raise SolverError(f"the webhook refused {action} for {record}: {reason}")
