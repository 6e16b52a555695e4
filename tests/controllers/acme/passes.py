"""One pass of a reconciler over one object: what surrounds the reconcilers of Orders and of Challenges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

from certwright.controllers.toolbox import Toolbox


class Around:
    """The surroundings of a reconciler of `obj`: they record in `log` what is called, and answer as `answers`
    says, by name. An answer that is an exception is raised."""

    def __init__(self, obj: Any, answers: Mapping[str, Any], now: datetime) -> None:
        self.obj = self.before = obj
        self.answers = answers
        self.log: list[str] = []
        recorder = SimpleNamespace(event=lambda *event: self.log.append(f"event {event[3]}"))
        self.toolbox = Toolbox(
            client=cast(Any, SimpleNamespace(patch=self.patch)),
            recorder=cast(Any, recorder),
            executor=cast(Any, SimpleNamespace(run=self._execute)),
            now=lambda: now,
        )
        cache = SimpleNamespace(get=lambda _key: self.obj)
        self.informer = cast(Any, SimpleNamespace(cache=cache, put=self._put))
        self.committer = cast(Any, SimpleNamespace(commit=self._commit))

    def answer(self, name: str, default: Any = None) -> Any:
        """The answer of that name."""
        answer = self.answers.get(name, default)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def part(self, logged: str, name: str = "", default: Any = None) -> Callable[..., Any]:
        """A function that records that it is called, and gives the answer of that name."""

        def call(*_arguments: Any) -> Any:
            self.log.extend([logged] if logged else [])
            return self.answer(name or logged, default)

        return call

    def later(self, logged: str, name: str = "", default: Any = None) -> Callable[..., Awaitable[Any]]:
        """A coroutine function like `part`."""
        part = self.part(logged, name, default)

        async def call(*arguments: Any) -> Any:
            return part(*arguments)

        return call

    def changed_status(self) -> dict[str, Any]:
        """The fields of the status that the pass has changed."""
        before, after = self.before.status, self.obj.status
        pairs = {name: (getattr(before, name), getattr(after, name)) for name in after.__struct_fields__}
        return {name: new for name, (old, new) in pairs.items() if old != new}

    async def patch(self, _kind: Any, _name: str, _namespace: str, patch: dict[str, Any]) -> Any:
        """Record a patch of the metadata."""
        raise NotImplementedError

    async def _execute(self, function: Callable[[], Any], _namespace: str) -> Any:
        return function()

    async def _commit(self, _kind: Any, _old: Any, new: Any) -> Any:
        self.log.append("write")
        self.obj = new
        return new

    def _put(self, obj: Any) -> None:
        self.obj = obj
