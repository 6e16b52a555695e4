"""HTTP-01 inside a cluster: the Service, EndpointSlices, Ingress or HTTPRoute of challenges."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from certwright.acme.solvers.contract import NotYet, Task
from certwright.controllers.acme.options import ClusterListener
from certwright.controllers.acme.order_challenges import overridden
from certwright.controllers.acme.routes import objects
from certwright.controllers.acme.routes.services import DEBOUNCE_S, RETRY_S, YOUNG
from certwright.controllers.acme.routes.solver import RESTORE_AFTER_S, patch_to_add, patch_to_remove
from certwright.controllers.cache.shard_members import Shards
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind, controller_reference
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util import http_messages
from certwright.resources.acme import Challenge
from certwright.resources.solver import Solver
from certwright.resources.table import CERTIFICATES, CHALLENGES
from controllers.acme.fake_world import Cut, FakeWorld, fake_world
from controllers.shims.shim_scene import serve, untyped
from support.world import CONTROLLER

Json = dict[str, Any]
ISSUER = {"name": "acme", "kind": "ClusterIssuer"}
LISTENER = ClusterListener(addresses=("10.0.0.5", "fd00::5"), port=8089)
REPLICAS = ObjectKey("kube-system", "certwright-http01")
SHOP: Json = {
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {
        "ingressClassName": "traefik",
        "rules": [
            {
                "host": host,
                "http": {
                    "paths": [
                        {
                            "path": "/",
                            "pathType": "Prefix",
                            "backend": {"service": {"name": "shop", "port": {"number": 80}}},
                        }
                    ]
                },
            }
            for host in ("other.example.org", "a.example.org")
        ],
    },
}


@pytest.fixture
async def fake() -> AsyncIterator[FakeWorld]:
    """A certwright inside a cluster: proxies reach its listener."""
    async with fake_world(cluster_listener=LISTENER) as made:
        yield made


async def listed(fake: FakeWorld, kind: Kind[Json]) -> list[Json]:
    return (await fake.world.client.list(kind, "default")).items


async def left(fake: FakeWorld) -> list[str]:
    """The names of all objects of solvers."""
    kinds = (objects.SERVICES, objects.ENDPOINT_SLICES, objects.INGRESSES)
    lists = [await listed(fake, kind) for kind in kinds]
    return [obj["metadata"]["name"] for some in lists for obj in some if "cm-acme" in obj["metadata"]["name"]]


async def pending(fake: FakeWorld, *names: str, **http01: Any) -> Challenge:
    """A Challenge that is presented, and not notified to the CA for an hour."""
    await fake.issuer(solvers=[{"http01": http01, "waitInsteadOfSelfCheck": "1h"}])
    await fake.issue("web", *names)
    challenges = await fake.challenges()
    return challenges[0]


async def shop(fake: FakeWorld) -> Json:
    ingress: Json = await fake.world.client.get(objects.INGRESSES, "shop", "default")
    return ingress


async def test_an_ingress_leads_to_the_listener_while_a_challenge_is_pending(fake: FakeWorld) -> None:
    challenge = await pending(fake, ingress={"ingressClassName": "traefik"})
    (service,) = await listed(fake, objects.SERVICES)
    assert service["metadata"]["name"] == "cm-acme-http-solver"
    assert (service["spec"]["type"], "selector" in service["spec"]) == ("NodePort", False)
    slices = {
        endpoint_slice["addressType"]: endpoint_slice
        for endpoint_slice in await listed(fake, objects.ENDPOINT_SLICES)
    }
    assert {
        family: endpoint_slice["endpoints"][0]["addresses"] for family, endpoint_slice in slices.items()
    } == {
        "IPv4": ["10.0.0.5"],
        "IPv6": ["fd00::5"],
    }
    for item in slices.values():
        assert item["metadata"]["labels"]["kubernetes.io/service-name"] == "cm-acme-http-solver"
        assert item["ports"] == [{"name": "http", "port": 8089, "protocol": "TCP"}]
    (ingress,) = await listed(fake, objects.INGRESSES)
    assert ingress["spec"] == {
        "ingressClassName": "traefik",
        "rules": [
            {
                "host": "a.example.org",
                "http": {
                    "paths": [
                        {
                            "path": f"/.well-known/acme-challenge/{challenge.spec.token}",
                            "pathType": "Exact",
                            "backend": {"service": {"name": "cm-acme-http-solver", "port": {"number": 8089}}},
                        }
                    ]
                },
            }
        ],
    }
    (owner,) = ingress["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Challenge", challenge.metadata.uid)
    assert fake.shown.tokens == {challenge.spec.token: challenge.spec.key}
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("web")
    assert await left(fake) == []


async def test_the_fields_of_cert_managers_solver_reach_the_objects(fake: FakeWorld) -> None:
    template = {"metadata": {"labels": {"team": "shop"}, "annotations": {"example.org/a": "b"}}}
    challenge = await pending(
        fake,
        ingress={
            "class": "nginx",
            "serviceType": "ClusterIP",
            "ingressTemplate": template,
            "podTemplate": {"spec": {"nodeSelector": {"a": "b"}}},
        },
    )
    (ingress,) = await listed(fake, objects.INGRESSES)
    annotations, labels = ingress["metadata"]["annotations"], ingress["metadata"]["labels"]
    assert annotations["kubernetes.io/ingress.class"] == "nginx"
    assert annotations["nginx.ingress.kubernetes.io/whitelist-source-range"] == "0.0.0.0/0,::/0"
    assert (annotations["example.org/a"], labels["team"]) == ("b", "shop")
    assert labels["acme.cert-manager.io/http01-solver"] == "true"
    assert "ingressClassName" not in ingress["spec"]
    (service,) = await listed(fake, objects.SERVICES)
    assert service["spec"]["type"] == "ClusterIP"
    (event,) = [event for event in await fake.world.events() if event.reason == "PodTemplateIgnored"]
    assert event.involved_object.name == challenge.metadata.name


async def test_the_operators_labels_and_path_type_reach_the_objects() -> None:
    listener = replace(LISTENER, labels={"team": "ops", "tier": "edge"}, path_type="ImplementationSpecific")
    async with fake_world(cluster_listener=listener) as fake:
        await serve(fake.world, objects.HTTP_ROUTES)
        template = {"metadata": {"labels": {"team": "shop"}}}
        parents = [{"name": "gate"}]
        gate = {"gatewayHTTPRoute": {"parentRefs": parents}}
        await fake.issuer(
            solvers=[
                {"http01": {"ingress": {"ingressTemplate": template}}, "waitInsteadOfSelfCheck": "1h"},
                {"http01": gate, "waitInsteadOfSelfCheck": "1h", "selector": {"dnsZones": ["gate.org"]}},
            ]
        )
        await fake.issue("web", "a.example.org", "b.gate.org")
        made = {
            kind.kind: (await listed(fake, kind))[0]
            for kind in (objects.SERVICES, objects.ENDPOINT_SLICES, objects.INGRESSES, objects.HTTP_ROUTES)
        }
    labels = {kind: obj["metadata"]["labels"] for kind, obj in made.items()}
    assert {kind: (obj_labels["team"], obj_labels["tier"]) for kind, obj_labels in labels.items()} == {
        "Service": ("ops", "edge"),
        "EndpointSlice": ("ops", "edge"),
        "Ingress": ("shop", "edge"),
        "HTTPRoute": ("ops", "edge"),
    }
    (path,) = made["Ingress"]["spec"]["rules"][0]["http"]["paths"]
    assert path["pathType"] == "ImplementationSpecific"


async def test_one_service_is_shared_by_the_challenges_of_a_namespace(fake: FakeWorld) -> None:
    await pending(fake, "a.example.org", "b.example.org", ingress={})
    assert len(await listed(fake, objects.SERVICES)) == 1
    assert len(await listed(fake, objects.INGRESSES)) == 2
    await fake.world.advance(timedelta(hours=2))
    assert await left(fake) == []


async def test_the_challenge_of_an_address_has_no_host(fake: FakeWorld) -> None:
    challenge = await pending(fake, ingress={})
    assert objects.host_of(challenge) == "a.example.org"
    await fake.issue("address", dnsNames=[], ipAddresses=["192.0.2.1"])
    rules = [ingress["spec"]["rules"][0] for ingress in await listed(fake, objects.INGRESSES)]
    assert sorted(rule.get("host", "") for rule in rules) == ["", "a.example.org"]


async def test_a_named_ingress_is_edited_and_restored(fake: FakeWorld) -> None:
    await fake.world.client.create(objects.INGRESSES, SHOP)
    before = (await shop(fake))["spec"]
    challenge = await pending(fake, ingress={"name": "shop"})
    assert challenge.metadata.finalizers
    other, ours = (await shop(fake))["spec"]["rules"]
    assert other == before["rules"][0]
    added, users = ours["http"]["paths"]
    assert users == before["rules"][1]["http"]["paths"][0]
    assert added["path"].endswith(challenge.spec.token)
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("web")
    assert (await shop(fake))["spec"] == before
    assert await left(fake) == []


async def test_a_missing_ingress_is_reported(fake: FakeWorld) -> None:
    challenge = await pending(fake, ingress={"name": "shop"})
    assert "the Ingress default/shop does not exist; create it" in challenge.status.reason
    await fake.world.client.create(objects.INGRESSES, SHOP)
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("web")


async def test_edits_of_a_user_survive_ours(fake: FakeWorld) -> None:
    """The user changes the Ingress between each of our reads and our patch, five times."""
    await fake.world.client.create(objects.INGRESSES, SHOP)
    handler, edits = fake.world.recording.handler, [f"edit-{number}.example.org" for number in range(5)]
    edited: list[str] = []

    async def between(request: http_messages.Request) -> http_messages.Response:
        ours = request.method == "PATCH" and "/ingresses/shop" in request.target
        if ours and edits and request.user is not None and "service" in request.user.name:
            edited.append(edits.pop())
            rule = {"host": edited[-1], "http": SHOP["spec"]["rules"][0]["http"]}
            ingress = await shop(fake)
            ingress["spec"]["rules"].insert(0, rule)
            await fake.world.client.update(objects.INGRESSES, ingress)
        return await handler(request)

    fake.world.recording.handler = between
    await pending(fake, ingress={"name": "shop"})
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("web")
    rules = (await shop(fake))["spec"]["rules"]
    assert len(edited) == 5
    assert {rule["host"] for rule in rules} == {*edited, "other.example.org", "a.example.org"}
    assert all(len(rule["http"]["paths"]) == 1 for rule in rules)


@pytest.mark.parametrize("solver", [{"name": "shop"}, {}])
async def test_a_kill_between_any_two_writes_leaves_nothing_behind(solver: Json) -> None:
    """Cut off after each write that concerns the solver, in turn; the next process completes the certificate
    and removes all."""
    first, last = await solver_writes(solver)
    for cut in range(first - 1, last + 2):
        async with fake_world(cluster_listener=LISTENER) as fake:
            before = await begin(fake, solver)
            fake.cut.left = cut
            await fake.issue(after=timedelta(seconds=20))
            assert fake.cut.left <= 0
            await fake.start()
            await fake.world.advance(timedelta(hours=2))
            assert await fake.world.is_ready("web"), (cut, fake.cut.was)
            assert (await shop(fake))["spec"] == before, (cut, fake.cut.was)
            assert await left(fake) == [], (cut, fake.cut.was)


async def begin(fake: FakeWorld, solver: Json) -> Json:
    """The spec of the user's Ingress, beside an issuer with that solver."""
    await fake.world.client.create(objects.INGRESSES, SHOP)
    await fake.issuer(solvers=[{"http01": {"ingress": solver}, "waitInsteadOfSelfCheck": "0s"}])
    spec: Json = (await shop(fake))["spec"]
    return spec


