"""What the functions of pages get and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.dashboard.access import Credential, Options
from certwright.dashboard.elsewhere_sources import Elsewhere
from certwright.dashboard.index import Index, Scope, scope_of
from certwright.dashboard.log_lines import LogLines
from certwright.dashboard.sessions import Session
from certwright.diagnosis import related
from certwright.diagnosis.certificates import RelatedObjects
from certwright.diagnosis.orders import order_names
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity, Response
from certwright.resources.names import GROUP, SETS_GROUP

_REST: Final = 20
"""For how much longer than it took to ask an answer to what a user may list is used again."""
_GROUPS: Final = {"deliveries": SETS_GROUP, "secrets": "", "events": ""}
_LONGEST_S: Final = 9.0
"""But for no longer than this."""
_MOST: Final = 1_000
_LISTED: Final = 10_000
"""Objects of a namespace among which those of a certificate are searched: a tenth of a second of work."""


class _Rights(msgspec.Struct):
    """The rights of a user, as asked from `begun` on (monotonic, seconds): until `until`, or while the
    generation of all rights is the same."""

    generation: int | None
    namespaces: Sequence[str]
    begun: float
    until: float = 0.0
    rules: dict[str, Sequence[dict[str, Any]]] = {}
    scopes: dict[str, Scope] = {}


class Scopes:
    """The scopes of users, as the API has answered. `generation` changes with every right of any user; None:
    unknown, so the API is asked again after moments."""

    def __init__(self, clock: Clock, generation: Callable[[], int | None] = lambda: None) -> None:
        self._clock = clock
        self._generation = generation
        self._known: dict[object, _Rights] = {}

    async def of(self, client: Client, identity: Identity, plural: str, index: Index) -> Scope:
        """What the user may list of a resource, in the namespaces of the index. Raises `ApiError`."""
        await index.wait_synced()
        now, generation, namespaces = self._clock.monotonic(), self._generation(), index.namespaces
        # A token may be restricted by `extra`.
        key = (identity.name, identity.groups, tuple(sorted(identity.extra.items())))
        rights = self._known.get(key)
        if (
            rights is None
            or rights.namespaces != namespaces
            or rights.generation != generation
            or (generation is None and now >= rights.until)
        ):
            if len(self._known) > _MOST:
                self._known.clear()
            rights = self._known[key] = _Rights(generation, namespaces, now)
        scope = rights.scopes.get(plural)
        if scope is None:
            group = _GROUPS.get(plural, GROUP)
            scope = rights.scopes[plural] = await scope_of(client, group, plural, namespaces, rights.rules)
            # Where the question takes long, because there are many namespaces, it is asked more rarely.
            spent = self._clock.monotonic() - rights.begun
            rights.until = rights.begun + min((1 + _REST) * spent, max(_LONGEST_S, 2 * spent))
        return scope


@dataclass
class Tools:
    """The tools that the pages share: the index (made at its first use), the users' scopes, lines of the log,
    and the settings."""

    index: Callable[[], Index]
    scopes: Scopes
    log: LogLines
    options: Options
    elsewhere: Elsewhere


@dataclass
class Visit:
    """One request of an authenticated user. `path` is below /ui/, `root` the relative path from it to /ui/.
    `form`: the fields of a POST; `notice`: the result of the POST before, as a sentence."""

    path: str
    query: Mapping[str, str]
    identity: Identity
    credential: Credential
    session: Session | None
    client: Client
    tools: Tools
    now: datetime
    form: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    notice: str = ""

    @property
    def root(self) -> str:
        """`./`, `../`, `../../`: the way from this page to /ui/."""
        return "../" * self.path.count("/") or "./"

    async def scope(self, plural: str) -> Scope:
        """The objects of that resource that the user may list. Raises `ApiError`."""
        return await self.tools.scopes.of(self.client, self.identity, plural, self.index)

    async def related_objects(self, certificate: Mapping[str, Any], *, most: int = _LISTED) -> RelatedObjects:
        """The objects related to a Certificate, as far as the user may read them. Lists are read up to `most`
        objects, so that the cost does not depend on their lengths. Raises `ApiError`."""
        return await related.read_related(self.client, dict(certificate), most=most, order_names=order_names)

    @property
    def index(self) -> Index:
        """The index of certificates."""
        return self.tools.index()

    @property
    def command(self) -> str:
        """How the commands on the page begin."""
        return self.tools.options.command


@dataclass
class View:
    """The content of a page. `live`: the blocks of the template that are sent again when they change;
    `details`: the namespace whose requests, orders, challenges and Events change them, too; `*` for all."""

    template: str
    context: Mapping[str, Any]
    live: tuple[str, ...] = ()
    details: str = ""
    status: int = 200


ViewFunction = Callable[[Visit], Awaitable[View | Response]]


@dataclass
class Done:
    """The result of a form: `path` below /ui/ of the page that follows, and a sentence."""

    path: str
    said: str


ActFunction = Callable[[Visit], Awaitable[Done]]
"""Does what a form asks for. Raises `ApiError`."""
