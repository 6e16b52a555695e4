"""The configuration file of `serve` and `controllers`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from certwright.cli.configuration import COMMANDS, Files, camel_case, keys_of, schema_of
from certwright.cli.main import program
from cli.calls import AT_WORK, Process, Start, issue_quickstart, running_server, serve
from support.waiting import until_so

HEAD = "apiVersion: certwright.io/v1alpha1\nkind: Configuration\n"


def invoke(*words: str) -> Result:
    return CliRunner().invoke(program, words)


def context_of(name: str) -> click.Context:
    root = click.Context(program, info_name="certwright")
    command = program.get_command(root, name)
    assert command is not None
    return click.Context(command, info_name=name, parent=root)


def write(folder: Path, **texts: str) -> Path:
    """`certwright.yaml` and files of `conf.d`, by name. Returns the path of the first."""
    (folder / "conf.d").mkdir()
    for name, text in texts.items():
        path = folder / "certwright.yaml" if name == "main" else folder / "conf.d" / f"{name}.yaml"
        path.write_text(text)
    return folder / "certwright.yaml"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_flag_has_a_key_and_each_key_a_flag(name: str) -> None:
    command = context_of(name).command
    flags = {
        max(option.opts, key=len)
        for option in command.params
        if isinstance(option, click.Option) and option.expose_value and not option.hidden
    }
    keys = keys_of(command)
    assert {key.flag for key in keys.values()} == flags
    assert all(name == camel_case(key.flag) for name, key in keys.items())
    assert {"dataDir", "tlsSan"} <= keys.keys() or name == "controllers"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_schema_is_one_and_accepts_what_is_read(name: str, tmp_path: Path) -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    schema = jsonschema_rs.validator_for(schema_of(context_of(name).command, name))
    path = write(
        tmp_path, main=f"{HEAD}hook: {{web: reload}}\nwebroot: []\ncontrollers: [issuers]\nlogLevel: info\n"
    )
    assert schema.is_valid(yaml.safe_load(path.read_text()))
    assert not schema.is_valid({"tlsSann": "a"})
    assert not Files(path, context_of(name)).problems


def test_files_are_merged_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        main=f"{HEAD}listen: 127.0.0.1:9443\ntlsSan: a.example\nanonymousAuth: true\n",
        b="tlsSan: [c.example]\ncontrollers: ['*', '-issuers']\n",
        a="tlsSan: [b.example]\nmaxRequestsInflight: 300\nfeatureGates: {PostQuantum: true}\n",
    )
    files = Files(path, context_of("serve"))
    assert not files.problems
    assert files.defaults == {
        "listen": "127.0.0.1:9443",
        "tls_sans": ["a.example", "b.example", "c.example"],
        "anonymous_auth": True,
        "controllers": "*,-issuers",
        "max_requests": "300",
        "feature_gates": "PostQuantum=true",
    }


def test_flags_of_the_command_line_win(tmp_path: Path) -> None:
    path = write(tmp_path, main="tlsSan: [a.example]\neventTtl: 2h\nlogLevel: debug\n")
    command = context_of("serve").command
    words = ["--config", str(path), "--tls-san", "b.example", "--log-level", "error"]
    given = command.make_context("serve", words, parent=context_of("serve").parent).params
    assert given["tls_sans"] == ("b.example",)
    assert given["log_level"] == "error"
    assert given["event_ttl"].total_seconds() == 7200


def test_texts_of_the_environment_and_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    (tmp_path / "token").write_text("s4cret\n")
    options = f"['a.token=${{TOKEN}}', 'b.token=file:{tmp_path}/token', 'c.price=$$1']"
    hook = "hook: {web: 'cp ${CERTWRIGHT_DIR}/tls.crt $HOME'}"
    text = f"dns01LexiconOption: {options}\ndeliveryRoot: {{web: {tmp_path}}}\n{hook}\n"
    path = write(tmp_path, main=text)
    files = Files(path, context_of("serve"))
    assert not files.problems
    assert files.defaults["lexicon_options"] == ["a.token=s3cret", "b.token=s4cret", "c.price=$1"]
    assert files.defaults["hooks"] == ["web=cp ${CERTWRIGHT_DIR}/tls.crt $HOME"]
    shown = invoke("config", "show", str(path))
    assert "${TOKEN}" in shown.output
    assert "s3cret" not in shown.output
    assert "s4cret" not in shown.output
    path.write_text("execSolver: ['a=/bin/a ${TOKEN}']\n")
    (tmp_path / "conf.d" / "x.yaml").write_text("execSolver: ['a=/bin/a ${TOKEN}']\n")
    places = f"{path}, line 1 and {tmp_path}/conf.d/x.yaml, line 1"
    problem = "`execSolver`: `a=/bin/a ${TOKEN}`: there is another program of the name a"
    assert invoke("config", "check", str(path)).stderr == f"error: {places}: {problem}\n"


PROBLEMS = {
    "a typo": ("tlsSann: a", "conf.d/x.yaml, line 1: there is no key `tlsSann`; did you mean `tlsSan`?"),
    "the flag's name": ("tls-san: a", "there is no key `tls-san`; write `tlsSan`"),
    "another command's key": ("shards: 3", "`shards` is a key of `certwright controllers`"),
    "a wrong value": ("\nlisten: x", "conf.d/x.yaml, line 2: `listen`: `x` is not HOST:PORT"),
    "a list for one value": ("eventTtl: [1h]", "`eventTtl`: expects one value, not a list"),
    "a text for a truth": ("anonymousAuth: maybe", "`anonymousAuth`: 'maybe' is neither true nor false"),
    "a truth for a text": ("leaderElectionNamespace: yes", "expects text, not true; quote it"),
    "null": ("store:", "`store`: expects text, not null; leave the key out for the default"),
    "set twice": ("dataDir: /b", "`dataDir` is set in {main}, line 1, too; keep one"),
    "a duplicate key": ("eventTtl: 1h\neventTtl: 2h", 'line 2: duplicate key "eventTtl"'),
    "no variable": ("store: ${NO_SUCH}", "`store`: the environment has no variable NO_SUCH"),
    "no file": ("store: file:/no/such", "`store`: /no/such: No such file or directory"),
    "a version of later": ("apiVersion: certwright.io/v9", "this version reads certwright.io/v1alpha1"),
    "another kind": ("kind: Certificate", "`kind` is 'Certificate'; this version reads Configuration"),
    "two documents": ("store: memory\n---\nlisten: :1", "line 3: a configuration is one document"),
    "a list": ("- a", "a configuration is a mapping"),
    "no YAML": ("a: [", "conf.d/x.yaml, line"),
    "no credential in it": ("listen: '${CREDENTIAL}'", "what '${{CREDENTIAL}}' stands for is not valid"),
    "a hook without a root": (
        "hook: {a: b}",
        "conf.d/x.yaml, line 1: `hook` and `deployedCheckAllow` need `deliveryRoot` NAME=DIR",
    ),
    "a name twice": (
        "deliveryRoot: {a: /tmp}\nhook: [a=b, a=c]",
        "conf.d/x.yaml, line 2: `hook`: `a=c`: write NAME='COMMAND', and each name once",
    ),
}


@pytest.mark.parametrize(("text", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_bad_files_are_refused_with_place_and_fix(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL", "s3cret")
    path = write(tmp_path, main="dataDir: /a\n", x=text + "\n")
    checked = invoke("config", "check", str(path))
    assert checked.exit_code == 1
    assert message.format(main=path) in checked.stderr
    served = invoke("serve", "--config", str(path))
    assert served.exit_code == 1
    assert message.format(main=path) in served.stderr
    assert "s3cret" not in checked.stderr + served.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may give files away")
def test_files_that_others_can_change_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, main="dataDir: /a\n", x="store: memory\n", y="eventTtl: 2h\n")
    os.mkfifo(tmp_path / "conf.d" / "z.yaml")
    (tmp_path / "conf.d" / ".#x.yaml").symlink_to("an editor's lock")
    os.chown(tmp_path / "conf.d" / "x.yaml", 65532, 65532)
    (tmp_path / "conf.d" / "y.yaml").chmod(0o664)
    result = invoke("config", "check", str(path))
    assert "x.yaml: belongs to user 65532, who could run commands by it; chown it to root" in result.stderr
    assert "y.yaml: can be written by others (mode 0664); chmod go-w it" in result.stderr
    assert "z.yaml: is not a regular file" in result.stderr
    assert result.stderr.count("\n") == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may be another user")
def test_a_file_that_the_user_cannot_read_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, main="dataDir: /a\n")
    path.chmod(0o600)
    context = context_of("serve")
    os.seteuid(65532)
    try:
        problems = Files(path, context).problems
    finally:
        os.seteuid(0)
    fix = "chgrp it to that user's group, and chmod g+r it"
    assert f"{path}: cannot be read by user 65532; {fix}" in map(str, problems)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = invoke("config", "check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 1
    assert f"{tmp_path / 'none.yaml'}: No such file or directory" in result.stderr


def test_what_is_printed_is_a_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, main=f"{HEAD}tlsSan: a.example\n", x="tlsSan: b.example\n")
    assert invoke("config", "check", str(path)).output == f"{path}: valid; 2 settings in 2 files\n"
    shown = invoke("config", "show", str(path)).output
    assert yaml.safe_load(shown)["tlsSan"] == ["a.example", "b.example"]
    assert f"# {path}, line 3" in shown
    schema = json.loads(invoke("config", "schema").output)
    assert schema["properties"]["tlsSan"]["description"].startswith("A further name")


def test_errors_of_a_start_have_the_format_of_the_files_and_the_words_of_flags_where_they_are_given(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, main="logFormat: json\nhook: {a: b}\n", x="tlsSann: a\n")
    line = json.loads(invoke("serve", "--config", str(path)).stderr)
    assert (line["level"], "did you mean `tlsSan`?" in line["msg"]) == ("error", True)
    (tmp_path / "conf.d" / "x.yaml").unlink()
    line = json.loads(invoke("serve", "--config", str(path), "--deployed-check-allow", "a:1").stderr)
    assert line["msg"] == f"{path}, line 2: `hook` and --deployed-check-allow need `deliveryRoot` NAME=DIR"


DELIVERED = """
apiVersion: certwright.io/v1alpha1
kind: Delivery
metadata: {name: web, namespace: default}
spec:
  certificateRef: {name: web}
  root: here
  path: web
  hook: note
  outputs: [{name: chain.pem, format: CertificateChain}]