class Counting(Cut):
    """Records which writes and requests are about the solver's objects."""

    def __init__(self) -> None:
        super().__init__()
        self.solvers: list[int] = []

    def spend(self, what: str) -> bool:
        """See `Cut`."""
        was_last = super().spend(what)
        if "cm-acme" in what or "/shop" in what:
            self.solvers.append(self.count)
        return was_last


async def solver_writes(solver: Json) -> tuple[int, int]:
    """Which writes and requests of an issuance are the first and the last one about the solver's objects."""
    async with fake_world(cluster_listener=LISTENER) as fake:
        await begin(fake, solver)
        fake.cut = counting = Counting()
        await fake.issue(after=timedelta(seconds=20))
        assert await fake.world.is_ready("web")
    return counting.solvers[0], counting.solvers[-1]


async def test_a_deleted_challenge_is_undone(fake: FakeWorld) -> None:
    await fake.world.client.create(objects.INGRESSES, SHOP)
    before = (await shop(fake))["spec"]
    await pending(fake, ingress={"name": "shop"})
    await fake.world.client.delete(CERTIFICATES, "web", "default")
    for challenge in await fake.challenges():
        await fake.world.client.delete(CHALLENGES, challenge.metadata.name, "default")
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.challenges() == []
    assert (await shop(fake))["spec"] == before
    assert await left(fake) == []


