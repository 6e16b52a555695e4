"""Controllers of CustomResourceDefinitions: they accept or refuse names, and establish definitions.

Kubernetes' controllers do this shortly after a write. Here it happens before the writer gets its answer,
which still shows the definition as written: so a client that creates a definition and then a custom object
need not wait.

Source: apiextensions-apiserver `pkg/controller`.
"""

from __future__ import annotations

from typing import Any

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds import status as crd_status
from certwright.kube.apiserver.crds.status import Taken
from certwright.kube.apiserver.fieldmanager import managed
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import WHOLE
from certwright.kube.apiserver.model.objects import outline
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.store.contract import Changed, Missing, Row
from certwright.kube.util.http_messages import Identity, Request

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
BUCKET = f"{GROUP}/{PLURAL}"
_AGENT = "kube-apiserver"
_MOST_WRITES = 20
_MYSELF = Identity("system:apiserver", groups=("system:masters",))


class DefinitionControllers:
    """Write the status of definitions. An observer of writes: it indexes the accepted names."""

    observed_buckets = (BUCKET,)

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._names: dict[str, tuple[str, Json]] = {}
        self._released: set[str] = set()  # groups in which a name may have been released

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Record the names of a definition."""
        crd = outline(definition, row)
        now = (crd["spec"]["group"], crd["status"]["acceptedNames"])
        before = self._names.get(row.key.name)
        self._names[row.key.name] = now
        if before is not None and before[1]["plural"] and before != now:
            self._released.add(now[0])

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Release the names of a removed definition: other definitions of its group may wait for them."""
        group, _ = self._names.pop(row.key.name, ("", None))
        if any(other == group for other, _ in self._names.values()):
            self._released.add(group)
            self._backend.tasks.start(self.settle(""), name=f"names of {group}")

    async def settle(self, name: str) -> None:
        """Write the status of a definition until no controller changes it, then of definitions that waited
        for its names."""
        if name:
            await self._settle_definition(name)
        while self._released:
            group = self._released.pop()
            for other in [other for other, (its, _) in self._names.items() if its == group]:
                await self._settle_definition(other)

    async def _settle_definition(self, name: str) -> None:
        for _ in range(_MOST_WRITES):
            try:
                if not await self._step(name):
                    return
            except Changed:
                continue
            except Missing:
                return

    async def _step(self, name: str) -> bool:
        """Let one controller make one write; returns whether there was one."""
        backend = self._backend
        definition = backend.registry.by_resource(GROUP, PLURAL)
        assert definition is not None, "it is built in"
        call = _call(definition, name)
        row = await backend.store.latest(call.key)
        if row is None:
            return False
        old = outline(definition, row)
        now = self._backend.timestamp()
        accepted = [names for its, names in self._names.values() if its == old["spec"]["group"]]
        words = {names.get(field) or "" for names in accepted for field in ("plural", "singular")}
        words.update(word for names in accepted for word in names.get("shortNames") or ())
        taken = Taken(words, {names.get(field) or "" for names in accepted for field in ("kind", "listKind")})
        status = (
            crd_status.with_names(old, taken, now)
            or crd_status.with_established(old, now)
            or crd_status.with_approval(old, now)
        )
        if status is None:
            return False
        new = with_status(backend, definition, old, status)
        await backend.put(definition, call.key, objects.columns(new), previous=row)
        return True


def with_status(backend: Backend, definition: ResourceDefinition, crd: Json, status: Json) -> Json:
    """A definition with a new status from a controller."""
    new = {**crd, "metadata": dict(crd["metadata"]), "status": status}
    managed.on_update(backend, _call(definition, crd["metadata"]["name"]), new, crd)
    return new


def _call(definition: ResourceDefinition, name: str) -> Call:
    path = f"/apis/{GROUP}/v1/{PLURAL}/{name}/status"
    request = Request("PUT", path, {"user-agent": _AGENT}, user=_MYSELF)
    route = Route(GROUP, "v1", "", PLURAL, name, "status")
    query: dict[str, Any] = {}
    return Call(request, _MYSELF, "update", definition, route, query, WHOLE)