"""
WEBROOT = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: site, namespace: default}
spec:
  acme:
    server: https://192.0.2.1/directory
    privateKeySecretRef: {name: account}
    solvers: [{http01: {webroot: {path: /srv/www}}}]
"""


class Lines:
    """The lines of a server's log, as they come."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def after_reload(self) -> str:
        """What the next line about a reload says, after the signal."""
        self._process.kill(signal.SIGHUP)
        while True:
            line = self._process.error_line()
            assert line, self._process.rest()
            if "SIGHUP: " in line:
                return line.partition("SIGHUP: ")[2].removesuffix('"}')


@pytest.mark.parametrize("command", ["serve", "controllers"])
def test_a_signal_before_the_program_can_reload_waits_until_it_can(command: str, tmp_path: Path) -> None:
    with running_server(tmp_path) as kubeconfig:
        words = {
            "serve": ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "early")),
            "controllers": ("--kubeconfig", str(kubeconfig), "--controllers", "issuers"),
        }
        with subprocess.Popen(
            [sys.executable, "-m", "certwright", command, *words[command], "--log-level", "warning"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stderr is not None
            # SIGHUP is the first bit.
            mask = re.compile(r"(?m)^SigBlk:\s*[0-9a-f]*[13579bdf]$")
            until_so(lambda: mask.search(Path(f"/proc/{process.pid}/status").read_text()) is not None)
            process.send_signal(signal.SIGHUP)
            reloads = (line for line in process.stderr if "SIGHUP: re" in line)
            assert next(reloads, None) is not None, process.wait()
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0


def test_a_reload_applies_what_can_change_and_a_broken_file_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    root, noted = tmp_path / "files", tmp_path / "noted"
    root.mkdir()
    path = write(tmp_path, main=f"{HEAD}listen: 127.0.0.1:0\nlogLevel: warning\n")
    process = start("serve", "--config", str(path), "--event-ttl", "3h", "--log-level", "warning")
    assert process.line().startswith("certwright is ready")
    lines = Lines(process)
    files = "reloaded the token files, the CAs of clients and the server's own certificate"
    assert lines.after_reload() == files

    issue_quickstart(start)
    delivery, issuer = tmp_path / "delivery.yaml", tmp_path / "issuer.yaml"
    delivery.write_text(DELIVERED)
    issuer.write_text(WEBROOT.replace("/srv/www", str(root)))
    assert start("apply", "-f", str(delivery)).rest().status == 0
    refused = start("apply", "-f", str(issuer)).rest()
    assert "is not below a directory that the operator allows" in refused.err

    fragment = tmp_path / "conf.d" / "web.yaml"
    fragment.write_text(
        f"deliveryRoot: {{here: {root}}}\nhook: {{note: 'touch {noted}'}}\nwebroot: [{root}]\n"
        "maxRequestsInflight: 40\nlogFormat: json\neventTtl: 2h\nanonymousAuth: true\n"
    )
    applied = "webroot, deliveryRoot, hook, maxRequestsInflight, logFormat"
    assert lines.after_reload() == f"{files}; applied {applied}; anonymousAuth needs a restart"
    until_so(noted.exists)
    assert (root / "web" / "chain.pem").read_text().startswith("-----BEGIN")
    assert start("apply", "-f", str(issuer)).rest().status == 0

    (tmp_path / "conf.d" / "x.yaml").write_text("anonymousAuth: false\nhok: {a: b}\n")
    kept = "nothing was changed, and the former settings stay in use: "
    assert lines.after_reload().startswith(f"{kept}{tmp_path}/conf.d/x.yaml, line 2: there is no key `hok`; ")
    (tmp_path / "conf.d" / "x.yaml").write_text("acmeLimits: /no/such\n")
    assert "`acmeLimits` /no/such: No such file or directory" in lines.after_reload()
    (tmp_path / "conf.d" / "x.yaml").write_text("acmeLimits: web.yaml\ntokenAuthFile: /no/such\n")
    assert kept in lines.after_reload()
    (tmp_path / "conf.d" / "x.yaml").unlink()
    assert lines.after_reload() == f"{files}; anonymousAuth needs a restart"

    fragment.write_text(f"deliveryRoot: {{here: {root}}}\nhook: {{note: 'false'}}\n")
    assert lines.after_reload() == f"{files}; applied webroot, hook, maxRequestsInflight, logFormat"
    assert start("get", "certificates").rest().status == 0
    process.kill(signal.SIGTERM)
    assert process.rest().status == 0


def test_controllers_alone_reload_their_settings_and_tell_the_service_manager(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(start, "--controllers", "")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(200)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    root = tmp_path / "files"
    root.mkdir()
    path = write(tmp_path, main=f"{HEAD}kubeconfig: certwright-data/kubeconfig\nlogLevel: warning\n")
    process = start("controllers", "--config", str(path), "--log-level", "warning")
    assert process.line().startswith(AT_WORK)
    issue_quickstart(start)
    delivery = tmp_path / "delivery.yaml"
    delivery.write_text(DELIVERED.replace("  hook: note\n", ""))
    assert start("apply", "-f", str(delivery)).rest().status == 0
    (tmp_path / "conf.d" / "web.yaml").write_text(f"deliveryRoot: {{here: {root}}}\nkubeApiQps: 7\n")
    said = (
        "read the flags and the files that they name again; applied deliveryRoot; kubeApiQps needs a restart"
    )
    assert Lines(process).after_reload() == said
    until_so((root / "web" / "chain.pem").exists)
    (tmp_path / "conf.d" / "x.yaml").write_text("hok: {}\n")
    assert Lines(process).after_reload().startswith("nothing was changed, ")
    states = [manager.recv(1000).decode() for _ in range(5)]
    manager.close()
    assert [state.partition("\n")[0] for state in states] == [
        *("READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1")
    ]
    assert "failed" not in states[2]
    assert "; the last reload failed: nothing was changed, " in states[4]
    process.end()
    server.end()
