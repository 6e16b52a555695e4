"""Installs a controller from the Helm chart of its Go module, and runs it beside the server.

The chart's CRDs, roles, Issuers, Certificates and webhooks are applied as they are; its Deployment is a
process here, with a token of the chart's ServiceAccount. In place of a network of Pods, the webhook's Service
has the type ExternalName; in place of cainjector, this module copies the CA into the webhook's configuration.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from certwright.kube.client import kubeconfig
from conformance.daemon import Daemon
from support.programs import tool
from support.real import require
from support.waiting import until_so

NAMESPACE: Final = "cert-manager"
_LEFT_OUT: Final = ("Deployment", "PodDisruptionBudget", "ServiceMonitor")
_NOT_CALLED: Final = "failed calling webhook"
_WITHIN_S: Final = 60.0


class Check(NamedTuple):
    """One check: what was observed, and whether it is as expected."""

    text: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart in the Go module `module` (with its version). `name` is that of its ServiceAccount, its Service
    and its webhook configuration; `ca_secret` has the CA of its webhook, if it has one."""

    module: str
    folder: str
    name: str
    ca_secret: str = ""


class Cluster:
    """A server with kubectl. The methods raise `RuntimeError` if kubectl fails."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._kubectl = require("kubectl")

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl; the result is what it has printed."""
        done = self.daemon.run(self._kubectl, *words, stdin=stdin)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change these objects."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def refusal(self, content: dict[str, Any]) -> str:
        """What a webhook says to this object, once it can be called; empty if it accepts it."""
        said = ""

        def is_answered() -> bool:
            nonlocal said
            try:
                self.apply(content)
            except RuntimeError as error:
                said = " ".join(str(error).rpartition(" denied the request: ")[2].split())
                return _NOT_CALLED not in str(error)
            return True

        wait_until(is_answered)
        return said

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """The object as JSON; empty if it does not exist."""
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        document: dict[str, Any] = json.loads(text) if text.strip() else {}
        return document

    def condition(self, kind: str, name: str, type_: str, namespace: str = "default") -> dict[str, Any]:
        """A condition of an object; empty if it has none of that type."""
        conditions = self.get(kind, name, namespace).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == type_), {})


def wait_until(true: Callable[[], bool]) -> bool:
    """Whether it becomes true in time."""
    try:
        until_so(true, within_s=_WITHIN_S)
    except TimeoutError:
        return False
    return True


def install(cluster: Cluster, chart: Chart, *, webhook_port: int) -> list[dict[str, Any]]:
    """Apply the chart; the result is its webhook configurations, for `serve_webhooks`."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    webhooks, others = [], []
    for content in _render(chart):
        if content["kind"] == "ValidatingWebhookConfiguration":
            webhooks.append(content)
        elif content["kind"] == "Service" and content["metadata"]["name"] == chart.name:
            others.append({**content, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}})
        elif content["kind"] not in _LEFT_OUT:
            others.append(content)
    definitions = [each for each in others if each["kind"] == "CustomResourceDefinition"]
    cluster.apply(*definitions)
    cluster.apply(*(each for each in others if each not in definitions))
    for config in webhooks:
        for each in config["webhooks"]:
            each["clientConfig"]["service"]["port"] = webhook_port
    return webhooks


def serve_webhooks(cluster: Cluster, chart: Chart, webhooks: Sequence[dict[str, Any]]) -> None:
    """Apply the webhook configurations, with the CA of the chart's Secret."""

    def ca() -> str:
        data = cluster.get("secret", chart.ca_secret, NAMESPACE).get("data", {})
        return str(data.get("ca.crt") or data.get("tls.crt") or "")

    until_so(lambda: bool(ca()), within_s=_WITHIN_S)
    for config in webhooks:
        for each in config["webhooks"]:
            each["clientConfig"]["caBundle"] = ca()
        cluster.apply(config)


def _render(chart: Chart) -> Iterator[dict[str, Any]]:
    # A module may need a newer Go than this machine's.
    downloaded = _run(require("go"), "mod", "download", "-json", chart.module, env={"GOTOOLCHAIN": "auto"})
    folder = Path(json.loads(downloaded)["Dir"]) / chart.folder
    options = ("--namespace", NAMESPACE, "--kube-version", "1.34.0", "--include-crds")
    rendered = _run(str(tool("helm", made_by="helm")), "template", chart.name, str(folder), *options)
    for content in yaml.safe_load_all(rendered):
        if content:
            yield content


def _run(*command: str, env: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises `RuntimeError` with its errors."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def kubeconfig_of(cluster: Cluster, account: str, *, server: str = "", ca_pem: bytes = b"") -> Path:
    """A kubeconfig with a token of that ServiceAccount; `server` and its CA empty: those of the cluster."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review))
    token = json.loads(answer)["status"]["token"]
    access = kubeconfig.load(cluster.daemon.kubeconfig)
    file = cluster.daemon.kubeconfig.with_name(f"{account}.kubeconfig")
    file.write_bytes(kubeconfig.render(server or access.server, ca_pem or access.ca_pem, token))
    return file


def decoded(secret: dict[str, Any], key: str) -> bytes:
    """An entry of a Secret; empty if it is missing."""
    return base64.b64decode(secret.get("data", {}).get(key, ""))
