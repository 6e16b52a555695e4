"""Admission webhooks, asked over real HTTPS."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import trustme
from aiohttp import web

from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.http_messages import Identity
from kube.apiserver.callers import CONFIG_MAPS, CRDS, SECRETS, THINGS, Api, StartApi, rule_for, thing_crd
from kube.apiserver.webhook_server import (
    HOOKS,
    Json,
    WebhookServer,
    add_label,
    allow,
    patch,
    register,
    running,
)
from support.waiting import until


@pytest.fixture
async def hooks() -> AsyncIterator[WebhookServer]:
    """A webhook server."""
    async with running("guard.tools.svc") as server:
        yield server


async def make(api: Api, name: str = "a", **metadata: Any) -> Any:
    """Try to create a ConfigMap."""
    return await api.call("POST", CONFIG_MAPS, {"metadata": {"name": name, **metadata}, "data": {"k": "v"}})


async def test_a_webhook_is_asked_as_kubernetes_asks(start_api: StartApi, hooks: WebhookServer) -> None:
    user = Identity("eve", uid="7", groups=("system:masters",), extra={"scopes": ("a", "b")})
    api = await start_api(user=user)
    await register(api, "Validating", hooks.hook(path="/check", timeoutSeconds=25))
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    made = await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=me&fieldValidation=Strict", body)
    assert hooks.targets == ["/check?timeout=25s"]
    (review,) = hooks.reviews
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    request = review["request"]
    seen = request.pop("object")
    assert len(request.pop("uid")) == 36
    assert request == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {
            "username": "eve",
            "uid": "7",
            "groups": ["system:masters"],
            "extra": {"scopes": ["a", "b"]},
        },
        "oldObject": None,
        "dryRun": False,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "me",
            "fieldValidation": "Strict",
        },
    }
    assert (seen["kind"], seen["data"]) == ("ConfigMap", {"k": "v"})
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]


async def test_updates_patches_and_deletions_are_shown_with_the_old_object(
    api: Api, hooks: WebhookServer
) -> None:
    await make(api)
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", "UPDATE", "DELETE")]))
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}})
    await api.ok("DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": "Background"})
    update, deletion = hooks.requests
    assert (update["operation"], update["options"]["kind"]) == ("UPDATE", "UpdateOptions")
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"k": "v"}, {"k": "w"})
    assert (deletion["operation"], deletion["object"]) == ("DELETE", None)
    assert deletion["oldObject"]["data"] == {"k": "w"}
    assert deletion["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "propagationPolicy": "Background",
    }


@pytest.mark.parametrize(
    ("status", "code", "reason", "words"),
    [
        (None, 400, None, "without explanation"),
        ({"message": "not today"}, 400, None, ": not today"),
        ({"message": "not you", "code": 403, "reason": "Forbidden"}, 403, "Forbidden", ": not you"),
        ({"reason": "Expired", "code": 200}, 400, "Expired", ": Expired"),
    ],
)
async def test_a_refusal_comes_in_the_words_of_the_webhook(
    api: Api, hooks: WebhookServer, status: Json | None, code: int, reason: str | None, words: str
) -> None:
    hooks.answers["/"] = lambda _: {"allowed": False, **({"status": status} if status else {})}
    await register(api, "Validating", hooks.hook())
    answer = await make(api)
    assert (answer.status, answer.json["code"], answer.json.get("reason")) == (code, code, reason)
    space = "" if words.startswith(":") else " "
    assert answer.message == f'admission webhook "check.test.dev" denied the request{space}{words}'
    assert (await api.call("GET", f"{CONFIG_MAPS}/a")).status == 404


async def test_a_deletion_can_be_refused(api: Api, hooks: WebhookServer) -> None:
    await make(api)
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", "DELETE")]))
    hooks.answers["/"] = lambda _: {"allowed": False, "status": {"message": "keep it"}}
    assert (await api.call("DELETE", f"{CONFIG_MAPS}/a")).status == 400
    assert (await api.call("DELETE", CONFIG_MAPS)).status == 400
    assert (await api.call("GET", f"{CONFIG_MAPS}/a")).status == 200


async def test_warnings_go_into_the_answer(api: Api, hooks: WebhookServer) -> None:
    hooks.answers["/"] = lambda _: {"allowed": True, "warnings": ["old", 'say "new"']}
    await register(api, "Validating", hooks.hook())
    answer = await make(api)
    assert answer.headers["warning"] == '299 - "old", 299 - "say \\"new\\""'


async def test_mutating_webhooks_change_what_is_stored_before_it_is_named_and_judged(
    api: Api, hooks: WebhookServer
) -> None:
    hooks.answers["/change"] = add_label("changed")
    await register(api, "Mutating", hooks.hook("change.test.dev", "/change"))
    await register(api, "Validating", hooks.hook("check.test.dev", "/check"))
    made = await api.ok("POST", CONFIG_MAPS, {"metadata": {"generateName": "a-"}})
    assert made["metadata"]["labels"] == {"changed": "yes"}
    change, check = hooks.requests
    assert "name" not in change
    assert "uid" not in change["object"]["metadata"]
    assert check["name"] == check["object"]["metadata"]["name"] == made["metadata"]["name"]
    assert check["object"]["metadata"]["labels"] == {"changed": "yes"}


async def test_what_a_webhook_writes_is_defaulted_pruned_and_checked(api: Api, hooks: WebhookServer) -> None:
    await api.ok("POST", CRDS, thing_crd())
    await register(api, "Mutating", hooks.hook(rules=[rule_for("*", group="test.dev")]))
    thing = {"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    hooks.answers["/"] = lambda _: patch(
        {"op": "remove", "path": "/spec/colour"},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
        {"op": "add", "path": "/status", "value": {"phase": "mine"}},
    )
    made = await api.ok("POST", THINGS, thing)
    assert made["spec"] == {"size": 1, "colour": "red"}
    assert "status" not in made
    hooks.answers["/"] = lambda _: patch({"op": "replace", "path": "/spec/size", "value": 0})
    answer = await api.call("PUT", f"{THINGS}/a", made)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    hooks.answers["/"] = lambda _: patch({"op": "replace", "path": "/spec/size", "value": 2})
    updated = await api.ok("PUT", f"{THINGS}/a", made)
    assert (updated["spec"]["size"], updated["metadata"]["generation"]) == (2, 2)


async def test_a_webhook_is_called_again_when_a_later_one_changed_the_object(
    api: Api, hooks: WebhookServer
) -> None:
    hooks.answers["/later"] = add_label("later")
    await register(
        api,
        "Mutating",
        hooks.hook("again.test.dev", "/again", reinvocationPolicy="IfNeeded"),
        hooks.hook("once.test.dev", "/once"),
        hooks.hook("later.test.dev", "/later"),
        hooks.hook("last.test.dev", "/last", reinvocationPolicy="IfNeeded"),
    )
    await make(api)
    assert [target.partition("?")[0] for target in hooks.targets] == [
        *("/again", "/once", "/later", "/last"),
        "/again",
    ]


async def test_configurations_are_called_in_order_of_their_names(api: Api, hooks: WebhookServer) -> None:
    for name in ("b", "a", "c"):
        await register(api, "Mutating", hooks.hook(path=f"/{name}"), name=name)
    await make(api)
    assert [target[:2] for target in hooks.targets] == ["/a", "/b", "/c"]


async def test_nobody_hands_in_another_requester_through_a_webhook(
    start_api: StartApi, hooks: WebhookServer
) -> None:
    api = await start_api(user=Identity("eve", groups=("system:masters",)))
    await register(api, "Mutating", hooks.hook(rules=[rule_for("certificaterequests", group="*")]))
    hooks.answers["/"] = lambda _: patch({"op": "replace", "path": "/spec/username", "value": "admin"})
    request = (trustme.CA()).cert_pem.bytes()
    body = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": "a"},
        "spec": {"request": base64.b64encode(request).decode(), "issuerRef": {"name": "ca"}},
    }
    path = "/apis/cert-manager.io/v1/namespaces/default/certificaterequests"
    answer = await api.call("POST", path, body)
    assert hooks.requests[0]["object"]["spec"]["username"] == "eve"
    if answer.status == 201:
        assert answer.json["spec"]["username"] == "eve"


@pytest.mark.parametrize(("scope", "called"), [("*", True), ("Namespaced", True), ("Cluster", False)])
async def test_rules_match_by_scope(api: Api, hooks: WebhookServer, *, scope: str, called: bool) -> None:
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", scope=scope)]))
    await make(api)
    assert bool(hooks.reviews) is called


@pytest.mark.parametrize(
    ("resources", "called"),
    [(["*"], False), (["*/*"], True), (["things/status"], True), (["*/status"], True), (["things"], False)],
)
async def test_subresources_are_matched_by_name(
    api: Api, hooks: WebhookServer, *, resources: list[str], called: bool
) -> None:
    await api.ok("POST", CRDS, thing_crd())
    thing = {"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    made = await api.ok("POST", THINGS, thing)
    await api.settle()  # the APIService of the new group is a write too
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": resources, "operations": ["*"]}
    await register(api, "Validating", hooks.hook(rules=[rule]))
    await api.ok("PUT", f"{THINGS}/a/status", {**made, "status": {"phase": "on"}})
    assert bool(hooks.reviews) is called
    if called:
        assert (hooks.requests[0]["subResource"], hooks.requests[0]["requestSubResource"]) == ("status",) * 2


@pytest.mark.parametrize(("policy", "called"), [("Equivalent", True), ("Exact", False)])
async def test_another_version_of_the_resource_is_converted_where_the_policy_allows(
    api: Api, hooks: WebhookServer, *, policy: str, called: bool
) -> None:
    crd = thing_crd()
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [version, {**version, "name": "v2", "storage": False}]
    await api.ok("POST", CRDS, crd)
    await register(
        api,
        "Mutating",
        hooks.hook(rules=[rule_for("things", group="test.dev", version="v1")], matchPolicy=policy),
    )
    hooks.answers["/"] = lambda _: patch({"op": "replace", "path": "/spec/colour", "value": "blue"})
    thing = {"apiVersion": "test.dev/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    made = await api.ok("POST", THINGS.replace("v1", "v2"), thing)
    assert (made["apiVersion"], made["spec"]["colour"]) == ("test.dev/v2", "blue" if called else "red")
    assert bool(hooks.reviews) is called
    if called:
        (request,) = hooks.requests
        assert request["object"]["apiVersion"] == "test.dev/v1"
        assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1", "v2")
        assert (request["resource"]["version"], request["requestResource"]["version"]) == ("v1", "v2")


async def test_selectors_choose_by_the_labels_of_namespace_and_object(api: Api, hooks: WebhookServer) -> None:
    await api.namespace("calm", hooks="off")
    unless_off = {"matchExpressions": [{"key": "hooks", "operator": "NotIn", "values": ["off"]}]}
    await register(
        api,
        "Validating",
        hooks.hook(namespaceSelector=unless_off, objectSelector={"matchLabels": {"app": "web"}}),
    )
    web_map: Json = {"metadata": {"name": "a", "labels": {"app": "web"}}}
    await api.ok("POST", "/api/v1/namespaces/calm/configmaps", web_map)
    await make(api, "other")
    assert not hooks.reviews
    await api.ok("POST", CONFIG_MAPS, web_map)
    assert len(hooks.reviews) == 1


async def test_an_object_that_loses_the_label_is_still_seen(api: Api, hooks: WebhookServer) -> None:
    await make(api, labels={"app": "web"})
    await register(
        api,
        "Validating",
        hooks.hook(rules=[rule_for("configmaps", "UPDATE")], objectSelector={"matchLabels": {"app": "web"}}),
    )
    await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": None}})
    await api.merge(f"{CONFIG_MAPS}/a", {"data": None})
    assert len(hooks.reviews) == 1


async def test_namespaces_are_chosen_by_their_own_labels(api: Api, hooks: WebhookServer) -> None:
    chosen = hooks.hook(
        rules=[rule_for("namespaces", "CREATE")], namespaceSelector={"matchLabels": {"team": "a"}}
    )
    await register(api, "Validating", chosen)
    for name, team in (("one", "a"), ("two", "b")):
        await api.namespace(name, team=team)
    assert [(request["name"], request["namespace"]) for request in hooks.requests] == [("one", "one")]


async def test_match_conditions_decide_before_the_call(api: Api, hooks: WebhookServer) -> None:
    conditions = [
        {"name": "not-mine", "expression": "request.userInfo.username != 'system:apiserver'"},
        {"name": "has-k", "expression": "object.data.k == 'v'"},
    ]
    await register(api, "Validating", hooks.hook(matchConditions=conditions))
    assert (await make(api)).status == 201
    await api.config_map("b", {"k": "other"})
    assert len(hooks.reviews) == 1
    answer = await api.call("POST", CONFIG_MAPS, {"metadata": {"name": "c"}})
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.message == (
        "configmaps \"c\" is forbidden: expression 'object.data.k == 'v'' resulted in error: "
        "no such key: data"
    )


async def test_a_condition_may_ask_what_is_allowed(api: Api, hooks: WebhookServer) -> None:
    asks = "authorizer.serviceAccount('default', 'nobody').group('').resource('configmaps').check('get')"
    conditions = [
        {"name": "may", "expression": "authorizer.requestResource.check('breakglass').allowed()"},
        {"name": "another-may-not", "expression": f"!{asks}.allowed()"},
    ]
    await register(api, "Validating", hooks.hook(matchConditions=conditions))
    assert (await make(api)).status == 201
    assert len(hooks.reviews) == 1


async def test_a_condition_that_fails_is_passed_over_where_failures_are_ignored(
    api: Api, hooks: WebhookServer
) -> None:
    conditions = [{"name": "has-k", "expression": "object.data.k == 'v'"}]
    await register(api, "Validating", hooks.hook(matchConditions=conditions, failurePolicy="Ignore"))
    assert (await api.call("POST", CONFIG_MAPS, {"metadata": {"name": "c"}})).status == 201
    assert not hooks.reviews


GOOD = {"name": "good", "expression": "true"}


@pytest.mark.parametrize(
    ("conditions", "field", "text"),
    [
        (
            [GOOD, {"name": "b", "expression": "object."}],
            "[1].expression",
            "compilation failed: ERROR: <input>",
        ),
        ([{"name": "x", "expression": "1"}], "[0].expression", "must evaluate to bool but got int"),
        ([{"name": "x", "expression": "object.a"}], "[0].expression", "must evaluate to bool but got dyn"),
        ([{"name": "x", "expression": "request.no == 'a'"}], "[0].expression", "undefined field 'no'"),
        ([{"name": "x", "expression": "request.kind.no == 'a'"}], "[0].expression", "undefined field 'no'"),
        ([{"name": "x", "expression": " "}], "[0].expression", "Required value"),
        ([{"expression": "true"}], "[0].name", "Required value"),
        ([{**GOOD, "name": "x y"}], "[0].name", "name part must consist of"),
        ([{**GOOD, "name": "a/b/c"}], "[0].name", "a valid label key must consist of"),
        ([GOOD, GOOD], "[1].name", 'Duplicate value: "good"'),
        ([{**GOOD, "name": f"c{n}"} for n in range(65)], "", "Too many: 65: must have at most 64 items"),
    ],
)
async def test_a_condition_that_is_none_is_refused_with_the_configuration(
    api: Api, hooks: WebhookServer, conditions: list[Json], field: str, text: str
) -> None:
    body = {"metadata": {"name": "a"}, "webhooks": [hooks.hook(matchConditions=conditions)]}
    answer = await api.call("POST", f"{HOOKS}/validatingwebhookconfigurations", body)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    (cause,) = answer.json["details"]["causes"]
    assert cause["field"] == f"webhooks[0].matchConditions{field}"
    assert text in cause["message"]


async def test_whether_a_request_is_a_dry_run_is_a_condition(api: Api, hooks: WebhookServer) -> None:
    conditions = [{"name": "real", "expression": "request.dryRun"}]
    await register(api, "Validating", hooks.hook(matchConditions=conditions))
    assert (await make(api)).status == 201
    assert not hooks.reviews


async def refused_by_failure(api: Api, because: str) -> None:
    answer = await make(api)
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    message = f'failed calling webhook "check.test.dev": {because}'
    assert answer.message == f"Internal error occurred: {message}"
    assert answer.json["details"] == {"causes": [{"message": message}]}


async def test_nobody_listening_refuses_the_request(api: Api, hooks: WebhookServer) -> None:
    url = "https://127.0.0.1:1/check"
    await register(api, "Validating", hooks.hook(clientConfig={"url": url}))
    await refused_by_failure(
        api,
        f'failed to call webhook: Post "{url}?timeout=10s": '
        "dial tcp 127.0.0.1:1: connect: connection refused",
    )


async def test_a_failure_that_may_be_ignored_is(api: Api, hooks: WebhookServer) -> None:
    for kind in ("Validating", "Mutating"):
        config = {"url": "https://127.0.0.1:1/check"}
        await register(api, kind, hooks.hook(clientConfig=config, failurePolicy="Ignore"))
    assert (await make(api)).status == 201


async def test_a_slow_webhook_is_given_up(api: Api, hooks: WebhookServer) -> None:
    async def answer(_: Json) -> Json:
        await asyncio.sleep(60)
        return {"allowed": True}

    hooks.answers["/"] = answer
    await register(api, "Validating", hooks.hook(timeoutSeconds=1))
    url = f"https://localhost:{hooks.port}/?timeout=1s"
    await refused_by_failure(api, f'failed to call webhook: Post "{url}": context deadline exceeded')


async def test_an_unknown_authority_is_not_trusted(api: Api, hooks: WebhookServer) -> None:
    other = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    config = {**hooks.client_config(), "caBundle": other}
    await register(api, "Validating", hooks.hook(clientConfig=config))
    await refused_by_failure(
        api,
        f'failed to call webhook: Post "https://localhost:{hooks.port}/?timeout=10s": tls: failed to verify '
        "certificate: x509: certificate signed by unknown authority",
    )


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (
            web.Response(status=404),
            "failed to call webhook: the server could not find the requested resource",
        ),
        (
            web.Response(status=500, text="boom"),
            'failed to call webhook: an error on the server ("boom") has prevented the request '
            "from succeeding",
        ),
        ({"allowed": True, "uid": "7"}, 'received invalid webhook response: expected response.uid="'),
        (
            {"allowed": True, "patchType": "JSONPatch"},
            "received invalid webhook response: validating webhook may not return response.patchType",
        ),
        (
            web.json_response({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
            "received invalid webhook response: webhook response was absent",
        ),
        (web.Response(text="{"), "failed to call webhook: couldn't get version/kind; json parse error: "),
    ],
)
async def test_answers_that_are_none_refuse_the_request(
    api: Api, hooks: WebhookServer, answer: Any, because: str
) -> None:
    hooks.answers["/"] = lambda _: answer
    await register(api, "Validating", hooks.hook())
    refused = await make(api)
    assert refused.status == 500
    opening = 'Internal error occurred: failed calling webhook "check.test.dev": '
    assert refused.message.startswith(opening + because), refused.message


async def test_a_patch_that_does_not_fit_is_our_failure(api: Api, hooks: WebhookServer) -> None:
    hooks.answers["/"] = lambda _: patch({"op": "remove", "path": "/nowhere"})
    await register(api, "Mutating", hooks.hook())
    answer = await make(api)
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    hooks.answers["/"] = lambda _: {"allowed": True, "patch": "!", "patchType": "JSONPatch"}
    assert "received undecodable patch in webhook response" in (await make(api)).message


@pytest.mark.parametrize(("effects", "code"), [("None", 201), ("NoneOnDryRun", 201), ("Some", 400)])
async def test_a_dry_run_calls_only_webhooks_without_side_effects(
    api: Api, start_api: StartApi, hooks: WebhookServer, effects: str, code: int
) -> None:
    hook = hooks.hook(sideEffects="None")
    made = await register(api, "Validating", hook)
    made["webhooks"][0]["sideEffects"] = effects
    if effects == "Some":
        # The rules of v1 keep such out; one that was stored under older ones must still not be called.
        key = next(row.key for row in (await api.store.list(_VALIDATING)).rows)
        row = await api.store.get(key)
        assert row is not None
        body = row.body.replace(b'"sideEffects":"None"', b'"sideEffects":"Some"')
        await api.store.put(key, lambda _: (row.meta, body))
        api = await start_api(store=api.store)
    answer = await api.call("POST", f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "a"}})
    assert answer.status == code
    if code == 400:
        assert answer.message == 'admission webhook "check.test.dev" does not support dry run'
        assert not hooks.reviews
    else:
        assert (hooks.requests[0]["dryRun"], hooks.requests[0]["options"]["dryRun"]) == (True, ["All"])


@pytest.mark.parametrize(
    ("query", "body", "dry"),
    [
        ("?dryRun=All", None, True),
        ("", {"dryRun": ["All"]}, True),
        # The query counts only without a body.
        ("?dryRun=All", {"propagationPolicy": "Background"}, False),
    ],
)
async def test_a_deletion_is_a_dry_run_wherever_that_is_said(
    api: Api, hooks: WebhookServer, query: str, body: Json | None, *, dry: bool
) -> None:
    await make(api)
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", "DELETE")]))
    await api.ok("DELETE", f"{CONFIG_MAPS}/a{query}", body)
    assert hooks.requests[0]["dryRun"] is dry
    assert hooks.requests[0]["options"].get("dryRun") == (["All"] if dry else None)
    assert await api.exists(f"{CONFIG_MAPS}/a") is dry


_VALIDATING = "admissionregistration.k8s.io/validatingwebhookconfigurations"


async def test_configurations_are_known_after_a_restart_and_forgotten_when_deleted(
    start_api: StartApi, hooks: WebhookServer
) -> None:
    store = MemoryStore()
    first = await start_api(store=store)
    await register(first, "Validating", hooks.hook())
    second = await start_api(store=store)
    assert (await make(second)).status == 201
    assert len(hooks.reviews) == 1
    await second.ok("DELETE", f"{HOOKS}/validatingwebhookconfigurations/hooks")
    assert (await make(second, "b")).status == 201
    assert len(hooks.reviews) == 1


async def test_a_configuration_that_refuses_everything_can_be_taken_away(
    api: Api, hooks: WebhookServer
) -> None:
    hook = hooks.hook(rules=[rule_for("*/*", group="*")], clientConfig={"url": "https://127.0.0.1:1/"})
    for kind in ("Validating", "Mutating"):
        await register(api, kind, hook)
    assert (await api.call("POST", SECRETS, {"metadata": {"name": "a"}})).status == 500
    for kind in ("validating", "mutating"):
        await api.ok("DELETE", f"{HOOKS}/{kind}webhookconfigurations/hooks")
    assert (await api.call("POST", SECRETS, {"metadata": {"name": "a"}})).status == 201


async def test_a_service_leads_to_its_external_name(api: Api, hooks: WebhookServer) -> None:
    service = {"namespace": "tools", "name": "guard", "port": hooks.port, "path": "/ask"}
    config = {"service": service, "caBundle": hooks.ca_bundle}
    await register(api, "Validating", hooks.hook(clientConfig=config))
    url = f"https://guard.tools.svc:{hooks.port}/ask?timeout=10s"
    await refused_by_failure(api, f'failed to call webhook: Post "{url}": service "guard" not found')
    await api.namespace("tools")
    spec: Json = {"ports": [{"port": 443}]}
    made = await api.ok(
        "POST", "/api/v1/namespaces/tools/services", {"metadata": {"name": "guard"}, "spec": spec}
    )
    assert "has no endpoints" in (await make(api)).message
    made["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    await api.ok("PUT", "/api/v1/namespaces/tools/services/guard", made)
    assert (await make(api)).status == 201
    assert hooks.targets == ["/ask?timeout=10s"]
    assert hooks.names_asked == ["guard.tools.svc"]


async def test_validating_webhooks_are_asked_at_the_same_time(api: Api, hooks: WebhookServer) -> None:
    together = asyncio.Barrier(3)

    async def answer(_: Json) -> Json:
        await together.wait()
        return allow({})

    hooks.answers["/"] = answer
    await register(api, "Validating", *(hooks.hook(f"check{number}.test.dev") for number in range(3)))
    assert (await make(api)).status == 201


async def test_after_a_refusal_no_more_webhooks_are_asked_than_at_once(
    api: Api, hooks: WebhookServer
) -> None:
    hooks.answers["/no"] = lambda _: {"allowed": False}
    others = (hooks.hook(f"check{number}.test.dev") for number in range(40))
    await register(api, "Validating", hooks.hook("no.test.dev", "/no"), *others)
    assert (await make(api)).status == 400
    assert len(hooks.reviews) == 32


async def test_a_configuration_has_a_thousand_webhooks_at_most(api: Api, hooks: WebhookServer) -> None:
    many = [hooks.hook(f"check{number}.test.dev") for number in range(1_001)]
    answer = await api.call(
        "POST", f"{HOOKS}/validatingwebhookconfigurations", {"metadata": {"name": "many"}, "webhooks": many}
    )
    assert answer.status == 422
    assert "webhooks: Too many: 1001: must have at most 1000 items" in answer.message


async def test_who_owns_which_field_outlives_a_webhook(api: Api, hooks: WebhookServer) -> None:
    hooks.answers["/"] = add_label("changed")
    await register(api, "Mutating", hooks.hook(rules=[rule_for("configmaps")]))
    target = f"{CONFIG_MAPS}?fieldManager=me"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    made = await api.ok("POST", target, body)
    (owned,) = made["metadata"]["managedFields"]
    assert (owned["manager"], owned["fieldsV1"]["f:data"]) == ("me", {".": {}, "f:k": {}})
    made["metadata"].pop("labels")
    made["data"]["l"] = "w"
    updated = await api.ok("PUT", f"{CONFIG_MAPS}/a?fieldManager=me", made)
    assert (updated["data"], updated["metadata"]["labels"]) == ({"k": "v", "l": "w"}, {"changed": "yes"})
    (owned,) = updated["metadata"]["managedFields"]
    assert owned["fieldsV1"]["f:data"] == {".": {}, "f:k": {}, "f:l": {}}


async def until_gone(api: Api, path: str) -> None:
    """Put the clock on until the object is gone: when whoever was refused begins to wait shows nowhere."""
    async with asyncio.timeout(60):
        while (await api.call("GET", path)).status != 404:
            api.clock.advance(timedelta(seconds=5))
            await asyncio.sleep(0.01)


async def test_the_garbage_collector_asks_before_it_deletes(api: Api, hooks: WebhookServer) -> None:
    owner = (await make(api, "owner")).json["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    await make(api, "owned", ownerReferences=[reference])
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", "DELETE")], objectSelector={}))
    hooks.answers["/"] = lambda request: {"allowed": request["name"] == "owner"}
    await api.ok("DELETE", f"{CONFIG_MAPS}/owner")
    await until(lambda: len(hooks.reviews) >= 2)
    asked = hooks.reviews[1]["request"]
    assert asked["userInfo"]["username"] == "system:serviceaccount:kube-system:generic-garbage-collector"
    assert (asked["name"], asked["options"]["preconditions"]) == (
        "owned",
        {"uid": asked["oldObject"]["metadata"]["uid"]},
    )
    assert (await api.call("GET", f"{CONFIG_MAPS}/owned")).status == 200
    hooks.answers["/"] = allow
    await until_gone(api, f"{CONFIG_MAPS}/owned")
    assert len(hooks.reviews) == 3


async def test_the_garbage_collector_asks_before_it_takes_a_reference_out(
    api: Api, hooks: WebhookServer
) -> None:
    owner = (await make(api, "owner")).json["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    await make(api, "owned", ownerReferences=[reference])
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", "UPDATE")], objectSelector={}))
    hooks.answers["/"] = allow
    await api.call("DELETE", f"{CONFIG_MAPS}/owner?propagationPolicy=Orphan")
    await until(lambda: len(hooks.reviews) >= 2)
    await api.settle()
    asked = [
        (review["request"]["name"], review["request"]["userInfo"]["username"]) for review in hooks.reviews
    ]
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    assert asked == [("owned", collector), ("owner", collector)]
    assert "ownerReferences" not in (await api.ok("GET", f"{CONFIG_MAPS}/owned"))["metadata"]
    assert (await api.call("GET", f"{CONFIG_MAPS}/owner")).status == 404


async def test_a_namespace_is_emptied_through_webhooks(api: Api, hooks: WebhookServer) -> None:
    await api.namespace("team")
    await api.ok("POST", "/api/v1/namespaces/team/configmaps", {"metadata": {"name": "kept"}})
    await register(api, "Validating", hooks.hook(rules=[rule_for("configmaps", "DELETE")]))
    hooks.answers["/"] = lambda _: {"allowed": False}
    await api.ok("DELETE", "/api/v1/namespaces/team")
    await until(lambda: len(hooks.reviews) >= 1)
    asked = hooks.reviews[0]["request"]
    assert asked["userInfo"]["username"] == "system:serviceaccount:kube-system:namespace-controller"
    assert (await api.call("GET", "/api/v1/namespaces/team/configmaps/kept")).status == 200
    hooks.answers["/"] = allow
    await until_gone(api, "/api/v1/namespaces/team")
