"""The HTTP-01 solver inside a cluster: an Ingress or HTTPRoute leads to the listeners of the replicas.

Every object is in the Challenge's namespace, for the Challenge's name and the path of its token only, so the
author of a Challenge or issuer routes no other host and no other namespace.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from certwright.acme.solvers.contract import Check, NotYet, Ready, Solver, SolverError, Task
from certwright.controllers.acme.options import ClusterListener
from certwright.controllers.acme.routes import objects
from certwright.controllers.acme.routes.services import FIELD_MANAGER, Replicas, ServiceKey, SolverServices
from certwright.controllers.shims.annotations import PARENT_NAME
from certwright.kube.api.errors import ApiError, Conflict, Invalid, NotFound, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import JSON_PATCH, Client
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.clock import Clock
from certwright.resources.acme import Challenge
from certwright.resources.solver import HTTP01Solver
from certwright.resources.table import CHALLENGES

POD_TEMPLATE_IGNORED: Final = "PodTemplateIgnored"
_CONFLICTS: Final = 10
_NO_PARENT: Final = (
    f"http01.gatewayHTTPRoute.parentRefs of the solver is empty; name a Gateway there, or in the annotation "
    f"{PARENT_NAME} of the Certificate"
)
RESTORE_AFTER_S: Final = 10.0
"""A self-check that fails for this long makes sure that the objects still exist, and again after as long."""


class Routes:
    """Creates and removes the objects of Challenges. `shard_of` is the shard that a Challenge belongs to;
    empty: there are none."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        listener: ClusterListener,
        shard_of: Callable[[Challenge], str],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._shard_of = shard_of
        self._listener = listener
        self.clock = clock
        self.services = SolverServices(client, Replicas(client, clock, listener))
        # One edit of an Ingress at a time: they would only conflict.
        self._edits: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def add(self, challenge: Challenge, *, is_fresh: bool = True) -> None:
        """Create or restore the objects of the Challenge; with `is_fresh` False, a Service that this process
        has created is verified. Raises `SolverError`."""
        http01, key = _http01_of(challenge), self._service_of(challenge)
        with _reported(f"the Service {key.namespace}/{key.name}"):
            uid, service_type = challenge.metadata.uid, objects.service_type_of(challenge)
            await self.services.use(key, service_type, uid, is_fresh=is_fresh)
        if is_fresh:
            solver = http01.ingress or http01.gateway_http_route
            if solver is not None and solver.pod_template is not None:
                message = "podTemplate of the solver has no effect: no pod is created for a challenge"
                self._recorder.event(CHALLENGES, challenge, "Normal", POD_TEMPLATE_IGNORED, message)
        namespace = key.namespace
        if http01.gateway_http_route is not None:
            if not http01.gateway_http_route.parent_refs:
                raise SolverError(_NO_PARENT)
            route = objects.http_route(challenge, http01.gateway_http_route, key.name, self._listener)
            with _reported(f"the HTTPRoute {namespace}/{objects.name_of(challenge)}"):
                await self._apply(objects.HTTP_ROUTES, route)
        elif http01.ingress is not None and http01.ingress.name:
            rule = objects.ingress_rule(challenge, key.name, self._listener)
            await self._edit(namespace, http01.ingress.name, lambda current: patch_to_add(current, rule))
        elif http01.ingress is not None:
            ingress = objects.ingress(challenge, http01.ingress, key.name, self._listener)
            with _reported(f"the Ingress {namespace}/{objects.name_of(challenge)}"):
                await self._apply(objects.INGRESSES, ingress)

    async def remove(self, challenge: Challenge) -> None:
        """Remove what `add` has created, and undo the edit of an Ingress. Raises `SolverError`."""
        http01, key = _http01_of(challenge), self._service_of(challenge)
        namespace, name = key.namespace, objects.name_of(challenge)
        if http01.ingress is not None and http01.ingress.name:
            host, path = objects.host_of(challenge), objects.path_of(challenge)
            edited = http01.ingress.name
            await self._edit(
                namespace, edited, lambda current: patch_to_remove(current, host, path), may_be_missing=True
            )
        else:
            kind = objects.INGRESSES if http01.ingress is not None else objects.HTTP_ROUTES
            with _reported(f"the {kind.kind} {namespace}/{name}", "removed"):
                try:
                    await self._client.delete(kind, name, namespace)
                except NotFound:
                    pass
        with _reported(f"the Service {namespace}/{key.name}", "removed"):
            await self.services.release(key, challenge.metadata.uid)

    def _service_of(self, challenge: Challenge) -> ServiceKey:
        name = objects.service_name(objects.service_type_of(challenge), self._shard_of(challenge))
        return ServiceKey(challenge.metadata.namespace, name)

    async def _apply(self, kind: Kind[objects.Json], manifest: objects.Json) -> None:
        await self._client.apply(kind, manifest, field_manager=FIELD_MANAGER, force=True)

    async def _edit(
        self,
        namespace: str,
        name: str,
        patch_for: Callable[[objects.Json], Patch | None],
        *,
        may_be_missing: bool = False,
    ) -> None:
        """Patch an existing Ingress, again after each edit of another client."""
        async with self._edits[namespace, name]:
            with _reported(f"the Ingress {namespace}/{name}", "edited"):
                for _ in range(_CONFLICTS):
                    try:
                        ingress = await self._client.get(objects.INGRESSES, name, namespace)
                    except NotFound:
                        if may_be_missing:
                            return
                        raise SolverError(
                            f"the Ingress {namespace}/{name} does not exist; create it, or correct "
                            "http01.ingress.name of the solver"
                        ) from None
                    if (patch := patch_for(ingress)) is None or await self._patch(namespace, name, patch):
                        return
        raise SolverError(f"the Ingress {namespace}/{name} is being edited by another client; trying again")

    async def _patch(self, namespace: str, name: str, patch: Patch) -> bool:
        """False: the Ingress has changed since it was read."""
        try:
            await self._client.patch(objects.INGRESSES, name, namespace, patch, content_type=JSON_PATCH)
        except Conflict:
            return False
        except Invalid:
            # A failed test of the patch, or a rejected rule: the Ingress of now shows which.
            ingress = await self._client.get(objects.INGRESSES, name, namespace)
            if ingress["metadata"]["resourceVersion"] == patch[0]["value"]:
                raise
            return False
        return True


