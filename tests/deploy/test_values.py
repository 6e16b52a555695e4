"""Values of cert-manager's chart: honoured, accepted and not used, or refused with a sentence."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from certwright.cli.commands import controllers
from certwright.controllers import settings as of_controllers
from certwright.kube.apiserver.base import features as of_server
from deploy.rights import CHART, Json, documents, helm, render
from support.programs import tool

HERE = Path(__file__).parent
SIGNING_REQUESTS = "ExperimentalCertificateSigningRequestControllers"
VALUES = sorted((HERE / "values").glob("*.yaml"))


def refusal(*words: str) -> str:
    """What Helm prints when the chart refuses its values."""
    program = str(tool("helm", made_by="helm"))
    command = [program, "template", "certwright", str(CHART), "--kube-version", "1.34.0", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0, "the values are accepted"
    return done.stderr


def of_kind(objects: list[Json], kind: str) -> Json:
    """The one object of a kind, apart from those that make the replicas known for HTTP-01."""
    (obj,) = (
        item for item in objects if item["kind"] == kind and not item["metadata"]["name"].endswith("-http01")
    )
    return obj


def pod_of(objects: list[Json]) -> Json:
    """The pod template's spec."""
    spec: Json = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def flags_of(objects: list[Json]) -> list[str]:
    """The flags of the controllers."""
    args: list[str] = pod_of(objects)["containers"][0]["args"]
    return args[1:]


def rendered(name: str) -> list[Json]:
    """The chart with a values file of `tests/deploy/values`."""
    return documents(render("--values", str(HERE / "values" / f"{name}.yaml")))


