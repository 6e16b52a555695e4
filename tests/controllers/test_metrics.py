"""What is told about certificates, issuers and controllers when somebody scrapes."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from certwright.acme.protocol.client import RequestRecord
from certwright.acme.protocol.messages import Action
from certwright.controllers.acme.clients import OTHERS, AcmeRequests
from certwright.controllers.replicas.replica import ReplicaMetrics
from certwright.kit.exposition import labels
from certwright.kube.client import compressed
from certwright.kube.util.http_messages import Request
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import Scene, make_certificate, make_issuer
from support.world import ADMIN, START, World

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(world: World) -> Samples:
    """All samples by the name of their metric, as Prometheus' own parser reads them."""
    text = world.manager.metrics.take()().decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives counters the ending of OpenMetrics; cert-manager's have none.
            samples.setdefault(sample.name.removesuffix("_total"), []).append((sample.labels, sample.value))
    return samples


def value(world: World, metric: str, /, **about: str) -> float | None:
    """The one sample that has these labels, if there is one."""
    samples = scrape(world).get(f"certmanager_{metric}", [])
    values = [number for has, number in samples if about.items() <= has.items()]
    assert len(values) < 2
    return values[0] if values else None


async def test_a_certificate_has_its_state_and_its_dates(scene: Scene) -> None:
    certificate = await scene.issue()
    about = {
        "name": "web",
        "namespace": "default",
        "issuer_name": "ca",
        "issuer_kind": "",
        "issuer_group": "",
    }
    ready = [
        value(scene.world, "certificate_ready_status", condition=c, **about)
        for c in ("True", "False", "Unknown")
    ]
    assert ready == [1, 0, 0]
    end = (START + timedelta(days=90)).timestamp()
    assert value(scene.world, "certificate_not_after_timestamp_seconds", **about) == end
    assert value(scene.world, "certificate_expiration_timestamp_seconds", **about) == end
    assert value(scene.world, "certificate_not_before_timestamp_seconds", **about) == START.timestamp()
    moment = certificate.status.renewal_time
    assert moment is not None
    assert value(scene.world, "certificate_renewal_timestamp_seconds", **about) == moment.timestamp()


async def test_one_that_is_not_issued_has_dates_of_zero(scene: Scene) -> None:
    await scene.issue(issuer_ref=IssuerReference(name="far", kind="Away", group="example.com"))
    about = {"name": "web", "issuer_name": "far", "issuer_kind": "Away", "issuer_group": "example.com"}
    assert value(scene.world, "certificate_ready_status", condition="False", **about) == 1
    for date in ("not_after", "not_before", "expiration", "renewal"):
        assert value(scene.world, f"certificate_{date}_timestamp_seconds", **about) == 0


async def test_one_that_nobody_has_judged_is_unknown(scene: Scene) -> None:
    await scene.world.start_controllers(enabled="issuers")
    await scene.world.add(CERTIFICATES, make_certificate("web", "ca"))
    assert value(scene.world, "certificate_ready_status", name="web", condition="Unknown") == 1


async def test_issuers_have_their_state(scene: Scene) -> None:
    assert value(scene.world, "issuer_ready_status", name="ca", namespace="default", condition="True") == 1
    assert value(scene.world, "issuer_ready_status", name="ca", namespace="default", condition="False") == 0


async def test_nothing_is_left_of_what_was_deleted(scene: Scene) -> None:
    await scene.issue()
    await scene.world.add(ISSUERS, make_issuer("gone"))
    await scene.world.client.delete(CERTIFICATES, "web", "default")
    await scene.world.delete(ISSUERS, "gone")
    names = {has.get("name") for samples in scrape(scene.world).values() for has, _ in samples}
    assert names == {"ca", "root", None}


async def test_an_issuer_that_changed_leaves_no_second_series(scene: Scene) -> None:
    await scene.issue()
    await scene.change_spec("web", issuerRef={"name": "root"})
    samples = scrape(scene.world)["certmanager_certificate_renewal_timestamp_seconds"]
    assert [has["issuer_name"] for has, _ in samples if has["name"] == "web"] == ["root"]


async def test_the_work_and_the_clock_are_told(scene: Scene) -> None:
    before = value(scene.world, "controller_sync_call_count", controller="certificates")
    await scene.issue()
    after = value(scene.world, "controller_sync_call_count", controller="certificates")
    assert before is not None
    assert after is not None
    assert after > before
    assert value(scene.world, "controller_sync_error_count", controller="certificates") == 0
    assert value(scene.world, "clock_time_seconds_gauge") == START.timestamp()
    assert value(scene.world, "clock_time_seconds") == START.timestamp()


async def test_after_a_restart_requests_that_are_finished_are_not_looked_at(scene: Scene) -> None:
    await scene.issue()
    await scene.world.stop_controllers()
    await scene.world.start_controllers()
    await scene.world.settle()
    runs = {
        kind: value(scene.world, "controller_sync_call_count", controller=kind)
        for kind in ("certificates", "certificaterequests")
    }
    assert runs["certificates"]
    assert runs["certificaterequests"] == 0


async def test_certificates_at_rest_are_told_of_as_fresh_ones_are(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.issue()
    fresh = scrape(scene.world)
    await scene.world.stop_controllers()
    monkeypatch.setattr(compressed, "FRESH", 0)
    await scene.world.start_controllers()
    await scene.world.settle()
    packed_away = scrape(scene.world)
    for metric in (name for name in fresh if name.startswith("certmanager_certificate_")):
        assert packed_away[metric] == fresh[metric]


def test_labels_are_escaped() -> None:
    assert labels([("a", 'x"y\\z\n')]) == r'a="x\"y\\z\n"'


def test_the_name_of_an_issuer_makes_no_sample_of_a_megabyte() -> None:
    assert len(labels([("a", "x" * 10**6)])) < 2000


async def test_the_api_server_tells_them_beside_its_own(scene: Scene) -> None:
    world = scene.world
    world.server.add_metrics(world.manager.metrics.take)
    answer = await world.server.handle(Request("GET", "/metrics", user=ADMIN))
    families = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {"certmanager_issuer_ready_status", "apiserver_request"} <= families


async def test_the_page_on_metrics_names_all_and_no_others(scene: Scene) -> None:
    world = scene.world
    world.server.add_metrics(ReplicaMetrics("lease", leads=True, controllers=world.manager).take)
    answer = await world.server.handle(Request("GET", "/metrics", user=ADMIN))
    # The memory store has no commits, and no database of etcd.
    others = {
        "certwright_store_commits_total",
        "certwright_etcd_in_use_bytes",
        "certwright_etcd_quota_bytes",
        "apiserver_storage_size_bytes",
        "certwright_event_loop_lag_seconds",
    }
    names = {*others, *re.findall(r"^# TYPE (\S+)", answer.body.decode(), re.M)}
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    tables = "".join(line for line in page.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([a-z_]+)`", tables))
    assert {name for name in names if not name.startswith(("process_", "python_"))} == {
        name for name in named if name.startswith(("apiserver_", "cert", "leader_"))
    }


def test_servers_without_number_are_counted_together() -> None:
    """The author of an issuer may name another server each second."""
    traffic = AcmeRequests()
    for number in range(3000):
        url = f"https://h{number}.example/dir"
        traffic.observe(RequestRecord(Action.DIRECTORY, "GET", url, 200, 0.1))
    calls = traffic.take()
    assert len(calls) == 1001
    assert {kind.host: tally.count for kind, tally in calls}[OTHERS] == 2000
