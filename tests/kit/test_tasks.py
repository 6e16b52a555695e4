"""Background tasks and their end."""

from __future__ import annotations

import asyncio

from certwright.kube.util.tasks import TaskSet


async def test_a_task_that_has_just_ended_does_not_keep_it_from_closing() -> None:
    tasks = TaskSet()
    tasks.start(nothing(), name="brief")
    # The task has ended by then, and the loop has not called its callback yet.
    await asyncio.sleep(0)
    await tasks.close()


async def nothing() -> None:
    """End in the first step."""
