"""The lag of the event loop, as a metric."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families

from certwright.app.loop import LoopLag
from certwright.kube.util.clock import TestClock


async def test_a_timer_that_is_late_is_counted_in_the_bucket_of_its_delay() -> None:
    lag, clock = LoopLag(), TestClock()
    measuring = asyncio.create_task(lag.keep_measured(clock))
    for seconds in (0.25, 0.25, 2.25):
        await asyncio.sleep(0)
        clock.advance(timedelta(seconds=seconds))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    measuring.cancel()
    [family] = text_string_to_metric_families(lag.take_metrics()().decode())
    samples = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
    assert (samples["0.01"], samples["1"], samples["2.5"], samples["+Inf"]) == (2, 2, 3, 3)
    assert samples["certwright_event_loop_lag_seconds_sum"] == 2.0