async def test_a_gateway_gets_a_route(fake: FakeWorld) -> None:
    await serve(fake.world, objects.HTTP_ROUTES)
    parents = [{"name": "gate", "namespace": "infra", "sectionName": "http"}]
    challenge = await pending(fake, gatewayHTTPRoute={"labels": {"acme": "solver"}, "parentRefs": parents})
    (route,) = await listed(fake, objects.HTTP_ROUTES)
    assert route["metadata"]["labels"]["acme"] == "solver"
    assert route["spec"]["hostnames"] == ["a.example.org"]
    (parent,) = route["spec"]["parentRefs"]
    assert parent.items() >= parents[0].items()
    (rule,) = route["spec"]["rules"]
    assert rule["matches"][0]["path"]["value"].endswith(challenge.spec.token)
    assert rule["backendRefs"][0]["name"] == "cm-acme-http-solver"
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("web")
    assert (await left(fake), await listed(fake, objects.HTTP_ROUTES)) == ([], [])


async def test_a_missing_kind_or_gateway_is_reported(fake: FakeWorld) -> None:
    challenge = await pending(fake, gatewayHTTPRoute={})
    assert "parentRefs of the solver is empty; name a Gateway" in challenge.status.reason
    await fake.issuer("gate", solvers=[{"http01": {"gatewayHTTPRoute": {"parentRefs": [{"name": "gate"}]}}}])
    await fake.issue("other", "b.example.org", issuer="gate")
    reasons = [
        item.status.reason for item in await fake.challenges() if item.spec.dns_name == "b.example.org"
    ]
    assert "the HTTPRoute default/cm-acme-http-solver-" in reasons[0]


