"""Deployments and DaemonSets: the defaults and rules that clients notice. Nothing here runs them.

Source: Kubernetes API reference, Deployment and DaemonSet v1 apps; Kubernetes `pkg/apis/apps/validation`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, invalid, required
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import Strategy


def _prepare_deployment(obj: Json) -> None:
    spec = obj["spec"]
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    if spec.get("revisionHistoryLimit") is None:
        spec["revisionHistoryLimit"] = 10
    if spec.get("progressDeadlineSeconds") is None:
        spec["progressDeadlineSeconds"] = 600


def _create_deployment(obj: Json) -> None:
    _prepare_deployment(obj)
    obj["status"] = {}


def _create_daemon_set(obj: Json) -> None:
    obj["status"] = {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    }


def _validate(new: Json, old: Json | None) -> list[FieldError]:
    spec = new["spec"]
    selector = spec.get("selector")
    if not selector:
        return [required("spec.selector")]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    match_labels = selector.get("matchLabels") or {}
    errors: list[FieldError] = []
    if any(labels.get(key) != value for key, value in match_labels.items()):
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, text))
    if old is not None and old["spec"].get("selector") != selector:
        errors.append(invalid("spec.selector", selector, "field is immutable"))
    if not spec["template"].get("spec", {}).get("containers"):
        errors.append(required("spec.template.spec.containers"))
    if spec.get("replicas", 0) < 0:
        errors.append(invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
    return errors


DEPLOYMENT = Strategy(
    prepare_create=_create_deployment,
    prepare_update=lambda new, _: _prepare_deployment(new),
    validate=_validate,
)
DAEMON_SET = Strategy(prepare_create=_create_daemon_set, validate=_validate)
