"""Users with real tokens at a real server."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cli.calls import Cli


def create(cli: Cli, tmp_path: Path, *words: str) -> Path:
    path = tmp_path / f"{words[0]}.kubeconfig"
    outcome = cli("user", "create", *words, "--kubeconfig", str(path))
    assert outcome.status == 0, outcome.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path


def test_a_user_can_do_what_the_role_allows_until_it_is_deleted(
    cli: Cli, namespace: str, tmp_path: Path
) -> None:
    name = f"reader-{namespace}"
    reader = str(create(cli, tmp_path, name, "--role", "view"))
    assert cli("get", "certificates", "-A", "--kubeconfig", reader).status == 0
    assert cli("get", "clusterissuers", "--kubeconfig", reader).status == 0
    refused = cli("get", "secrets", "-n", namespace, "--kubeconfig", reader)
    assert (refused.status, 'cannot list resource "secrets"' in refused.err) == (1, True)

    # Again: another token for the same user; other rights are refused.
    create(cli, tmp_path, name, "--role", "view", "--for", "1h")
    other = cli("user", "create", name, "--role", "edit", "--kubeconfig", reader)
    assert f"error: the user {name} exists with other rights (view)" in other.err
    users = {user["name"]: user for user in json.loads(cli("user", "list", "-o", "json").out)}
    assert users[name]["roles"] == ["view"]
    assert users[name]["expires"].endswith("Z")

    assert cli("user", "delete", name).status == 0
    ended = cli("get", "certificates", "-A", "--kubeconfig", reader)
    assert (ended.status, "rejected the request" in ended.err) == (1, True)
    assert name not in cli("user", "list").out
    assert f"error: there is no user {name}" in cli("user", "delete", name).err


def test_the_rights_can_be_those_of_one_namespace(cli: Cli, namespace: str, tmp_path: Path) -> None:
    name = f"editor-{namespace}"
    words = (name, "--role", "edit", "-n", namespace, "--server", "https://pki.example.test:8443")
    editor = create(cli, tmp_path, *words)
    text = editor.read_text()
    assert "server: https://pki.example.test:8443\n" in text
    address = next(
        line.strip()
        for line in create(cli, tmp_path, "x" + namespace, "--role", "view").read_text().splitlines()
        if "server: " in line
    )
    editor.write_text(text.replace("server: https://pki.example.test:8443", address))
    assert cli("get", "secrets", "-n", namespace, "--kubeconfig", str(editor)).status == 0
    assert cli("get", "secrets", "-n", "default", "--kubeconfig", str(editor)).status == 1
    # The tokens of other users are out of reach.
    assert cli("get", "serviceaccounts", "-n", "certwright-users", "--kubeconfig", str(editor)).status == 1


@pytest.mark.parametrize(("role", "warns"), [("view", False), ("edit", True), ("admin", True)])
def test_a_role_that_reaches_the_tokens_of_others_is_a_warning(
    cli: Cli, namespace: str, tmp_path: Path, role: str, warns: bool
) -> None:
    words = ("user", "create", f"{role}-{namespace}", "--role", role, "--kubeconfig", str(tmp_path / role))
    outcome = cli(*words)
    assert (outcome.status, "includes the tokens of all users" in outcome.err) == (0, warns)


def test_a_namespace_that_does_not_exist_leaves_no_user(cli: Cli, tmp_path: Path) -> None:
    words = (
        "user",
        "create",
        "eve",
        "--role",
        "view",
        "-n",
        "nowhere",
        "--kubeconfig",
        str(tmp_path / "eve"),
    )
    outcome = cli(*words)
    assert (outcome.status, outcome.err) == (
        1,
        "error: namespace nowhere does not exist; create it first, or name another\n",
    )
    assert "eve" not in cli("user", "list").out


def test_the_administrators_kubeconfig_is_not_overwritten(cli: Cli, daemon: Path) -> None:
    before = daemon.read_text()
    outcome = cli("user", "create", "bob", "--role", "view", "--kubeconfig", str(daemon))
    assert (outcome.status, daemon.read_text()) == (1, before)
    assert "exists and is not a kubeconfig of bob: --kubeconfig is the file to write here" in outcome.err


def test_a_kubeconfig_without_a_folder_is_reported_before_a_user_exists(cli: Cli, namespace: str) -> None:
    name = f"early-{namespace}"
    outcome = cli("user", "create", name, "--role", "view", "--kubeconfig", "/nonexistent/kubeconfig")
    assert outcome.status == 1
    assert outcome.err == "error: /nonexistent/kubeconfig cannot be written: /nonexistent is not a folder\n"
    assert name not in cli("user", "list").out


def test_a_viewer_of_a_namespace_gets_the_status_of_its_certificates(
    cli: Cli, namespace: str, tmp_path: Path
) -> None:
    viewer = str(create(cli, tmp_path, f"v-{namespace}", "--role", "view", "-n", namespace))
    web = ("create", "certificate", "web", "--dns", "a.example", "--issuer", "x", "--kind", "ClusterIssuer")
    assert cli(*web, "-n", namespace).status == 0
    here = ("-n", namespace, "--kubeconfig", viewer)
    shown = cli("status", "web", *here)
    assert (shown.status, shown.err) == (0, "")
    assert "ClusterIssuer x (you may not read it)" in shown.out
    assert "web-tls (you may not read it)" in shown.out
    assert json.loads(cli("status", "web", *here, "-o", "json").out)["secret"]["exists"] is None
    assert cli("describe", "certificate", "web", *here).status == 0


def test_a_lifetime_that_no_token_can_have_creates_no_user(cli: Cli, namespace: str, tmp_path: Path) -> None:
    words = ("--role", "view", "--for", "99999d", "--kubeconfig", str(tmp_path / "kc"))
    outcome = cli("user", "create", f"l-{namespace}", *words)
    assert (outcome.status, "valid for 49710d at most" in outcome.err) == (2, True)
    assert f"l-{namespace}" not in cli("user", "list").out