async def test_annotations_of_the_certificate_choose_the_ingress_and_the_gateway(fake: FakeWorld) -> None:
    await serve(fake.world, objects.HTTP_ROUTES)
    await fake.world.client.create(objects.INGRESSES, SHOP)
    solvers = [
        {"http01": {"ingress": {"class": "nginx"}}, "waitInsteadOfSelfCheck": "1h"},
        {
            "http01": {"gatewayHTTPRoute": {}},
            "waitInsteadOfSelfCheck": "1h",
            "selector": {"dnsZones": ["gate.org"]},
        },
    ]
    await fake.issuer(solvers=solvers)
    prefix = "acme.cert-manager.io/http01"
    for name, host, chosen in (
        ("in-place", "a.example.org", {f"{prefix}-override-ingress-name": "shop"}),
        ("by-class", "b.example.org", {f"{prefix}-override-ingress-ingressclassname": "traefik"}),
        ("by-gate", "c.gate.org", {f"{prefix}-parentrefname": "gate", f"{prefix}-parentrefkind": "Gateway"}),
    ):
        spec = {"secretName": name, "dnsNames": [host], "issuerRef": ISSUER}
        meta = {"name": name, "namespace": "default", "annotations": chosen}
        await fake.world.client.create(untyped(CERTIFICATES), {"metadata": meta, "spec": spec})
    await fake.world.settle()
    assert len((await shop(fake))["spec"]["rules"][1]["http"]["paths"]) == 2
    made = [
        ingress for ingress in await listed(fake, objects.INGRESSES) if ingress["metadata"]["name"] != "shop"
    ]
    assert [ingress["spec"].get("ingressClassName") for ingress in made] == ["traefik"]
    (route,) = await listed(fake, objects.HTTP_ROUTES)
    assert route["spec"]["parentRefs"][0]["name"] == "gate"


