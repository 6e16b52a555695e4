"""What tests of the lower rooms need, without pulling in the whole house."""

from __future__ import annotations

import asyncio


async def spin(turns: int = 5) -> None:
    """Let everything run that is ready to."""
    for _ in range(turns):
        await asyncio.sleep(0)
