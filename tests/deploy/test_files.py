"""Generated files are what they are generated from; the others say what the program does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from acme.fake_ca import FakeCa, Refusal
from certwright.cli.commands import controllers, export, serve
from certwright.cli.main import program
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.manager import ControllerManager
from certwright.controllers.replicas.shards import ClusterSettings, beside_a_server
from certwright.controllers.settings import Settings
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.kube.util.tasks import TaskSet
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.acme.fake_world import Shown
from controllers.scene import SELF_SIGNED, make_certificate, make_cluster_issuer, make_issuer
from deploy.rights import CHART, DEPLOY, ROOT, create_issuer, documents, helm, render
from support.real import require
from support.world import CONTROLLER, make_world


def test_the_definitions_are_those_that_the_program_prints() -> None:
    printed = CliRunner().invoke(program, ["crds"]).stdout
    for path in (DEPLOY / "crds.yaml", CHART / "files" / "crds.yaml"):
        assert path.read_text() == printed, f"{path} is old: run `make deploy`"


@pytest.mark.parametrize("name", ["kubernetes", "one-namespace"])
def test_the_plain_manifests_are_what_the_chart_renders(name: str) -> None:
    path = DEPLOY / ("kubernetes.yaml" if name == "kubernetes" else "kubernetes-one-namespace.yaml")
    rendered = render("--values", f"deploy/values-{name}.yaml")
    assert rendered == path.read_text(), f"{path} is old: run `make deploy`"


def test_the_admission_policies_are_what_the_chart_renders() -> None:
    served = ("--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")
    shown = render(*served, "--show-only", "templates/admission-policies.yaml")
    assert shown == (DEPLOY / "admission-policies.yaml").read_text(), "it is old: run `make deploy`"
    # A cluster that does not serve the kind gets none.
    assert "AdmissionPolicy" not in render()
    later = ("--api-versions", "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy")
    newest = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
    for versions, version in ((later, "v1beta1"), (later + newest, "v1")):
        objects = documents(render(*served, *versions))
        api_versions = {
            obj["apiVersion"] for obj in objects if obj["kind"].startswith("MutatingAdmissionPolicy")
        }
        assert api_versions == {f"admissionregistration.k8s.io/{version}"}


def test_the_chart_passes_helms_own_checks() -> None:
    assert "0 chart(s) failed" in helm("lint", "deploy/helm/certwright")


def _flags(command: Any) -> set[str]:
    return {flag for option in command.params for flag in option.opts}


def test_every_flag_that_the_chart_gives_is_one_of_the_program() -> None:
    text = (CHART / "templates" / "_flags.tpl").read_text()
    used = set(re.findall(r'(?:printf|append \$flags|list)\s+"(--[a-z0-9-]+)', text))
    assert len(used) > 15
    assert used <= _flags(controllers.command)


UNITS = ["certwright.service", "certwright-controllers.service", "certwright-export@.service"]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_the_unit_and_the_program_its_flags(unit: str) -> None:
    path = DEPLOY / "systemd" / unit
    start = re.search(r"^ExecStart=\S+ certwright (\S+) (.*)$", path.read_text(), re.M)
    assert start is not None
    command = {"serve": serve, "controllers": controllers, "export": export}[start[1]].command
    assert set(re.findall(r"--[a-z-]+", start[2])) <= _flags(command)
    require("systemd-analyze")
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "command"), [("certwright", "serve"), ("certwright-controllers", "controllers")]
)
def test_the_configuration_of_the_unit_is_valid(file: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / "certwright.yaml"
    path.write_bytes((DEPLOY / "systemd" / f"{file}.yaml").read_bytes())
    checked = CliRunner().invoke(program, ["config", "check", str(path), "--for", command])
    assert (checked.exit_code, checked.stderr) == (0, "")


@pytest.mark.parametrize("unit", ["certwright.service", "certwright-controllers.service"])
def test_the_unit_lets_files_keep_their_owner_and_group(unit: str) -> None:
    require("systemd-analyze")
    allowed: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", (DEPLOY / "systemd" / unit).read_text(), re.M):
        calls = {call for name in line.removeprefix("~").split() for call in _system_calls(name)}
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    assert "fchown" in allowed
    assert not allowed & {"setuid", "chroot", "setpriority", "mount"}


def _system_calls(name: str) -> set[str]:
    """The system calls of a set such as `@chown`, or one system call."""
    if not name.startswith("@"):
        return {name}
    command = ["systemd-analyze", "syscall-filter", name]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.strip() for line in text.splitlines()[1:] if not line.strip().startswith("#")]
    return {call for name in names if name for call in _system_calls(name)}


async def _metrics_told() -> set[str]:
    """What a replica tells that has issued from a CA and from an ACME server, and failed once."""
    async with make_world(controllers=False) as world:
        ca, shown = FakeCa(world.clock.now), Shown()
        acme = AcmeOptions(make_transport=ca.transport, responder=shown)
        tasks = TaskSet()
        made = beside_a_server(
            LocalTransport(world.server.handle, CONTROLLER),
            ClusterSettings(identity="one", kube_api_qps=-1),
            clock=world.clock,
            make=lambda client, mine: ControllerManager(
                client, world.clock, Inline(), Settings(acme=acme), mine
            ),
            tasks=tasks,
        )
        made.start()
        await world.settle()
        await create_issuer(world, ca)
        ca.verdicts["bad.example.org"] = Refusal("caa", "CAA forbids it")
        ca.slow.add("slow.example.org")
        await world.create(ISSUERS, make_issuer("self"))
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("self", SELF_SIGNED))
        for name, issuer in (("web", "self"), ("good", "acme"), ("bad", "acme"), ("slow", "acme")):
            asked = make_certificate(name, issuer, dns_names=(f"{name}.example.org",))
            await world.create(CERTIFICATES, asked)
        await world.advance(timedelta(minutes=1))
        text = made.metrics.take()().decode()
        await made.close()
        await tasks.close()
    return set(re.findall(r"^(?:# TYPE )?([a-z_]+)[ {]", text, re.M))


async def test_alerts_and_dashboard_ask_for_metrics_that_are_told() -> None:
    rules = yaml.safe_load((DEPLOY / "monitoring" / "rules.yaml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    ours = re.compile(r"\b(?:certmanager|leader_election|certwright_delivery|certwright_notifications)_\w+")
    named = {name for text in asked for name in ours.findall(text)}
    assert len(asked) > 15
    assert named - await _metrics_told() == set()


def test_every_alert_says_what_is_wrong_and_where_to_look() -> None:
    rules = yaml.safe_load((DEPLOY / "monitoring" / "rules.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["for"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    rules = yaml.safe_load((DEPLOY / "monitoring" / "rules.yaml").read_text())
    tests = yaml.safe_load((DEPLOY / "monitoring" / "rules_test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    does_not = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fires == does_not == {rule["alert"] for rule in rules["groups"][0]["rules"]}
    # Not demanded in CI: Debian's package takes 330 MB.
    if promtool := shutil.which("promtool"):
        subprocess.run(
            [promtool, "test", "rules", "rules_test.yaml"], cwd=DEPLOY / "monitoring", check=True, timeout=120
        )


def test_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert panel["description"]
        taken |= cells


def test_the_container_is_not_root_and_writes_nowhere_but_into_its_data() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    last = text.rpartition("\nFROM ")[2]
    assert "USER 65532:65532" in last
    assert 'ENTRYPOINT ["certwright"]' in last
    assert "for name in runtime $EXTRAS" in text
    assert "--require-hashes -r requirements/$name.lock" in text
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        for name in source.split():
            assert list(ROOT.glob(name)), name


def test_pods_are_confined() -> None:
    for path in (DEPLOY / "kubernetes.yaml", DEPLOY / "kubernetes-one-namespace.yaml"):
        deployment = next(
            document for document in documents(path.read_text()) if document["kind"] == "Deployment"
        )
        pod = deployment["spec"]["template"]["spec"]
        container = pod["containers"][0]
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert container["livenessProbe"]["httpGet"] == {"port": "http-metrics", "path": "/livez"}


def test_for_one_namespace_nothing_but_approval_is_cluster_wide() -> None:
    objects = documents((DEPLOY / "kubernetes-one-namespace.yaml").read_text())
    wide = [obj for obj in objects if obj["kind"].startswith("Cluster")]
    assert {obj["metadata"]["name"] for obj in wide} == {"certwright-approve"}
    rules = next(obj["rules"] for obj in wide if obj["kind"] == "ClusterRole")
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [(["signers"], ["approve"])]
    for obj in objects:
        assert obj in wide or obj["metadata"]["namespace"] == "certwright"


def test_cluster_wide_rights_name_resources_and_verbs_and_never_everything() -> None:
    for document in documents((DEPLOY / "kubernetes.yaml").read_text()):
        for rule in document.get("rules", ()):
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in words, document["metadata"]["name"]


def test_values_reach_what_they_are_about() -> None:
    values = {
        "replicaCount": "3",
        "shards": "3",
        "image.digest": "sha256:abc",
        "global.leaderElection.leaseDuration": "30s",
        "enableCertificateOwnerRef": "true",
        "disableAutoApproval": "true",
        "podDisruptionBudget.enabled": "true",
        "https_proxy": "http://proxy:3128",
        "prometheus.podmonitor.enabled": "true",
    }
    objects = documents(render(*(word for item in values.items() for word in ("--set", "=".join(item)))))
    by_kind = {obj["kind"]: obj for obj in objects}
    spec = by_kind["Deployment"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert spec["replicas"] == 3
    assert container["image"] == "certwright@sha256:abc"
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IPS": "status.podIPs"}
    own = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    assert container["env"] == [*own, {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    flags = {
        "--leader-election-lease-duration=30s",
        "--shards=3",
        "--identity=$(POD_NAME)",
        "--enable-certificate-owner-ref=true",
        "--controllers=*,-certificaterequests-approver",
    }
    assert flags <= set(container["args"])
    assert by_kind["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    assert by_kind["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["path"] == "/metrics"
    assert by_kind["Service"]["metadata"]["name"] == "certwright-http01"
    rules = [rule for obj in objects if obj["kind"] == "ClusterRole" for rule in obj["rules"]]
    assert not [rule for rule in rules if rule["resources"] == ["signers"]]
    roles = [rule for obj in objects if obj["kind"] == "Role" for rule in obj["rules"]]
    leases = [rule for rule in roles if "resourceNames" in rule]
    shards = [f"cert-manager-controller-shard-{n}" for n in range(3)]
    assert leases[0]["resourceNames"] == ["cert-manager-controller", *shards]


def test_the_readme_names_files_that_there_are() -> None:
    text = (DEPLOY / "README.md").read_text()
    for name in re.findall(r"`((?:[a-z-]+/)*[A-Za-z-]+\.(?:ya?ml|json|service)|Containerfile)`", text):
        assert (DEPLOY / name).exists(), name
    assert (ROOT / Path("Makefile")).read_text().count("\ndeploy:") == 1