class Fails:
    """A self-check that never succeeds."""

    async def check(self, _task: Task) -> NotYet:
        """See `Check`."""
        return NotYet("nothing is seen")


async def test_what_another_client_deletes_is_restored_while_the_self_check_fails() -> None:
    async with fake_world(cluster_listener=LISTENER, check=Fails()) as fake:
        await fake.issuer(solvers=[{"http01": {"ingress": {}}}])
        await fake.issue()
        assert len(await left(fake)) == 4
        await fake.world.client.delete(objects.SERVICES, "cm-acme-http-solver", "default")
        await fake.world.settle()
        assert len(await left(fake)) < 4
        await fake.world.advance(timedelta(seconds=6 * RESTORE_AFTER_S))
        assert len(await left(fake)) == 4


async def test_each_shard_has_its_service(fake: FakeWorld) -> None:
    await fake.start(mine=Shards(frozenset({0, 1}), 2))
    await fake.issuer(solvers=[{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "1h"}])
    for number in range(6):
        await fake.issue(f"web-{number}", f"web-{number}.example.org")
    names = {service["metadata"]["name"] for service in await listed(fake, objects.SERVICES)}
    assert names == {"cm-acme-http-solver-0", "cm-acme-http-solver-1"}
    await fake.world.advance(timedelta(hours=2))
    assert await left(fake) == []


class Elsewhere:
    """The Service of all replicas, whose EndpointSlices Kubernetes would write."""

    def __init__(self, fake: FakeWorld) -> None:
        self.fake = fake

    async def has(self, *endpoints: Json, family: str = "IPv4", service: str = REPLICAS.name) -> None:
        """The endpoints of that family, from now on."""
        meta = {
            "name": f"{service}-{family.lower()}",
            "namespace": REPLICAS.namespace,
            "labels": {"kubernetes.io/service-name": service},
        }
        manifest = {"metadata": meta, "addressType": family, "endpoints": list(endpoints), "ports": []}
        await self.fake.world.client.apply(
            objects.ENDPOINT_SLICES, manifest, field_manager="kubernetes", force=True
        )


def endpoint(address: str, **conditions: bool) -> Json:
    return {"addresses": [address], "conditions": conditions}


async def led_to(fake: FakeWorld) -> dict[str, list[str]]:
    """The addresses in the EndpointSlices, by family."""
    slices = await listed(fake, objects.ENDPOINT_SLICES)
    return {
        endpoint_slice["addressType"]: [
            address for end in endpoint_slice["endpoints"] for address in end["addresses"]
        ]
        for endpoint_slice in slices
    }


def slice_writes(fake: FakeWorld) -> int:
    return sum("/default/endpointslices/" in write.path for write in fake.world.recording.object_writes())


