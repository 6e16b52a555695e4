"""Kubeconfigs in block style are read as PyYAML reads them, or left to it."""

from __future__ import annotations

import random

import pytest
import yaml

from certwright.kube.client import kubeconfig
from certwright.kube.client.kubeconfig_file import read_block_style

OURS = kubeconfig.render(
    "https://127.0.0.1:8443", b"-----BEGIN CERTIFICATE-----\nMIIB\n", "s3cret-Token_1"
).decode()
KUBECTLS = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTg==
    server: https://192.0.2.1:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    namespace: shop
    user: kubernetes-admin
  name: kubernetes-admin@kubernetes
- context:
    cluster: kubernetes
    user: someone
  name: guest
current-context: kubernetes-admin@kubernetes
kind: Config
users:
- name: kubernetes-admin
  user:
    token: abcdefghijk
"""


@pytest.mark.parametrize("text", [OURS, KUBECTLS], ids=["ours", "kubectl's"])
def test_what_programs_write_is_read_without_pyyaml(text: str) -> None:
    assert read_block_style(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "token: 12345",
        "token: 0x1f",
        "token: yes",
        "token: 'quoted'",
        "token: word # comment",
        "server: https://host:1 two",
        "insecure-skip-tls-verify: true",
        "proxy-url:",
        "users: []",
        "on: switch",
        "key: first\nkey: second",
        "key: &anchor word",
        "key:\r\n  inner: word",
        "key: word:",
        "- key: word",
        "a:\n    b: word\n  c: word",
        "---\nkey: word",
        "ke\u0301y: word",
        "just text",
    ],
)
def test_anything_else_is_left_to_pyyaml(text: str) -> None:
    assert read_block_style(text) is None


@pytest.mark.parametrize("seed", range(4))
def test_no_text_is_read_differently(seed: int) -> None:
    rng = random.Random(seed)
    changes = [
        "",
        " ",
        "  ",
        "- ",
        ":",
        ": ",
        "\n",
        "\n  ",
        "\n- ",
        "yes",
        "1e5",
        "null",
        "~",
        "#",
        "'",
        "x: word",
    ]
    read = 0
    for _ in range(400):
        text = rng.choice((OURS, KUBECTLS))
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(changes) + text[at + rng.randint(0, 3) :]
        parsed = read_block_style(text)
        if parsed is not None:
            assert parsed == yaml.safe_load(text), text
            read += 1
    assert read > 20