class RouteSolver:
    """A `Solver` of one Challenge: the listener of this process, and the objects that route to it."""

    def __init__(self, routes: Routes, listener: Solver, challenge: Challenge) -> None:
        self._routes = routes
        self._listener = listener
        self._challenge = challenge
        self._added_at: float | None = None

    async def present(self, task: Task) -> None:
        """See `Solver`. The response is served before anything leads to it."""
        await self._listener.present(task)
        await self._routes.add(self._challenge)
        self._added_at = self._routes.clock.monotonic()

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
        self._added_at = None
        await self._routes.remove(self._challenge)
        await self._listener.clean_up(task)

    async def restore(self) -> None:
        """Create objects again that another client has deleted or reverted. Raises `SolverError`."""
        now = self._routes.clock.monotonic()
        if self._added_at is not None and now - self._added_at >= RESTORE_AFTER_S:
            self._added_at = now
            await self._routes.add(self._challenge, is_fresh=False)


class RouteCheck:
    """A self-check that restores the objects of `solver` while it fails."""

    def __init__(self, solver: RouteSolver, check: Check) -> None:
        self._solver = solver
        self._check = check

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        outcome = await self._check.check(task)
        if isinstance(outcome, NotYet):
            try:
                await self._solver.restore()
            except SolverError as error:
                return replace(outcome, reason=f"{outcome.reason}; {error}")
        return outcome


def _http01_of(challenge: Challenge) -> HTTP01Solver:
    http01 = challenge.spec.solver.http01
    assert http01 is not None
    return http01


@contextmanager
def _reported(what: str, done: str = "created") -> Iterator[None]:
    try:
        yield
    except (ApiError, Unreachable) as error:
        raise SolverError(f"{what} cannot be {done}: {error}") from error


Json = dict[str, Any]
Patch = list[Json]


def patch_to_add(ingress: Json, rule: Json) -> Patch | None:
    """The JSON patch (RFC 6902) that adds the only path of `rule` to its host; None if the Ingress has the
    path.

    The Ingress belongs to a user. Each patch tests the `resourceVersion` that it was computed from, so a
    user's edit in between makes the patch fail, and the next attempt computes it again: no rule of the user
    is lost. The path goes before the user's paths of the host; without such paths, the whole rule is
    appended.
    """
    (path,) = rule["http"]["paths"]
    rules = _rules(ingress)
    for place, entry in _of_host(rules, rule.get("host", "")):
        for number, existing in enumerate(entry["http"]["paths"]):
            if existing.get("path") != path["path"]:
                continue
            if existing == path:
                return None
            # cert-manager's, with another Service.
            return _tested(ingress, "replace", f"/spec/rules/{place}/http/paths/{number}", path)
    for place, _ in _of_host(rules, rule.get("host", "")):
        return _tested(ingress, "add", f"/spec/rules/{place}/http/paths/0", path)
    if not rules:
        return _tested(ingress, "add", "/spec/rules", [rule])
    return _tested(ingress, "add", "/spec/rules/-", rule)


def patch_to_remove(ingress: Json, host: str, path: str) -> Patch | None:
    """Remove the path, and a rule that has no other; None if the Ingress does not have it."""
    removals: list[str] = []
    for place, entry in _of_host(_rules(ingress), host):
        paths = entry["http"]["paths"]
        ours = [number for number, existing in enumerate(paths) if existing.get("path") == path]
        if ours and len(ours) == len(paths):
            removals.append(f"/spec/rules/{place}")
        else:
            removals += [f"/spec/rules/{place}/http/paths/{number}" for number in ours]
    if not removals:
        return None
    if len(removals) == len(_rules(ingress)) and all(removal.count("/") == 3 for removal in removals):
        # An empty list of rules is not valid.
        return _tested(ingress, "remove", "/spec/rules")
    # The last first, because the numbers of those behind a removed one change.
    operations: Patch = [{"op": "remove", "path": removal} for removal in reversed(removals)]
    return [_test(ingress), *operations]


def _rules(ingress: Json) -> list[Json]:
    rules: list[Json] = ingress.get("spec", {}).get("rules") or []
    return rules


def _of_host(rules: list[Json], host: str) -> list[tuple[int, Json]]:
    """The rules for the host that have paths, with their places."""
    return [
        (place, rule)
        for place, rule in enumerate(rules)
        if rule.get("host", "") == host and (rule.get("http") or {}).get("paths")
    ]


def _tested(ingress: Json, operation: str, path: str, value: Any = None) -> Patch:
    change: Json = {"op": operation, "path": path}
    if operation != "remove":
        change["value"] = value
    return [_test(ingress), change]


def _test(ingress: Json) -> Json:
    version = ingress["metadata"]["resourceVersion"]
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}