@pytest.fixture
async def several() -> AsyncIterator[tuple[FakeWorld, Elsewhere]]:
    """A certwright that is one of several replicas."""
    async with fake_world(cluster_listener=replace(LISTENER, service=REPLICAS)) as made:
        yield made, Elsewhere(made)


async def test_challenges_lead_to_all_ready_replicas_as_they_come_and_go(
    several: tuple[FakeWorld, Elsewhere],
) -> None:
    fake, replicas = several
    await pending(fake, ingress={})
    # The Service has no endpoints yet.
    assert await led_to(fake) == {"IPv4": ["10.0.0.5"], "IPv6": ["fd00::5"]}
    before = slice_writes(fake)
    # Without a condition an endpoint is ready; the second replica comes at the same time.
    await replicas.has({"addresses": ["10.0.0.5"]})
    await replicas.has({"addresses": ["10.0.0.5"]}, endpoint("10.0.0.6", ready=True))
    await replicas.has(endpoint("fd00:0::6", ready=True), family="IPv6")
    await fake.world.advance(timedelta(seconds=DEBOUNCE_S))
    assert await led_to(fake) == {"IPv4": ["10.0.0.5", "10.0.0.6"], "IPv6": ["fd00::5", "fd00::6"]}
    assert slice_writes(fake) - before == 2
    # One becomes unready: the EndpointSlice of the other family is not written again.
    await replicas.has(endpoint("10.0.0.5", ready=True), endpoint("10.0.0.6", ready=False))
    await fake.world.advance(timedelta(seconds=DEBOUNCE_S))
    assert await led_to(fake) == {"IPv4": ["10.0.0.5"], "IPv6": ["fd00::5", "fd00::6"]}
    assert slice_writes(fake) - before == 3
    # A replica that ends, another Service, and names: nothing to write.
    await replicas.has(endpoint("10.0.0.5", ready=True), endpoint("10.0.0.6", ready=True, terminating=True))
    await replicas.has(endpoint("10.0.0.9", ready=True), service="other")
    await replicas.has(endpoint("a.example.org", ready=True), family="FQDN")
    await fake.world.advance(timedelta(seconds=DEBOUNCE_S))
    assert slice_writes(fake) - before == 3
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("web")
    assert await left(fake) == []
    # No challenge is pending: nothing is written.
    written = slice_writes(fake)
    await replicas.has(endpoint("10.0.0.7", ready=True))
    await fake.world.advance(timedelta(minutes=1))
    assert slice_writes(fake) == written


async def test_a_family_that_this_replica_does_not_have_is_left_out() -> None:
    own = ClusterListener(addresses=("fd00::5",), port=8089, service=REPLICAS)
    async with fake_world(cluster_listener=own) as fake:
        await Elsewhere(fake).has(endpoint("10.0.0.6", ready=True))
        await Elsewhere(fake).has(endpoint("fd00::4", ready=True), family="IPv6")
        await fake.world.settle()
        await pending(fake, ingress={})
        assert await led_to(fake) == {"IPv6": ["fd00::4", "fd00::5"]}


async def test_a_change_of_replicas_that_cannot_be_written_is_written_later(
    several: tuple[FakeWorld, Elsewhere],
) -> None:
    fake, replicas = several
    await pending(fake, ingress={})
    fake.cut.left = 0
    await replicas.has(endpoint("10.0.0.6", ready=True))
    await fake.world.advance(timedelta(seconds=DEBOUNCE_S))
    assert (await led_to(fake))["IPv4"] == ["10.0.0.5"]
    fake.cut.left = 10**9
    await fake.world.advance(timedelta(seconds=RETRY_S))
    assert (await led_to(fake))["IPv4"] == ["10.0.0.5", "10.0.0.6"]


