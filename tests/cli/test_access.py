"""Which server is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from certwright.cli import access
from certwright.cli.errors import Failed
from certwright.kube.client import kubeconfig

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a ServiceAccount, where the program looks for it."""
    for name, content in (("token", "t"), ("namespace", "ops"), ("ca.crt", "")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(kubeconfig.in_cluster, "__defaults__", (tmp_path,))
    monkeypatch.setattr(kubeconfig.is_in_cluster, "__defaults__", (tmp_path,))
    for name, value in POD.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_in_a_pod_its_service_account_is_used(pod: Path) -> None:
    choice = access.choose(None, POD, pod)
    assert str(choice) == "of the pod's service account (neither --kubeconfig nor $KUBECONFIG is given)"
    loaded = access.load(choice, None)
    assert (loaded.server, loaded.namespace, loaded.files.token) == (
        "https://10.0.0.1:443",
        "ops",
        pod / "token",
    )


def test_a_kubeconfig_that_is_named_comes_before_the_pod(pod: Path) -> None:
    assert access.choose(Path("mine"), POD, pod).paths == (Path("mine"),)
    assert access.choose(None, POD | {"KUBECONFIG": "theirs"}, pod).paths == (Path("theirs"),)


def test_a_context_has_no_meaning_in_a_pod(pod: Path) -> None:
    with pytest.raises(Failed, match="--context prod names a part of a kubeconfig"):
        access.load(access.choose(None, POD, pod), "prod")


def test_a_service_account_that_is_not_whole_is_said(pod: Path) -> None:
    (pod / "ca.crt").unlink()
    with pytest.raises(Failed, match=r"the pod's service account cannot be used: .*ca\.crt: cannot read"):
        access.load(access.choose(None, POD, pod), None)
