"""Workers of the server's own controllers: a queue, one task, and retries; and their requests."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from certwright.kube.api.errors import ApiError
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.negotiation import JSON
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.store.contract import Changed, Missing, StoreError
from certwright.kube.util.http_messages import Handler, Identity, Request, Response

_log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 256
_MOST_REFUSALS = 10

T = TypeVar("T")


class OwnClient:
    """Client of the server's own controllers: their writes pass admission, like those of any client. The user
    is a member of system:masters."""

    def __init__(self, handle: Handler, user: Identity) -> None:
        self._handle = handle
        self._user = user

    async def send(
        self,
        method: str,
        path: str,
        obj: Json | None = None,
        *,
        agent: str = "kube-controller-manager",
        media: str = JSON,
    ) -> Response:
        """The answer to a request. `agent`: the field manager."""
        body = encode_json(obj) if obj is not None else b""
        headers = {"user-agent": agent, "content-type": media}
        return await self._handle(Request(method, path, headers, body, self._user))


class Worker(Generic[T]):
    """A queue of distinct items, and the task that processes them one after the other.

    An item that fails is processed again: after a second where the store fails, after growing pauses where
    the server refuses a write, e.g. because a webhook is unavailable. With `gives_up` an item is dropped
    after ten refusals that the server is not to blame for. `name`, of the work, is for the log.
    """

    def __init__(
        self, backend: Backend, name: str, process: Callable[[T], Awaitable[None]], *, gives_up: bool = False
    ) -> None:
        self._backend = backend
        self._name = name
        self._process = process
        self._gives_up = gives_up
        self._waiting: OrderedDict[T, None] = OrderedDict()
        self._added = asyncio.Event()
        self._is_working = False
        self._refusals: dict[T, int] = {}  # consecutive ones

    @property
    def idle(self) -> bool:
        """Whether no item waits or is being processed."""
        return not self._waiting and not self._is_working

    def add(self, item: T) -> None:
        """Enqueue an item, unless it waits already."""
        self._waiting[item] = None
        self._added.set()

    async def run(self) -> None:
        """Process items until cancelled."""
        while True:
            await self._added.wait()
            await self.work_off()

    async def work_off(self) -> None:
        """Process the items that wait."""
        self._added.clear()
        while self._waiting:
            item, _ = self._waiting.popitem(last=False)
            self._is_working = True
            try:
                await self._process(item)
            except (Changed, Missing):
                self.add(item)
            except StoreError:
                _log.warning("%s: %s failed and is tried again", self._name, item, exc_info=True)
                await self._backend.clock.sleep(1)
                self.add(item)
            except ApiError as error:
                self._put_off(item, error)
            else:
                self._refusals.pop(item, None)
            finally:
                self._is_working = False
            await asyncio.sleep(0)  # most items are processed without any waiting

    def _put_off(self, item: T, error: ApiError) -> None:
        refusals = self._refusals.pop(item, 0) + 1
        if self._gives_up and refusals > _MOST_REFUSALS and error.http_status < 500:
            _log.warning("%s: %s is given up: %s", self._name, item, error)
            return
        self._refusals[item] = refusals
        _log.warning("%s: %s is refused and tried again: %s", self._name, item, error)

        async def add_later() -> None:
            await self._backend.clock.sleep(min(2**refusals, _LONGEST_PAUSE_S))
            self.add(item)

        self._backend.tasks.start(add_later(), name=f"{self._name}, again")
