"""generateName: names that are taken, and what happens then (KEP-4420)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from apiserver.callers import CONFIG_MAPS, Api, StartApi
from apiserver.webhook_server import WebhookServer, add_label, patch, register, running
from certwright.apiserver.features import NAME_GENERATION_LOOK_AHEAD, NAME_GENERATION_RETRIES, FeatureGates
from certwright.apiserver.verbs.creates import NAME_ATTEMPTS
from certwright.store.contract import Key

PREFIX = "job-"


@pytest.fixture
async def hooks() -> AsyncIterator[WebhookServer]:
    """A webhook server."""
    async with running() as server:
        yield server


def counting() -> Callable[[], str]:
    """Suffixes 00000, 00001, …: predictable, and of the right length."""
    numbers = itertools.count()
    return lambda: f"{next(numbers):05}"


async def take(api: Api, numbers: range) -> None:
    """Make the names of those numbers taken."""
    for number in numbers:
        await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": f"{PREFIX}{number:05}"}})


async def generate(api: Api, target: str = CONFIG_MAPS, **metadata: Any) -> Any:
    """Try to create a ConfigMap under a generated name."""
    return await api.call("POST", target, {"metadata": {"generateName": PREFIX, **metadata}})


GATES = [True, False]


@pytest.fixture(params=GATES, ids=["look ahead", "no look ahead"])
def look_ahead(request: pytest.FixtureRequest) -> bool:
    """With the optimisation and without it: what clients see is the same."""
    return bool(request.param)


async def server(start_api: StartApi, *, look: bool = True, retries: bool = True) -> Api:
    """A server whose names are predictable."""
    gates = FeatureGates({NAME_GENERATION_RETRIES: retries, NAME_GENERATION_LOOK_AHEAD: look})
    found: Api = await start_api(name_suffix=counting(), gates=gates)
    return found


async def test_the_last_attempt_may_succeed(start_api: StartApi, *, look_ahead: bool) -> None:
    api = await server(start_api, look=look_ahead)
    await take(api, range(NAME_ATTEMPTS - 1))
    made = await generate(api)
    assert (made.status, made.json["metadata"]["name"]) == (201, f"{PREFIX}00007")
    assert made.json["metadata"]["generateName"] == PREFIX


async def test_after_eight_taken_names_the_create_is_refused(
    start_api: StartApi, *, look_ahead: bool
) -> None:
    api = await server(start_api, look=look_ahead)
    await take(api, range(NAME_ATTEMPTS))
    answer = await generate(api)
    name = f"{PREFIX}00007"
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'configmaps "{name}" already exists, '
        "the server was not able to generate a unique name for the object",
        "reason": "AlreadyExists",
        "details": {"name": name, "kind": "configmaps", "retryAfterSeconds": 1},
        "code": 409,
    }
    assert answer.headers["retry-after"] == "1"
    again = await generate(api)
    assert (again.status, again.json["metadata"]["name"]) == (201, f"{PREFIX}00008")


async def test_without_the_feature_the_first_taken_name_is_refused(start_api: StartApi) -> None:
    api = await server(start_api, retries=False)
    await take(api, range(1))
    answer = await generate(api)
    assert (answer.status, answer.json["reason"]) == (409, "AlreadyExists")
    assert answer.message == (
        f'configmaps "{PREFIX}00000" already exists, '
        "the server was not able to generate a unique name for the object"
    )
    assert (await generate(api)).json["metadata"]["name"] == f"{PREFIX}00001"


async def test_the_feature_can_be_switched_while_the_server_runs(start_api: StartApi) -> None:
    gates = FeatureGates()
    api = await start_api(name_suffix=counting(), gates=gates)
    await take(api, range(6))
    assert (await generate(api)).json["metadata"]["name"] == f"{PREFIX}00006"
    await take(api, range(7, 10))
    gates.switch({NAME_GENERATION_RETRIES: False})
    assert (await generate(api)).status == 409
    gates.switch({NAME_GENERATION_RETRIES: True})
    assert (await generate(api)).json["metadata"]["name"] == f"{PREFIX}00010"


async def test_a_name_that_the_client_chose_is_never_replaced(start_api: StartApi) -> None:
    api = await server(start_api)
    await take(api, range(1))
    answer = await api.call("POST", CONFIG_MAPS, {"metadata": {"name": f"{PREFIX}00000"}})
    assert answer.message == f'configmaps "{PREFIX}00000" already exists'
    both = await generate(api, name=f"{PREFIX}00000")
    assert (both.status, both.json["details"]["retryAfterSeconds"]) == (409, 1)
    assert (await generate(api)).json["metadata"]["name"] == f"{PREFIX}00001"


async def test_a_taken_name_that_is_being_deleted_is_told(start_api: StartApi) -> None:
    api = await server(start_api, retries=False)
    body = {"metadata": {"name": f"{PREFIX}00000", "finalizers": ["test.dev/keep"]}}
    await api.ok("POST", CONFIG_MAPS, body)
    await api.ok("DELETE", f"{CONFIG_MAPS}/{PREFIX}00000")
    answer = await generate(api)
    assert answer.message.startswith(f'object is being deleted: configmaps "{PREFIX}00000" already exists')


async def test_a_dry_run_passes_over_taken_names_too(start_api: StartApi, *, look_ahead: bool) -> None:
    api = await server(start_api, look=look_ahead)
    await take(api, range(3))
    made = await generate(api, f"{CONFIG_MAPS}?dryRun=All")
    assert made.json["metadata"]["name"] == f"{PREFIX}00003"
    assert (await api.call("GET", f"{CONFIG_MAPS}/{PREFIX}00003")).status == 404


async def test_a_long_prefix_is_cut_so_that_the_name_fits(api: Api) -> None:
    made = await generate(api, generateName="x" * 100)
    assert made.status == 201
    assert made.json["metadata"]["name"][:58] == "x" * 58
    assert len(made.json["metadata"]["name"]) == 63
    assert made.json["metadata"]["generateName"] == "x" * 100


async def test_what_follows_from_the_name_follows_from_the_last_one(start_api: StartApi) -> None:
    api = await server(start_api)
    namespaces = "/api/v1/namespaces"
    for number in range(2):
        await api.ok("POST", namespaces, {"metadata": {"name": f"{PREFIX}{number:05}"}})
    made = (await generate(api, namespaces)).json["metadata"]
    assert made["name"] == made["labels"]["kubernetes.io/metadata.name"] == f"{PREFIX}00002"


async def test_every_name_is_validated_and_none_is_mutated_twice(
    start_api: StartApi, hooks: WebhookServer
) -> None:
    api = await server(start_api, look=False)
    await take(api, range(NAME_ATTEMPTS - 1))
    hooks.answers["/change"] = add_label("changed")
    await register(api, "Mutating", hooks.hook(path="/change", reinvocationPolicy="IfNeeded"))
    await register(api, "Validating", hooks.hook(path="/check"))
    assert (await generate(api)).status == 201
    change, *checks = hooks.requests
    assert "name" not in change
    assert [check["name"] for check in checks] == [f"{PREFIX}{number:05}" for number in range(8)]
    assert all(check["object"]["metadata"]["name"] == check["name"] for check in checks)
    assert len({check["uid"] for check in checks}) == 8


async def test_names_seen_to_be_taken_are_not_validated(start_api: StartApi, hooks: WebhookServer) -> None:
    api = await server(start_api)
    await take(api, range(NAME_ATTEMPTS - 1))
    await register(api, "Validating", hooks.hook())
    assert (await generate(api)).status == 201
    assert [check["name"] for check in hooks.requests] == [f"{PREFIX}00000", f"{PREFIX}00007"]


async def test_no_more_than_eight_names_are_validated(start_api: StartApi, hooks: WebhookServer) -> None:
    api = await server(start_api, look=False)
    await take(api, range(2 * NAME_ATTEMPTS))
    await register(api, "Validating", hooks.hook())
    assert (await generate(api)).status == 409
    assert len(hooks.reviews) == NAME_ATTEMPTS


async def test_a_refusal_ends_the_search_for_a_name(start_api: StartApi, hooks: WebhookServer) -> None:
    api = await server(start_api)
    await take(api, range(2))

    def answer(request: Any) -> Any:
        # Even in the words of a conflict: only the store's are conflicts of names.
        taken = {"message": "no", "code": 409, "reason": "AlreadyExists"}
        return {"allowed": request["name"] == f"{PREFIX}00000", "status": taken}

    hooks.answers["/"] = answer
    await register(api, "Validating", hooks.hook())
    refused = await generate(api)
    assert (refused.status, refused.message) == (
        409,
        'admission webhook "check.test.dev" denied the request: no',
    )
    assert [check["name"] for check in hooks.requests] == [f"{PREFIX}00000", f"{PREFIX}00002"]


async def test_a_webhook_may_choose_the_name(start_api: StartApi, hooks: WebhookServer) -> None:
    api = await server(start_api)
    hooks.answers["/"] = lambda _: patch({"op": "add", "path": "/metadata/name", "value": "chosen"})
    await register(api, "Mutating", hooks.hook())
    assert (await generate(api)).json["metadata"]["name"] == "chosen"
    assert (await generate(api)).status == 409


async def test_a_free_name_costs_no_look(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await server(start_api)
    await generate(api)

    async def look(key: Key) -> None:
        raise AssertionError(f"looked for {key}")

    monkeypatch.setattr(api.store, "latest", look)
    assert (await generate(api)).status == 201