async def test_without_the_service_only_this_replica_is_named(fake: FakeWorld) -> None:
    asked: list[str] = []
    handler = fake.world.recording.handler

    async def recorded(request: http_messages.Request) -> http_messages.Response:
        if request.method == "GET" and "endpointslices" in request.target and request.user == CONTROLLER:
            asked.append(request.target)
        return await handler(request)

    fake.world.recording.handler = recorded
    await Elsewhere(fake).has(endpoint("10.0.0.6", ready=True))
    await fake.start()
    await pending(fake, ingress={})
    assert await led_to(fake) == {"IPv4": ["10.0.0.5"], "IPv6": ["fd00::5"]}
    assert asked == []


@pytest.mark.parametrize("service", [None, REPLICAS])
async def test_the_successor_of_a_shard_leads_its_challenges_to_itself(service: ObjectKey | None) -> None:
    async with fake_world(cluster_listener=replace(LISTENER, service=service)) as fake:
        shard = Shards(frozenset({1}), 2)
        await fake.start(mine=Shards(frozenset({0, 1}), 2))
        await fake.issuer(solvers=[{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "1h"}])
        for number in range(6):
            await fake.issue(f"web-{number}", f"web-{number}.example.org")
        fake.options["cluster_listener"] = ClusterListener(
            addresses=("10.0.0.7",), port=8089, service=service
        )
        await fake.start(mine=shard)
        await fake.world.settle()
        endpoints = {
            endpoint_slice["metadata"]["name"]: endpoint_slice["endpoints"][0]["addresses"]
            for endpoint_slice in await listed(fake, objects.ENDPOINT_SLICES)
        }
        # The other shard is not the successor's.
        assert endpoints["cm-acme-http-solver-1-ipv4"] == ["10.0.0.7"]
        assert endpoints["cm-acme-http-solver-0-ipv4"] == ["10.0.0.5"]


async def test_left_over_objects_of_ended_challenges_are_removed(fake: FakeWorld) -> None:
    challenge = await pending(fake, ingress={})

    def owned(by: Challenge, name: str) -> Json:
        owner = msgspec.to_builtins(controller_reference(CHALLENGES, by.metadata))
        labels = {"acme.cert-manager.io/http01-solver": "true"}
        return {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [owner]}

    meta = msgspec.structs.replace(
        challenge.metadata, name="ended", uid="", resource_version="", owner_references=()
    )
    ended = await fake.world.client.create(CHALLENGES, Challenge(metadata=meta, spec=challenge.spec))
    failed = {"status": {"state": "invalid"}}
    await fake.world.client.patch(CHALLENGES, "ended", "default", failed, subresource="status")
    spec = {"ports": [{"port": 8089}]}
    for name, item in (("kept", challenge), ("gone", ended)):
        await fake.world.client.create(objects.SERVICES, {"metadata": owned(item, name), "spec": spec})
        await fake.world.client.create(objects.INGRESSES, {**SHOP, "metadata": owned(item, name)})
        pod = {"containers": [{"name": "acmesolver", "image": "x"}]}
        await fake.world.client.create(objects.PODS, {"metadata": owned(item, name), "spec": pod})
    users = {"metadata": {"name": "mine", "namespace": "default"}, "spec": spec}
    await fake.world.client.create(objects.SERVICES, users)
    await fake.world.advance(YOUNG)
    await fake.start()
    for kind in (objects.SERVICES, objects.INGRESSES, objects.PODS):
        names = [obj["metadata"]["name"] for obj in await listed(fake, kind)]
        assert ("kept" in names, "gone" in names) == (True, False), kind.kind
    assert "mine" in [service["metadata"]["name"] for service in await listed(fake, objects.SERVICES)]


async def test_an_issuers_template_is_not_the_challenges_authors(fake: FakeWorld) -> None:
    """The role `edit` may write Challenges; what their Ingress looks like is the issuer's."""
    challenge = await pending(fake, ingress={})
    template = {"metadata": {"annotations": {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}}}
    spec = {"solver": {"http01": {"ingress": {"ingressTemplate": template}}}}
    with pytest.raises(errors.ApiError):
        # The spec of an existing Challenge never changes, not even for the administrator.
        await fake.world.client.patch(CHALLENGES, challenge.metadata.name, "default", {"spec": spec})


