from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from certwright.kube.client import kubeconfig
from certwright.kube.client.kubeconfig import load
from certwright.kube.client.kubeconfig_file import KubeconfigError

V1 = "client.authentication.k8s.io/v1"
CA = trustme.CA()
CA_PEM = CA.cert_pem.bytes()
LEAF = CA.issue_cert("alice")
CERT_PEM = LEAF.cert_chain_pems[0].bytes()
KEY_PEM = LEAF.private_key_pem.bytes()


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def write(
    path: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any
) -> Path:
    """A kubeconfig with one context, `here`."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(content | more))
    return path


def test_what_we_write_we_read(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(kubeconfig.render("https://127.0.0.1:8443", CA_PEM, "s3cret"))
    access = load(path)
    assert (access.server, access.ca_pem, access.token) == ("https://127.0.0.1:8443", CA_PEM, "s3cret")
    assert "s3cret" not in repr(access)


def test_a_client_certificate_from_data_or_from_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/a.crt").write_bytes(CERT_PEM)
    user = {"client-certificate": "pki/a.crt", "client-key-data": b64(KEY_PEM)}
    access = load(write(tmp_path / "config", user=user, cluster={"certificate-authority-data": b64(CA_PEM)}))
    assert (access.client_cert_pem, access.client_key_pem, access.ca_pem) == (CERT_PEM, KEY_PEM, CA_PEM)
    assert access.namespace == "shop"
    assert KEY_PEM.decode()[40:60] not in repr(access)


def test_settings_of_the_cluster(tmp_path: Path) -> None:
    cluster = {
        "insecure-skip-tls-verify": True,
        "tls-server-name": "api.example.com",
        "proxy-url": "http://proxy:3128",
    }
    access = load(write(tmp_path / "config", cluster=cluster))
    assert (access.insecure, access.server_name, access.proxy) == (
        True,
        "api.example.com",
        "http://proxy:3128",
    )


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    path = write(
        tmp_path / "config",
        clusters=[
            {"name": "c", "cluster": {"server": "https://one"}},
            {"name": "d", "cluster": {"server": "https://two"}},
        ],
        contexts=[
            {"name": "here", "context": {"cluster": "c"}},
            {"name": "there", "context": {"cluster": "d"}},
        ],
    )
    assert load(path).server == "https://one"
    assert load(path, "there").server == "https://two"
    with pytest.raises(KubeconfigError, match='there is no context "nowhere"; there are: here, there'):
        load(path, "nowhere")


def test_of_several_files_the_first_counts_and_missing_ones_are_passed_over(tmp_path: Path) -> None:
    one = write(tmp_path / "one", cluster={"server": "https://one"})
    two = write(
        tmp_path / "two",
        cluster={"server": "https://two"},
        contexts=[{"name": "more", "context": {"cluster": "c"}}],
    )
    paths = kubeconfig.from_environment(f"{tmp_path / 'none'}:{one}:{two}")
    assert load(paths).server == "https://one"
    assert load(paths, "more").server == "https://one"
    with pytest.raises(KubeconfigError, match="none of the kubeconfig files exists"):
        load([tmp_path / "none"])


@pytest.mark.parametrize(
    ("cluster", "user", "sentence"),
    [
        ({"server": "localhost"}, {}, 'cluster "c": server: "localhost" is not an https:// address'),
        (
            {"certificate-authority": "no.crt"},
            {},
            'cluster "c": certificate-authority: cannot read .*/no.crt: No such file or directory',
        ),
        ({"server": "https://[broken"}, {}, r'server: "https://\[broken" is not an https:// address'),
        ({"certificate-authority-data": "!"}, {}, 'cluster "c": certificate-authority-data is not base64'),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority-data": b64(CA_PEM)},
            {},
            "exclude each other",
        ),
        ({}, {"client-certificate-data": b64(CERT_PEM)}, 'user "u": there is a client-certificate but no'),
        ({}, {"exec": {"apiVersion": V1}}, 'user "u": exec: command is missing; name the program'),
        ({}, {"exec": {"command": "aws"}}, r'user "u": exec: apiVersion is missing; write client\.'),
        (
            {},
            {"exec": {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            r'exec: apiVersion "client.authentication.k8s.io/v1alpha1" is not supported; write client\.',
        ),
        (
            {},
            {"exec": {"command": "aws", "apiVersion": V1}},
            "exec: interactiveMode is missing; write one of Never, IfAvailable, Always",
        ),
        (
            {},
            {"exec": {"command": "aws", "apiVersion": V1, "interactiveMode": "never"}},
            'exec: interactiveMode "never" is unknown; write one of',
        ),
        (
            {"proxy-url": "socks5://proxy:1080"},
            {},
            'cluster "c": proxy-url: "socks5://proxy:1080" is not an http',
        ),
        ({}, {"auth-provider": {"name": "gcp"}}, 'user "u": auth-provider: .* not supported'),
        ({}, {"username": "admin", "password": "x"}, 'user "u": username: log-in by password'),
        ({}, {"as": "root"}, 'user "u": as: impersonation is not supported'),
        ({}, {"token": 5}, r"not a kubeconfig: Expected str, got int: at users\[0\]\.user\.token"),
    ],
)
def test_what_cannot_be_used_is_said_with_file_and_field(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], sentence: str
) -> None:
    path = write(tmp_path / "config", cluster=cluster, user=user)
    with pytest.raises(KubeconfigError, match=sentence) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


def test_files_that_are_no_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with pytest.raises(KubeconfigError, match="cannot be read: No such file"):
        load(path)
    path.write_text("a: [")
    with pytest.raises(KubeconfigError, match="not YAML at line 2, column 1: did not find"):
        load(path)
    path.write_bytes(b"\x7fELF")
    with pytest.raises(KubeconfigError, match="at line 1, column 1: control characters are not allowed"):
        load(path)
    path.write_text("")
    with pytest.raises(KubeconfigError, match="not a kubeconfig: there is no context in it"):
        load(path)
    path.write_text("kind: Secret")
    with pytest.raises(KubeconfigError, match='not a kubeconfig: its kind is "Secret", not "Config"'):
        load(path)
    write(path, clusters=None)
    with pytest.raises(KubeconfigError, match='context "here": cluster "c" is not in the file'):
        load(path)


def test_a_key_that_does_not_fit_its_certificate_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    other = CA.issue_cert("bob").private_key_pem.bytes()
    user = {"client-certificate-data": b64(CERT_PEM), "client-key-data": b64(other)}
    access = load(write(tmp_path / "config", user=user))
    with pytest.raises(KubeconfigError, match='context "here": the client certificate and its key'):
        kubeconfig.connect(access)


def test_inside_a_pod(tmp_path: Path) -> None:
    assert kubeconfig.in_cluster({}, tmp_path) is None
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert kubeconfig.in_cluster(environ, tmp_path) is None
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("cert-manager\n")
    with pytest.raises(KubeconfigError, match=r"service account: ca\.crt: cannot read"):
        kubeconfig.in_cluster(environ, tmp_path)
    (tmp_path / "ca.crt").write_bytes(CA_PEM)
    access = kubeconfig.in_cluster(environ, tmp_path)
    assert access is not None
    assert (access.server, access.namespace, access.ca_pem) == (
        "https://[fd00::1]:443",
        "cert-manager",
        CA_PEM,
    )
