"""Background tasks with an owner: each belongs to a group, which reports its failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class TaskSet:
    """Tasks that live until `close`; a task that ends with an error is logged and passed to `failed`.

    Unlike `asyncio.TaskGroup` a `TaskSet` is no context manager, so components can be started and stopped by
    hand.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed: asyncio.Event = asyncio.Event()
        self.error: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `work` in the background under `name`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("background task %s failed", task.get_name(), exc_info=error)
        if self.error is None:
            self.error = error
        self.failed.set()

    async def close(self) -> None:
        """Cancel the running tasks, and tasks started during that, and wait until all have ended."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # From Python 3.12 on, gathering tasks that have ended does not return to the loop, which calls
            # `_ended`.
            self._tasks.difference_update(tasks)
