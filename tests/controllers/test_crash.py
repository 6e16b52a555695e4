"""The process may be killed between any two writes: the next start comes to the same end, signing once."""

from __future__ import annotations

import pytest

from certwright.resources.table import CERTIFICATE_REQUESTS
from controllers.crashes import Guillotine, Ledger
from controllers.scene import Scene
from controllers.stages import STAGES, Stage, keep_ledger, shape_of, staged, undisturbed

BY_NAME = {stage.name: stage for stage in STAGES}
CUTS = [(stage.name, n, False) for stage in STAGES for n in range(stage.writes + 1)]
# What lies at the server is the same whether the answer arrived or not; these make sure of that.
CUTS += [(name, n, True) for name in ("issuance", "renewal") for n in range(1, BY_NAME[name].writes + 1)]


async def check(stage: Stage, scene: Scene, ledger: Ledger) -> None:
    """The same end as without a crash, and nothing done twice on the way."""
    assert await shape_of(scene) == await undisturbed(stage)
    assert ledger.broken == []
    assert all(len(signed) == 1 for signed in ledger.signed.values()), ledger.signed
    status = (await scene.world.certificate("web")).status
    assert status.revision == stage.revision
    assert await scene.next_keys() == []
    secret = await scene.world.secret("web")
    newest = await scene.world.get(CERTIFICATE_REQUESTS, f"web-{stage.revision}")
    assert secret.data["tls.crt"] == newest.status.certificate


@pytest.mark.every(8)
@pytest.mark.parametrize(("name", "writes", "answered"), CUTS)
async def test_a_crash_after_any_write_changes_nothing_in_the_end(
    name: str, writes: int, *, answered: bool
) -> None:
    stage = BY_NAME[name]
    async with staged(stage) as scene:
        ledger = keep_ledger(scene)
        scene.world.recording.handler = Guillotine(ledger.handle, writes, answered=answered).handle
        await stage.happens(scene)
        await scene.world.stop_controllers()
        scene.world.recording.handler = ledger.handle
        await scene.world.start_controllers(**stage.options)
        await stage.finish(scene)
        await check(stage, scene, ledger)
        if not stage.options:
            # Not one write more than without the crash.
            assert len(ledger.writes) <= stage.writes


@pytest.mark.every(3)
@pytest.mark.parametrize("name", BY_NAME)
async def test_processes_that_live_for_one_write_get_there_too(name: str) -> None:
    stage = BY_NAME[name]
    async with staged(stage) as scene:
        ledger = keep_ledger(scene)
        scene.world.recording.handler = Guillotine(ledger.handle, 0).handle
        await stage.happens(scene)
        for _ in range(2 * stage.writes):
            scene.world.recording.handler = Guillotine(ledger.handle, 1).handle
            await scene.world.start_controllers(**stage.options)
        scene.world.recording.handler = ledger.handle
        await scene.world.start_controllers(**stage.options)
        await stage.finish(scene)
        await check(stage, scene, ledger)