def listed(name: str) -> list[str]:
    """The lines of a file of facts."""
    lines = (HERE / "data" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def is_accepted(schema: Json, path: list[str]) -> bool:
    """Whether the schema has a value, or any values there."""
    for word in path:
        if word not in schema.get("properties", {}):
            return schema.get("additionalProperties", True) is True and schema.get("type") in ("object", None)
        schema = schema["properties"][word]
    return True


def test_every_value_of_cert_managers_chart_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    names = listed("cert_manager_values.txt")
    assert len(names) > 200
    assert [name for name in names if not is_accepted(schema, name.split("."))] == []


def test_every_default_is_in_the_schema_and_every_value_in_the_readme() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(defaults) <= set(schema["properties"])
    table = (CHART / "README.md").read_text().partition("## Values")[2]
    assert set(schema["properties"]) - set(re.findall(r"`([A-Za-z0-9_]+)`", table)) == set()


def test_a_misspelt_value_is_named() -> None:
    misspelt = "imgae.tag=1,image.tga=1,cainjector.enable=false,prometheus.servicemonitor.enbaled=true"
    text = refusal("--set", f"{misspelt},global.rbac.craete=true")
    for name in ("imgae", "tga", "enable", "enbaled", "craete"):
        assert f"additional properties '{name}' not allowed" in text


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ("image.repository=quay.io/jetstack/cert-manager-controller", "is cert-manager's image; name"),
        ("image.tag=v1.21.2", "image.tag: v1.21.2 is a version of cert-manager"),
        ("installCRDs=true,crds.enabled=true", "installCRDs and crds.enabled are the same"),
        ("installCRDs=true,crds.keep=false", "crds.keep: false needs crds.enabled: true"),
        ("global.podSecurityPolicy.enabled=true", "Kubernetes 1.25 removed PodSecurityPolicies"),
        ("featureGates=OtherNames=false", "OtherNames=false cannot be honoured"),
        ("featureGates=AllBeta=false", "set it to true, or remove it and AllBeta=false"),
        ("featureGates=Unknown=true", "Unknown is no feature gate"),
        ("config.workers=3", "config.workers is no setting"),
        ("config.metricsTLSConfig.dynamic.secret=a", "config.metricsTLSConfig.dynamic.secret is no setting"),
        ("extraArgs={--config=/etc/config}", "--config cannot be honoured: write the file's content"),
        ("extraArgs={--nope}", "--nope is no flag of `certwright controllers`, which would not"),
        ("extraArgs={--namespace,team}", '"team" is no flag; write a flag and its value as one item'),
        ("cainjector.config.namespace=team", "cainjector.config.namespace cannot be honoured"),
        ("cainjector.extraArgs={--enable-apiservices-injectable=false}", "cannot be honoured: certwright"),
        ("podDisruptionBudget.minAvailable=1,podDisruptionBudget.maxUnavailable=1,podDisruptionBudget.enabled=true",
         "only one of minAvailable and maxUnavailable"),
        ("prometheus.podmonitor.enabled=true,prometheus.servicemonitor.enabled=true", "counted twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_with_a_sentence(values: str, sentence: str) -> None:
    assert sentence in refusal("--set", values)


def test_flags_of_cert_manager_are_flags_of_the_program_or_left_out_or_refused() -> None:
    known = {flag for option in controllers.command.params for flag in option.opts}
    refused = ("--config", "--kubeconfig", "--master")
    names = [name for name in listed("cert_manager_flags.txt") if not name.startswith(refused)]
    values = {"--feature-gates": "AllBeta=true", "--v": "5", "--controllers": "*", "--namespace": "team"}
    arguments = [f"{name}={values.get(name, 'x')}" for name in names]
    flags = flags_of(documents(render("--set-json", f"extraArgs={json.dumps(arguments)}")))
    given = {flag.partition("=")[0] for flag in flags}
    assert given <= known
    flags_file = CHART / "files" / "flags.txt"
    assert flags_file.read_text().split() == sorted(
        flag.removeprefix("--") for flag in known if flag.startswith("--")
    )
    left_out = set(names) - given
    assert left_out & known == {"--controllers", "--feature-gates"}, "neither was given anything to do"
    assert {"--concurrent-workers", "--v", "--max-certificate-size"} <= left_out
    assert "--log-level=debug" in flags


def test_settings_of_the_configuration_file_are_flags_of_the_program() -> None:
    known = {flag for option in controllers.command.params for flag in option.opts}
    text = (CHART / "templates" / "_flags.tpl").read_text()
    table = text.partition('define "certwright.configFlags" -}}')[2].partition("{{- end")[0]
    flags = yaml.safe_load(table)
    assert {f"--{flag}" for flag in flags.values()} <= known
    assert len(flags) > 25


def test_a_cluster_of_three_replicas() -> None:
    objects = rendered("high-availability")
    deployment = of_kind(objects, "Deployment")
    assert deployment["spec"]["replicas"] == 3
    assert of_kind(objects, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert pod_of(objects)["priorityClassName"] == "system-cluster-critical"
    assert "--leader-election-namespace=cert-manager" in flags_of(objects)
    assert [obj["kind"] for obj in objects].count("CustomResourceDefinition") >= 6


def test_the_prometheus_operator_and_roles_of_a_cloud() -> None:
    objects = rendered("prometheus-operator")
    monitor = of_kind(objects, "ServiceMonitor")
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["certwright"]}
    service = of_kind(objects, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["targetPort"] == "http-metrics"
    account = of_kind(objects, "ServiceAccount")
    role = "arn:aws:iam::123456789012:role/certwright"
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role}
    assert "--issuer-ambient-credentials" in flags_of(objects)
    assert pod_of(objects)["dnsPolicy"] == "None"


def test_metrics_over_https_and_then_the_probe_too() -> None:
    objects = rendered("prometheus-operator")
    assert {
        "--metrics-tls-min-version=VersionTLS13",
        "--metrics-dynamic-serving-ca-secret-namespace=$(POD_NAMESPACE)",
        "--metrics-dynamic-serving-ca-secret-name=certwright-metrics-ca",
        "--metrics-dynamic-serving-dns-names=certwright.certwright.svc,certwright",
        "--metrics-dynamic-serving-leaf-duration=72h",
    } <= set(flags_of(objects))
    (container,) = pod_of(objects)["containers"]
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert of_kind(objects, "ServiceMonitor")["spec"]["endpoints"][0]["scheme"] == "https"
    by_files = documents(render("--set", "config.metricsTLSConfig.filesystem.certFile=/tls/tls.crt"))
    assert "--metrics-tls-cert-file=/tls/tls.crt" in flags_of(by_files)
    assert pod_of(by_files)["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    plain = documents(render())
    assert "scheme" not in pod_of(plain)["containers"][0]["livenessProbe"]["httpGet"]


def test_settings_of_the_configuration_file_become_flags_and_rights() -> None:
    objects = rendered("gateway-api")
    flags = flags_of(objects)
    assert {
        "--log-level=debug",
        "--enable-gateway-api=true",
        "--gateway-api-extra-protocols=example.com/tls",
        "--kube-api-qps=9000",
        "--leader-election-lease-duration=90s",
        "--extra-certificate-annotations=example.com/team,example.com/cost",
        "--dns01-check-retry-period=20s",
        "--feature-gates=SecretsFilteredCaching=true",
    } <= set(flags)
    # Values come before the file, as in cert-manager, and the program takes the last flag of a name.
    challenges = [flag for flag in flags if flag.startswith("--max-concurrent-challenges")]
    assert challenges == ["--max-concurrent-challenges=100", "--max-concurrent-challenges=30"]
    (names,) = (flag for flag in flags if flag.startswith("--controllers="))
    assert names.startswith("--controllers=*,certificatesigningrequests-issuer-acme,")
    assert "certificatesigningrequests" in {
        resource for obj in objects for rule in obj.get("rules", ()) for resource in rule["resources"]
    }


def test_one_namespace_by_cert_managers_flag_limits_the_rights() -> None:
    objects = rendered("one-namespace")
    wide = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ClusterRole"}
    assert wide == {"cert-manager-approve"}
    roles = {
        obj["metadata"]["name"]: obj["metadata"]["namespace"] for obj in objects if obj["kind"] == "Role"
    }
    assert roles == {
        "cert-manager-controller": "team",
        "cert-manager-leaderelection": "team-certificates",
        "cert-manager-http01": "team-certificates",
    }
    homes = {
        obj["metadata"]["namespace"] for obj in objects if obj["kind"] in ("Deployment", "ServiceAccount")
    }
    assert homes == {"team-certificates"}
    flags = flags_of(objects)
    assert [flag for flag in flags if flag.startswith("--namespace")] == ["--namespace=team"]
    assert "--cluster-resource-namespace=team-certificates" in flags


def test_values_of_old() -> None:
    objects = rendered("installcrds-of-old")
    definitions = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    assert definitions
    assert all(
        definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        for definition in definitions
    )
    flags = flags_of(objects)
    assert {
        "--log-level=debug",
        "--controllers=*,-certificaterequests-approver",
        "--default-issuer-name=letsencrypt",
        "--default-issuer-kind=ClusterIssuer",
        "--acme-http01-solver-extra-labels=team=platform",
    } <= set(flags)
    assert not [flag for flag in flags if "solver-image" in flag or "profiling" in flag]
    assert of_kind(objects, "ServiceAccount")["imagePullSecrets"] == [{"name": "registry"}]
    assert all(obj["metadata"]["labels"]["team"] == "platform" for obj in objects if obj not in definitions)


def test_gitops() -> None:
    objects = rendered("gitops")
    flags = flags_of(objects)
    assert {
        "--copied-annotation-prefixes=*,-kubectl.kubernetes.io/,-fluxcd.io/,-argocd.argoproj.io/",
        "--kube-api-qps=50.5",
        "--acme-http01-solver-nameservers=10.0.0.10:53",
        "--acme-http01-solver-extra-labels=cost=4711,team=platform",
        "--acme-http01-solver-extra-labels=app.kubernetes.io/part-of=platform,cost-center=4711",
        "--feature-gates=ACMEHTTP01IngressPathTypeExact=false,SecretsFilteredCaching=true",
        "--default-issuer-name=letsencrypt-prod",
    } <= set(flags)
    pod = pod_of(objects)
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "node-role": "infra"}
    assert [volume["name"] for volume in pod["volumes"]] == ["ca", "tmp"]
    assert pod["containers"][0]["volumeMounts"][1] == {"name": "tmp", "mountPath": "/tmp"}
    assert pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"
    budget = of_kind(objects, "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == ("50%", "AlwaysAllow")
    assert of_kind(objects, "PodMonitor")["metadata"]["labels"]["release"] == "prom"
    # `extraObjects` use cert-manager's templates.
    assert of_kind(objects, "ClusterIssuer")["metadata"]["name"] == "certwright-self"
    assert all(
        obj["metadata"]["labels"]["cost-center"] == "4711" for obj in objects if "labels" in obj["metadata"]
    )


def test_all_values_of_an_old_release() -> None:
    objects = rendered("all-values-of-old")
    pod = pod_of(objects)
    assert "--cluster-resource-namespace=$(POD_NAMESPACE)" in flags_of(objects)
    assert "POD_NAMESPACE" in {variable["name"] for variable in pod["containers"][0]["env"]}
    assert "--log-level=debug" in flags_of(objects)
    assert "livenessProbe" not in pod["containers"][0]


@pytest.mark.parametrize("name", ["config", "featureGates", "networkPolicy", "nodeSelector", "ingressShim"])
def test_a_value_that_is_removed_by_null_is_absent(name: str) -> None:
    assert "nodeSelector" in pod_of(documents(render())) or name == "nodeSelector"
    flags_of(documents(render("--set", f"{name}=null")))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ("extraArgs={--controllers=-ingress-shim}", "*,-ingress-shim"),
        ("config.controllers={-ingress-shim},cainjector.enabled=false", "*,-ingress-shim,-cainjector"),
        ("config.controllers={issuers,orders}", "issuers,orders,cainjector"),
        ("config.controllers={issuers,orders},cainjector.enabled=false", "issuers,orders,-cainjector"),
        (
            f"extraArgs={{--controllers=-ingress-shim}},featureGates={SIGNING_REQUESTS}=true",
            "*,-ingress-shim,certificatesigningrequests-issuer-acme,…",
        ),
    ],
)
def test_a_list_of_controllers_turns_the_ca_injector_neither_on_nor_off(values: str, names: str) -> None:
    (flag,) = (
        flag for flag in flags_of(documents(render("--set", values))) if flag.startswith("--controllers=")
    )
    beginning, more, _ = f"--controllers={names}".partition("…")
    assert flag.startswith(beginning) if more else flag == beginning


def test_the_gates_that_the_chart_passes_on_are_those_of_the_program() -> None:
    text = (CHART / "templates" / "_flags.tpl").read_text()
    table = text.partition('define "certwright.knownGates" -}}')[2].partition("{{- end")[0]
    passed_on = {name for name, kind in yaml.safe_load(table).items() if kind == "program"}
    assert passed_on == {*of_controllers.FEATURE_GATES, *of_server.DEFAULTS, *of_server.ALIASES}


def test_proxies_reach_the_pods_that_answer_challenges() -> None:
    def ports(values: str) -> list[Any]:
        objects = documents(render("--set-json", f'networkPolicy={{"enabled":true,"ingress":{values}}}'))
        rules = next(
            obj["spec"]["ingress"] for obj in objects if obj["spec"].get("policyTypes") == ["Ingress"]
        )
        return [rule.get("ports") for rule in rules]

    added = [{"port": "http-acme", "protocol": "TCP"}]
    metrics = [{"port": "http-metrics", "protocol": "TCP"}]
    assert ports(json.dumps([{"ports": metrics}])) == [metrics, added]
    assert ports(json.dumps([{"from": [{"podSelector": {}}]}])) == [None, added]
    own = [{"port": 8089, "protocol": "TCP"}]
    assert ports(json.dumps([{"ports": own}])) == [own]


def test_network_policies_are_for_the_pods() -> None:
    objects = rendered("network-policies")
    labels = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    policies = [obj["spec"] for obj in objects if obj["kind"] == "NetworkPolicy"]
    assert [policy["policyTypes"] for policy in policies] == [["Ingress"], ["Egress"]]
    assert all(policy["podSelector"]["matchLabels"].items() <= labels.items() for policy in policies)
    assert policies[1]["egress"][1]["ports"] == [{"port": 53, "protocol": "UDP"}]
    pod = pod_of(objects)
    assert (pod["hostUsers"], pod["runtimeClassName"], pod["automountServiceAccountToken"]) == (
        False,
        "gvisor",
        False,
    )


def test_images_of_a_mirror() -> None:
    objects = rendered("own-registry")
    pod = pod_of(objects)
    digest = "sha256:0e072dddd1f7f8fc8909a2ca6f65e76c5f0d2fcfb8be47935ae3457e8bbceb20"
    images = [container["image"] for container in pod["containers"]]
    assert images == [
        f"registry.example.org/mirror/certwright@{digest}",
        "registry.example.org/mirror/proxy:1",
    ]
    assert pod["hostAliases"] == [{"ip": "10.1.2.3", "hostnames": ["acme.internal"]}]
    # Without a ServiceAccount of the chart, the pods name the Secret.
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["serviceAccountName"] == "certificates"
    assert of_kind(objects, "Service")["spec"]["ipFamilies"] == ["IPv6", "IPv4"]
    assert "app.kubernetes.io/managed-by" not in of_kind(objects, "Deployment")["metadata"]["labels"]


def test_what_users_may_see_and_change_is_part_of_kubernetes_roles() -> None:
    labels = {
        document["metadata"]["name"].removeprefix("certwright-"): set(document["metadata"]["labels"])
        for document in documents(render())
        if document["kind"] == "ClusterRole"
    }
    to = "rbac.authorization.k8s.io/aggregate-to-"
    expected = {"view": {"view", "edit", "admin", "cluster-reader"}, "edit": {"edit", "admin"}}
    expected |= {"cluster-view": {"cluster-reader"}, "issuersets-edit": set(), "deliveries-edit": set()}
    for role, roles in expected.items():
        assert {label.removeprefix(to) for label in labels[role] if label.startswith(to)} == roles, role


def test_with_cert_managers_name_the_release_keeps_its_names_and_selectors() -> None:
    where = ("--namespace", "cert-manager", "--kube-version", "1.34.0")
    words = ("template", "cert-manager", str(CHART), *where, "--set", "nameOverride=cert-manager")
    objects = documents(helm(*words))
    for kind in ("Deployment", "ServiceAccount", "Service"):
        assert of_kind(objects, kind)["metadata"]["name"] == "cert-manager"
    # As in cert-manager's chart: a Deployment's selector cannot be changed.
    assert of_kind(objects, "Deployment")["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "cert-manager",
        "app.kubernetes.io/instance": "cert-manager",
        "app.kubernetes.io/component": "controller",
    }


def paths(schema: Json, start: str = "") -> Iterator[str]:
    """The names of all values of a schema."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{start}{name}"
        yield from paths(inner, f"{start}{name}.")


def test_the_templates_use_no_value_that_the_schema_lacks() -> None:
    names = set(paths(json.loads((CHART / "values.schema.json").read_text())))
    text = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    used = {name.rstrip(".") for name in re.findall(r"\.Values\.([A-Za-z0-9_.]+)", text)}
    assert {name for name in used if name not in names and not name.startswith("config.")} == set()
