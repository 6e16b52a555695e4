"""What users type first: --version, help, completion, and short ways to name objects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import yaml

from certwright import __version__
from certwright.cli.commands.run import command as run_command
from certwright.cli.commands.serve import command as serve_command
from certwright.cli.main import program
from cli.calls import PATIENT, Cli

ISSUER = "{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: own}, spec: {selfSigned: {}}}"
PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def documented_keys() -> list[str]:
    """The keys in the table of the page, which programs depend on."""
    cells = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return re.findall(r"`(\w+)`", "".join(cells))


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_an_option_too(cli: Cli, option: str) -> None:
    assert cli(option) == cli(option).__class__(0, f"certwright {__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["get"], ["create", "certificate"]])
def test_help_is_a_command_too(cli: Cli, words: list[str]) -> None:
    assert cli("help", *words).out.split() == cli(*words, "--help").out.split()


def test_help_of_an_unknown_command_suggests_the_nearest(cli: Cli) -> None:
    assert "`certwright get` has no commands" in cli("help", "get", "cert").err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_the_program(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert result.status == 0
    assert f"_CERTWRIGHT_COMPLETE={shell}_complete" in result.out


def test_bash_completes_commands(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(cli("completion", "bash").out)
    program = tmp_path / "certwright"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m certwright "$@"\n')
    program.chmod(0o755)
    ask = f". {script}; COMP_WORDS=(certwright sta); COMP_CWORD=1; _certwright_completion certwright sta x"
    done = subprocess.run(
        ["bash", "-c", f'{ask}; echo "${{COMPREPLY[@]}}"'],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["status"]


def test_a_ca_that_the_server_refuses_leaves_nothing(cli: Cli, namespace: str) -> None:
    refused = cli("create", "ca", "internal", "--duration", "-1h", "-n", namespace)
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("error: certificate.cert-manager.io/internal-ca: spec.duration: ")
    assert cli("get", "issuers,certificates", "-n", namespace, "-o", "name").out == ""


def test_a_certificate_and_a_ca_need_no_yaml(cli: Cli, namespace: str) -> None:
    place = ("-n", namespace)
    made = cli("create", "ca", "internal", *place)
    assert (made.status, made.err) == (0, "")
    assert made.out.splitlines() == [
        "issuer.cert-manager.io/internal-selfsigned created",
        "certificate.cert-manager.io/internal-ca created",
        "issuer.cert-manager.io/internal created",
    ]
    ca = msgspec.json.decode(cli("get", "certificate", "internal-ca", "-o", "json", *place).out)
    assert ca["spec"]["privateKey"]["rotationPolicy"] == "Never"
    assert cli("renew", "internal-ca", *place).err == ""
    web = ("create", "certificate", "web", "--dns", "web.example.test", "--issuer", "internal", *place)
    assert cli(*web, "--ip", "127.0.0.1", "--duration", "240h").out.endswith("/web created\n")
    assert "already exists; `certwright apply` changes objects" in cli(*web).err
    assert cli("wait", "cert/web", "--for=condition=Ready", *place, *PATIENT).status == 0
    for words in (["web"], ["cert/web"], ["certs", "web"], ["certificates.cert-manager.io", "web"]):
        assert cli("status", *words, *place).out.startswith(
            f"Certificate {namespace}/web: ready, valid until "
        )
    status = msgspec.json.decode(cli("status", "web", "-o", "json", *place).out)
    assert list(status) == documented_keys()
    assert (status["ready"], status["dnsNames"], status["ipAddresses"]) == (
        True,
        ["web.example.test"],
        ["127.0.0.1"],
    )
    assert status["secret"] == {"name": "web-tls", "exists": True, "keys": ["ca.crt", "tls.crt", "tls.key"]}
    assert status["issuer"] == {
        "name": "internal",
        "kind": "Issuer",
        "group": "cert-manager.io",
        "ready": True,
    }
    assert yaml.safe_load(cli("status", "web", "-o", "yaml", *place).out)["revision"] == 1
    assert msgspec.json.decode(cli("status", "iss/internal", "-o", "json", *place).out)["ready"] is True
    inspected = [
        _without_ages(cli("inspect", *words, *place).out)
        for words in (["certificate/web"], ["web-tls"], ["secret", "web-tls"])
    ]
    assert inspected[0].startswith(f"Secret {namespace}/web-tls (kubernetes.io/tls)")
    assert inspected == inspected[:1] * 3


def _without_ages(text: str) -> str:
    """The text without what changes from one second to the next."""
    return re.sub(r"\((now|(in )?[0-9]+ \w+( ago)?)\)", "", text)


def test_a_dry_run_prints_what_apply_takes(cli: Cli, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--dns", "web.example.test", "--issuer", "own", "--kind", "clusterissuer", "-n", namespace)
    with monkeypatch.context() as patch:
        patch.setenv("KUBECONFIG", "/nowhere")  # no server is needed
        printed = cli("create", "certificate", "web", *words, "--dry-run")
        assert cli("create", "certificate", "web", *words, "--dry-run", "-o", "yaml") == printed
        as_json = cli("create", "certificate", "web", *words, "--dry-run", "-o", "json").out
        several = cli("create", "ca", "internal", "--dry-run", "--cluster").out
    assert (printed.status, printed.err) == (0, "")
    assert yaml.safe_load(printed.out) == msgspec.json.decode(as_json)
    assert yaml.safe_load(printed.out)["spec"]["issuerRef"]["kind"] == "ClusterIssuer"
    assert cli("apply", "-f", "-", stdin=printed.out).out.endswith(f"/web created (namespace {namespace})\n")
    places = [
        (manifest["kind"], manifest["metadata"].get("namespace")) for manifest in yaml.safe_load_all(several)
    ]
    # A ClusterIssuer looks for its Secret there.
    assert places == [("ClusterIssuer", None), ("Certificate", "kube-system"), ("ClusterIssuer", None)]


def test_the_kind_of_the_issuer_is_the_one_that_exists(cli: Cli, namespace: str) -> None:
    cluster = ISSUER.replace("Issuer", "ClusterIssuer").replace("own", f"own-{namespace}")
    cli("apply", "-f", "-", stdin=cluster)
    place, web = ("-n", namespace), ("create", "certificate", "web", "--dns", "web.example.test")
    made = cli(*web, "--issuer", f"own-{namespace}", "-o", "yaml", *place)
    assert yaml.safe_load(made.out)["spec"]["issuerRef"]["kind"] == "ClusterIssuer"
    missing = cli("create", "certificate", "api", "--dns", "api.example.test", "--issuer", "none", *place)
    assert missing.status == 0
    assert (
        missing.err
        == f"warning: issuer none does not exist in namespace {namespace}; issuance waits for it\n"
    )


def test_renew_of_many_leaves_cas_out_unless_they_are_named(cli: Cli, namespace: str) -> None:
    place = ("-n", namespace)
    cli("create", "ca", "internal", "--wait", *place)
    left_out = f"1 CA certificate left out: {namespace}/internal-ca; name them, or give --cas\n"
    alone = cli("renew", "--all", *place)
    assert (alone.status, alone.err) == (1, f"error: nothing is renewed: {left_out}")
    web = cli(
        "create", "certificate", "web", "--dns", "web.example.test", "--issuer", "internal", *place, "--wait"
    )
    assert web.out.splitlines()[-1].startswith(f"{namespace}/web: ready, valid until ")
    assert web.out.endswith("; it is in Secret web-tls\n")
    both = cli("renew", "--all", *place)
    assert (both.status, both.out) == (0, f"Renewing certificate {namespace}/web\n")
    assert both.err == f"warning: {left_out}"
    assert len(cli("renew", "--all", "--cas", *place).out.splitlines()) == 2
    assert cli("renew", "internal-ca", *place).status == 0


_TEXT_ONLY = {
    **dict.fromkeys(
        ("run", "serve", "controllers", "dashboard", "edit", "wait"), "interactive, or until stopped"
    ),
    **dict.fromkeys(("apply", "delete", "renew", "revoke", "approve", "deny"), "a line for each change"),
    **dict.fromkeys(("export", "trust install", "trust uninstall", "backup", "restore"), "changes files"),
    **dict.fromkeys(("encryption rotate", "encryption decrypt", "user create", "user delete"), "changes"),
    **dict.fromkeys(("user rotate-admin",), "changes"),
    **dict.fromkeys(("describe", "explain", "diff", "help"), "for people"),
    **dict.fromkeys(("config schema", "crds", "completion"), "prints a file of one format"),
}
_TABLES = {"get", "events", "expiring", "limits", "user list"}


def _commands(context: click.Context, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(context.command, click.Group):
        yield name, context.command
        return
    for word in context.command.list_commands(context):
        command = context.command.get_command(context, word)
        assert command is not None
        yield from _commands(click.Context(command, parent=context), f"{name} {word}".strip())


def test_every_command_that_lists_or_states_facts_has_json_and_yaml() -> None:
    documented = PAGE.read_text().partition("## Results as JSON")[2]
    for name, command in _commands(click.Context(program)):
        options = {word: option for option in command.params for word in option.opts}
        if name in _TEXT_ONLY:
            assert "-o" not in options, f"{name} has -o, remove it from this table"
            continue
        assert "-o" in options, f"{name} needs -o json, or a reason in this table"
        # That of `get` has templates, too.
        if isinstance(choice := options["-o"].type, click.Choice):
            assert {"json", "yaml"} <= set(choice.choices), name
        assert re.search(rf"^\| .*\b{re.escape(name.split()[0])}\b", documented, re.MULTILINE), name
        if name in _TABLES or name.startswith("import "):
            assert "--no-headers" in options, name


def test_results_as_json(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "certwright.yaml"
    config.write_text(
        "apiVersion: certwright.io/v1alpha1\nkind: Configuration\nlogLevel: info\nlogLevels: x\n"
    )
    words = ("config", "check", str(config), "-o", "json")
    refused = msgspec.json.decode((result := cli(*words)).out)
    assert (result.status, refused["valid"], refused["problems"][0]["line"]) == (1, False, 4)
    config.write_text(config.read_text().replace("logLevels: x\n", "tlsSan: [a]\n"))
    assert msgspec.json.decode(cli(*words).out) == {
        "valid": True,
        "settings": 2,
        "files": [str(config)],
        "problems": [],
    }
    shown = cli("config", "show", str(config), "-o", "json").out
    assert msgspec.json.decode(shown)["tlsSan"] == ["a"]
    assert msgspec.json.decode(cli("check", "api", "-o", "json").out) == {"ready": True, "message": ""}
    missing = cli("check", "api", "-n", "nowhere", "-o", "json")
    assert (missing.status, missing.err, msgspec.json.decode(missing.out)["ready"]) == (1, "", False)
    folder = Path(__file__).parent / "importing" / "certbot"
    imported = cli("import", "certbot", str(folder), "--dry-run", "-o", "json")
    assert msgspec.json.decode(imported.out)[-1]["becomes"][0].startswith("Certificate ")
    assert "-o needs --dry-run" in cli("import", "certbot", str(folder), "-o", "json").err
    (tmp_path / "root").mkdir()
    planned = cli("setup", "service", "--root", str(tmp_path / "root"), "--dry-run", "-o", "json")
    assert {step["state"] for step in msgspec.json.decode(planned.out)} == {"todo", "done"}


def test_run_has_every_option_of_serve() -> None:
    run, serve = ({option.name for option in command.params} for command in (run_command, serve_command))
    assert len(serve) > 50
    # Only services have a configuration file.
    assert serve - run == {"config"}
