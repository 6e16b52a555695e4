"""generateName: names that are taken, and what happens then (KEP-4420). Every test runs on each store."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from certwright.kube.api import naming
from certwright.kube.api.naming import SUBDOMAIN_MESSAGE, SUBDOMAIN_PATTERN
from certwright.kube.apiserver.base.features import (
    NAME_GENERATION_LOOK_AHEAD,
    NAME_GENERATION_RETRIES,
    FeatureGates,
)
from certwright.kube.apiserver.base.object_names import (
    NameRule,
    dns_1035_label,
    dns_label,
    dns_subdomain,
    for_prefix,
    problems,
)
from certwright.kube.apiserver.verbs.creates import NAME_ATTEMPTS
from certwright.kube.store.contract import Key
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from faults.every_kind import resources, root_of, valid_object
from kube.apiserver.callers import CONFIG_MAPS, CRDS, Api, StartApi
from kube.apiserver.webhook_server import WebhookServer, add_label, patch, register, running
from support.etcd import Etcd

PREFIX = "job-"
pytestmark = pytest.mark.every_store


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
        await api.config_map(f"{PREFIX}{number:05}")


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
    started: Api = await start_api(name_suffix=counting(), gates=gates)
    return started


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


async def test_a_refusal_ends_the_search_for_a_name(start_api: StartApi, hooks: WebhookServer) -> None:
    api = await server(start_api)
    await take(api, range(2))
    hooks.answers["/"] = lambda request: {
        "allowed": request["name"] == f"{PREFIX}00000",
        "status": {"message": "no", "code": 409, "reason": "Conflict"},
    }
    await register(api, "Validating", hooks.hook())
    refused = await generate(api)
    assert (refused.status, refused.message) == (
        409,
        'admission webhook "check.test.dev" denied the request: no',
    )
    assert [check["name"] for check in hooks.requests] == [f"{PREFIX}00000", f"{PREFIX}00002"]


async def test_a_webhook_may_refuse_a_name_as_taken(start_api: StartApi, hooks: WebhookServer) -> None:
    """As in Kubernetes, which looks at the reason of the error and not at its origin."""
    api = await server(start_api)
    taken = {"message": "no", "code": 409, "reason": "AlreadyExists"}
    hooks.answers["/"] = lambda request: {"allowed": request["name"] > f"{PREFIX}00002", "status": taken}
    await register(api, "Validating", hooks.hook())
    assert (await generate(api)).json["metadata"]["name"] == f"{PREFIX}00003"
    hooks.answers["/"] = lambda _: {"allowed": False, "status": taken}
    refused = await generate(api)
    assert (refused.status, refused.json["reason"]) == (409, "AlreadyExists")
    assert refused.message == 'admission webhook "check.test.dev" denied the request: no'
    assert len(hooks.requests) == 4 + NAME_ATTEMPTS


RULES_OF_NAMES = [
    pytest.param(
        {"x-kubernetes-validations": [{"rule": "!self.metadata.name.endsWith('1')", "message": "no 1"}]},
        id="a CEL rule",
    ),
    pytest.param(
        {
            "properties": {
                "metadata": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "pattern": "[02-9]$"}},
                }
            }
        },
        id="a pattern",
    ),
]


@pytest.mark.parametrize("rule", RULES_OF_NAMES)
async def test_the_schema_judges_every_name(
    start_api: StartApi, rule: dict[str, Any], *, look_ahead: bool
) -> None:
    api = await server(start_api, look=look_ahead)
    names = {"plural": "jobs", "singular": "job", "kind": "Job"}
    schema = {"type": "object", **rule}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "test.dev", "scope": "Namespaced", "names": names, "versions": [version]}
    await api.ok("POST", CRDS, {"metadata": {"name": "jobs.test.dev"}, "spec": spec})
    await api.settle()
    jobs = "/apis/test.dev/v1/namespaces/default/jobs"
    about = {"apiVersion": "test.dev/v1", "kind": "Job"}
    await api.ok("POST", jobs, {**about, "metadata": {"name": f"{PREFIX}00000"}})
    refused = await api.call("POST", jobs, {**about, "metadata": {"generateName": PREFIX}})
    assert (refused.status, refused.json["reason"]) == (422, "Invalid"), refused.message
    made = await api.ok("POST", jobs, {**about, "metadata": {"generateName": PREFIX}})
    assert made["metadata"]["name"] == f"{PREFIX}00002"


_NAMED_BY_RULE = {"customresourcedefinitions", "apiservices"}
GENERATED = [
    resource for resource in resources() if resource[1] not in _NAMED_BY_RULE and "review" not in resource[1]
]


async def test_every_kind_gets_a_second_name(start_api: StartApi) -> None:
    suffixes = iter(["taken", "other"] * len(GENERATED))
    api = await start_api(name_suffix=lambda: next(suffixes))
    for group, plural in GENERATED:
        root = root_of(group)
        listed = (await api.ok("GET", root))["resources"]
        resource = next(entry for entry in listed if entry["name"] == plural)
        path = f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"
        body = valid_object(group, plural, resource["kind"], 0)
        prefix = f"{group.partition('.')[0] or 'core'}-"
        first = await api.ok("POST", path, {**body, "metadata": {"name": f"{prefix}taken"}})
        made = await api.ok("POST", path, {**body, "metadata": {"generateName": prefix}})
        assert made["metadata"]["name"] == f"{prefix}other"
        assert comparable(made) == comparable(first)


def comparable(obj: dict[str, Any]) -> dict[str, Any]:
    """The object, less what its name, its place in time and its client decide."""
    own = {"name", "generateName", "uid", "resourceVersion", "labels", "managedFields", "creationTimestamp"}
    rest = {name: value for name, value in obj["metadata"].items() if name not in own}
    return {**obj, "metadata": rest}


async def test_a_retry_is_logged(start_api: StartApi, caplog: pytest.LogCaptureFixture) -> None:
    api = await server(start_api)
    await take(api, range(2))
    with caplog.at_level(logging.DEBUG, "certwright.kube.apiserver.verbs.creates"):
        await generate(api)
    assert [record.getMessage() for record in caplog.records] == [
        f"configmaps {PREFIX}00000: the generated name is taken; attempt 2 of 8",
        f"configmaps {PREFIX}00001: the generated name is taken; attempt 3 of 8",
    ]


async def test_a_prefix_is_cut_by_bytes(start_api: StartApi) -> None:
    api = await server(start_api)
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    made = await generate(api, roles, generateName="é" * 60)
    assert made.json["metadata"]["name"] == "é" * 29 + "00000"
    made = await generate(api, roles, generateName="a" + "é" * 60)
    assert made.json["metadata"]["name"] == "a" + "é" * 28 + "00001"


async def test_a_prefix_that_is_no_name_is_refused_with_both_fields(start_api: StartApi) -> None:
    api = await server(start_api)
    refused = await generate(api, generateName="ä-")
    fields = {cause["field"] for cause in refused.json["details"]["causes"]}
    assert fields == {"metadata.generateName", "metadata.name"}


@pytest.mark.every_store(pytest.param("etcd", marks=pytest.mark.real("etcd")))
async def test_two_servers_share_a_small_space_of_names(start_api: StartApi, shared_etcd: Etcd) -> None:
    """700 creates into 729 names, by 32 clients of each server."""
    letters = random.Random(1)

    def suffix() -> str:
        return "".join(letters.choices(naming.ALPHABET, k=2))

    servers = []
    for _ in range(2):
        store = await open_etcd(Access((shared_etcd.member,)), prefix="/generate-name/", compact_every_s=0)
        servers.append(await start_api(store=store, name_suffix=suffix))
    answers: list[Any] = []
    left = iter(range(700))

    async def client(api: Api) -> None:
        for _ in left:
            answers.append(await generate(api))

    await asyncio.gather(*(client(api) for api in servers for _ in range(32)))
    counted = Counter((answer.status, answer.json.get("reason")) for answer in answers)
    assert counted.keys() <= {(201, None), (409, "AlreadyExists")}, counted
    made = [answer.json["metadata"]["name"] for answer in answers if answer.status == 201]
    assert len(set(made)) == len(made) > 600


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


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (dns_label, ["a", "a-1", "1", "x" * 63], ["", "A", "a.b", "-a", "a-", "ä", "x" * 64, "a\n"]),
        (
            dns_subdomain,
            ["a", "a.b-c.d", "1.2", "x" * 253],
            ["", "a..b", ".a", "a.", "A.b", "a_b", "x" * 254],
        ),
        (dns_1035_label, ["a", "a-1"], ["1a", "a.b", ""]),
        (for_prefix(dns_subdomain), ["a-", "a", "a.b-"], ["-", "AB-", ".a-"]),
    ],
)
def test_names(rule: NameRule, good: list[str], bad: list[str]) -> None:
    assert [name for name in good if rule(name) is not None] == []
    assert [name for name in bad if rule(name) is None] == []


def test_a_name_that_is_too_long_is_told_the_limit() -> None:
    assert dns_label("x" * 64) == "must be no more than 63 characters"


def test_a_name_that_is_too_long_is_told_what_else_is_wrong_with_it() -> None:
    for marks in itertools.product("a-.A", repeat=5):
        name = "".join(marks) + "b" * 300 + "".join(reversed(marks))
        has_form = SUBDOMAIN_PATTERN.fullmatch(name) is not None
        assert (SUBDOMAIN_MESSAGE not in problems(dns_subdomain, name)) is has_form, name