@pytest.mark.parametrize(
    ("configured", "annotated", "expected"),
    [
        ([], {"kind": "Gateway", "name": "a"}, ["a"]),
        ([{"name": "outer", "namespace": "infra"}], {"kind": "Gateway", "name": "a"}, ["outer", "a"]),
        ([{"name": "a", "sectionName": "http"}], {"kind": "Gateway", "name": "a"}, ["a"]),
        (
            [{"name": "a", "sectionName": "http"}],
            {"kind": "Gateway", "name": "a", "namespace": "default"},
            ["a"],
        ),
        ([{"name": "a"}], {"kind": "ListenerSet", "name": "a"}, ["a", "a"]),
        ([{"name": "a", "namespace": "infra"}], {"kind": "Gateway", "name": "a"}, ["a", "a"]),
        ([{"name": "outer"}], {}, ["outer"]),
        ([], {"kind": "XListenerSet", "name": "more"}, ["gateway.networking.x-k8s.io/more"]),
    ],
)
def test_the_parent_of_the_annotations_is_beside_those_of_the_solver(
    configured: list[Json], annotated: dict[str, str], expected: list[str]
) -> None:
    """As with cert-manager 1.21: the CA's request may come through either. An experimental ListenerSet is in
    another group."""
    solver = msgspec.convert({"http01": {"gatewayHTTPRoute": {"parentRefs": configured}}}, Solver)
    annotations = {f"acme.cert-manager.io/http01-parentref{key}": value for key, value in annotated.items()}
    http01 = overridden(solver, annotations, "default").http01
    assert http01 is not None
    assert http01.gateway_http_route is not None
    parents = http01.gateway_http_route.parent_refs
    assert [f"{p.group}/{p.name}" if p.group else p.name for p in parents] == expected


INGRESS = {"metadata": {"resourceVersion": "7"}, "spec": {"rules": []}}
RULE = {"host": "a", "http": {"paths": [{"path": "/t"}]}}


@pytest.mark.parametrize(
    ("rules", "changes"),
    [
        ([], [("add", "/spec/rules")]),
        ([{"host": "b", "http": {"paths": [{"path": "/"}]}}], [("add", "/spec/rules/-")]),
        ([{"host": "a"}], [("add", "/spec/rules/-")]),
        ([{"host": "a", "http": {"paths": [{"path": "/"}]}}], [("add", "/spec/rules/0/http/paths/0")]),
        (
            [{"host": "a", "http": {"paths": [{"path": "/t", "x": 1}]}}],
            [("replace", "/spec/rules/0/http/paths/0")],
        ),
        ([RULE], None),
    ],
)
def test_a_path_is_added_once(rules: list[Json], changes: list[tuple[str, str]] | None) -> None:
    patch = patch_to_add({**INGRESS, "spec": {"rules": rules}}, RULE)
    assert ([(operation["op"], operation["path"]) for operation in patch[1:]] if patch else None) == changes
    if patch:
        assert patch[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


@pytest.mark.parametrize(
    ("rules", "removed"),
    [
        ([], None),
        ([{"host": "a"}], None),
        ([{"host": "b", "http": {"paths": [{"path": "/t"}]}}], None),
        ([RULE], ["/spec/rules"]),
        ([RULE, {"host": "b"}], ["/spec/rules/0"]),
        (
            [{"host": "a", "http": {"paths": [{"path": "/t"}, {"path": "/"}, {"path": "/t"}]}}, RULE],
            ["/spec/rules/1", "/spec/rules/0/http/paths/2", "/spec/rules/0/http/paths/0"],
        ),
    ],
)
def test_only_our_path_is_removed(rules: list[Json], removed: list[str] | None) -> None:
    patch = patch_to_remove({**INGRESS, "spec": {"rules": rules}}, "a", "/t")
    assert ([operation["path"] for operation in patch[1:]] if patch else None) == removed
