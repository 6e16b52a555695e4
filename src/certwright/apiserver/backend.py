"""What the verbs share: store and registry, one understood request, errors in common words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.namespaces import Namespaces
from certwright.apiserver.negotiation import Form
from certwright.apiserver.registry import Registry
from certwright.apiserver.routes import Route
from certwright.kit.clock import Clock
from certwright.kit.exchange import Identity, Request
from certwright.resources.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Details,
    MethodNotAllowed,
    NotFound,
)
from certwright.store.contract import Key, Row, Store


class Observer(Protocol):
    """Is told of every committed write, on the loop, before the writer gets its answer."""

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """`row` was created, or replaced `previous`."""

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """`row` is gone."""


class Dependents(Protocol):
    """Knows who belongs to whom."""

    async def orphan(self, uid: str) -> None:
        """Take the owner of that uid out of the owner references of all its dependents."""


@dataclass(slots=True)
class Backend:
    """The parts that verbs work with.

    `observers` are called for writes through this server. A store that several servers write to will have to
    feed them from watches instead; nothing else here would change.
    """

    store: Store
    registry: Registry
    clock: Clock
    namespaces: Namespaces
    name_suffix: Callable[[], str]
    observers: list[Observer] = field(default_factory=list)
    dependents: Dependents = field(init=False)

    def timestamp(self) -> str:
        """The time now as Kubernetes writes it: UTC, whole seconds."""
        return self.clock.now().isoformat()[:19] + "Z"

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Tell the observers of a committed creation or update."""
        for observer in self.observers:
            observer.wrote(definition, row, previous)

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Tell the observers of a committed deletion."""
        for observer in self.observers:
            observer.removed(definition, row)


@dataclass(slots=True)
class Call:
    """One request for a resource, authenticated, allowed, and taken apart. `warnings` go into the answer."""

    request: Request
    user: Identity
    verb: str
    definition: ResourceDefinition
    route: Route
    query: Mapping[str, str]
    form: Form
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """Where the named object lies."""
        return Key(self.definition.bucket, self.route.namespace, self.route.name)

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored. Raises `BadRequest` for a value that nobody knows."""
        wanted = self.query.get("dryRun")
        if wanted is None:
            return False
        if wanted != "All":
            raise BadRequest(f'dryRun: Unsupported value: "{wanted}": supported values: "All"')
        return True


def details(definition: ResourceDefinition, name: str = "", *, uid: str = "") -> Details:
    """What an error is about; Kubernetes puts the plural where it says `kind`."""
    return Details(name=name, group=definition.group, kind=definition.plural, uid=uid)


def not_found(definition: ResourceDefinition, name: str) -> NotFound:
    """There is no such object."""
    return NotFound(f'{definition.resource} "{name}" not found', details=details(definition, name))


def already_exists(definition: ResourceDefinition, name: str) -> AlreadyExists:
    """The name is taken."""
    return AlreadyExists(f'{definition.resource} "{name}" already exists', details=details(definition, name))


def conflict(definition: ResourceDefinition, name: str, detail: str = "") -> Conflict:
    """Somebody else was faster, or a precondition does not hold."""
    detail = detail or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    return Conflict(
        f'Operation cannot be fulfilled on {definition.resource} "{name}": {detail}',
        details=details(definition, name),
    )


def not_supported(definition: ResourceDefinition, verb: str) -> ApiError:
    """The resource does not do that."""
    return MethodNotAllowed(
        f'{verb} is not supported on resources of kind "{definition.resource}"', details=details(definition)
    )
