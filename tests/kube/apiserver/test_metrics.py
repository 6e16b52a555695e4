"""/metrics."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.http_messages import Identity
from kube.apiserver.callers import CONFIG_MAPS, SECRETS, Api, StartApi
from support.waiting import turns

_DURATION = "apiserver_request_duration_seconds_count"


async def scrape(api: Api) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, by name and labels."""
    answer = await api.call("GET", "/metrics")
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


async def value(api: Api, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    samples = await scrape(api)
    return sum(
        number
        for (sample_name, has), number in samples.items()
        if sample_name == name and labels.items() <= set(has)
    )


async def test_requests_are_counted_by_what_they_are(api: Api) -> None:
    await api.secret("a")
    await api.secret("b")
    await api.call("POST", SECRETS, {"metadata": {"name": "a"}})
    await api.call("GET", SECRETS)
    await api.call("GET", "/api/v1/secrets")
    about = {"resource": "secrets", "version": "v1", "group": ""}
    created = {**about, "verb": "POST", "scope": "resource"}
    assert await value(api, _DURATION, **created, code="201") == 2
    assert await value(api, _DURATION, **created, code="409") == 1
    assert await value(api, "apiserver_request_total", **created, code="201") == 2
    assert await value(api, "apiserver_request_total", **about, verb="LIST", scope="namespace") == 1
    assert await value(api, "apiserver_request_total", **about, verb="LIST", scope="cluster") == 1
    assert await value(api, "apiserver_request_duration_seconds_sum", **created) > 0
    for bound in ("60.0", "+Inf"):
        assert await value(api, "apiserver_request_duration_seconds_bucket", **created, le=bound) == 3


async def test_retried_creates_carry_the_label_of_the_kep(start_api: StartApi) -> None:
    numbers = itertools.count()
    api = await start_api(name_suffix=lambda: f"{next(numbers):05}")
    for number in range(3):
        await api.config_map(f"a-{number:05}")
    await api.ok("POST", CONFIG_MAPS, {"metadata": {"generateName": "a-"}})
    await api.ok("POST", CONFIG_MAPS, {"metadata": {"generateName": "a-"}})
    about = {"resource": "configmaps", "verb": "POST", "code": "201"}
    assert await value(api, _DURATION, **about, retry_for_generate_name="true") == 1
    assert await value(api, _DURATION, **about, retry_for_generate_name="") == 4
    assert await value(api, "certwright_generate_name_retries_total") == 3


async def test_watches_and_requests_under_way_are_gauges(api: Api) -> None:
    stream = await api.watch(SECRETS)
    watched = {"resource": "secrets", "verb": "WATCH"}
    assert await value(api, "apiserver_longrunning_requests", **watched) == 1
    await stream.close()
    assert await value(api, "apiserver_longrunning_requests", **watched) == 0
    # The scrape itself.
    assert await value(api, "apiserver_current_inflight_requests", request_kind="readOnly") == 1
    assert await value(api, "apiserver_current_inflight_requests", request_kind="mutating") == 0


class StuckStore(MemoryStore):
    """Writes to Secrets are never done."""

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        if key.bucket == "secrets":
            await asyncio.get_running_loop().create_future()
        return await super().put(key, encode, expect=expect)


async def test_a_request_that_goes_away_is_not_under_way_any_more(start_api: StartApi) -> None:
    api = await start_api(store=StuckStore())
    await api.settle()
    task = asyncio.create_task(api.secret("a"))
    await turns()
    mutating = {"request_kind": "mutating"}
    assert await value(api, "apiserver_current_inflight_requests", **mutating) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await value(api, "apiserver_current_inflight_requests", **mutating) == 0


async def test_who_asks_while_the_first_answer_is_made_is_told_everything(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, seen = api.server._metrics, [b""]

    class Asked(prometheus_client.PlatformCollector):
        def __init__(self, **given: Any) -> None:
            monkeypatch.undo()
            seen.append(metrics._render([])[1])
            super().__init__(**given)

    monkeypatch.setattr(prometheus_client, "PlatformCollector", Asked)
    first = await scrape(api)
    families = {family.name for family in text_string_to_metric_families(seen[-1].decode())}
    assert {"python_info", "process_resident_memory_bytes", "certwright_store_revision"} <= families
    assert first["certwright_store_revision", ()] == api.store.revision
    assert first["process_resident_memory_bytes", ()] > 1e7


async def test_unknown_methods_make_no_series_of_their_own(api: Api) -> None:
    await api.call("BREW", "/healthz")
    await api.call("STIR", "/healthz")
    assert await value(api, "apiserver_request_total", verb="other") == 2


async def test_who_may_not_read_them_gets_none(start_api: StartApi) -> None:
    api = await start_api(user=Identity("eve", groups=("system:authenticated",)))
    answer = await api.call("GET", "/metrics")
    assert (answer.status, answer.message) == (403, 'forbidden: User "eve" cannot get path "/metrics"')
