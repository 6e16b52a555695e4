"""The command line itself: help, wrong use, exit statuses, which server is meant, and how fast it answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from certwright.cli import access
from certwright.cli.errors import Failed
from certwright.cli.main import COMMANDS, program
from certwright.kube.client import kubeconfig
from cli.calls import Process, Start
from house.reference.environment import STATUSES

LISTEN = ("--metrics-listen-address", "127.0.0.1:0")
FILES = ("--metrics-tls-cert-file=a", "--metrics-tls-private-key-file=b")
CA_FLAGS = (
    "--metrics-dynamic-serving-ca-secret-namespace=kube-system",
    "--metrics-dynamic-serving-ca-secret-name=metrics-ca",
    "--metrics-dynamic-serving-dns-names=metrics.example.org",
)
NAMES = [(name, short) for section in COMMANDS.values() for name, short in section.items()]


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(program, list(words), prog_name="certwright")
    return result.exit_code, result.stdout, result.stderr


def leaves(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        return [leaf for name, sub in command.commands.items() for leaf in leaves(sub, f"{path} {name}")]
    return [(path, command)]


def all_commands() -> list[tuple[str, click.Command]]:
    context = click.Context(program)
    names = []
    for name, _ in NAMES:
        command = program.get_command(context, name)
        assert command is not None
        names += leaves(command, name)
    return names


@pytest.mark.parametrize(("name", "short"), NAMES)
def test_the_line_in_the_overview_is_the_commands_own(name: str, short: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    assert command.short_help == short


def test_every_command_has_an_example_and_every_option_is_explained_in_a_sentence() -> None:
    for path, command in all_commands():
        # That examples have their title, the test of the whole help shows.
        assert f"certwright {path.split()[0]}" in (command.help or ""), f"{path} has no example"
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{path} {option.opts}"
                assert option.help.rstrip().endswith((".", "]")), f"{path} {option.opts}: {option.help}"


@pytest.mark.parametrize("path", [path for path, _ in all_commands()])
def test_help_works_for_every_command(path: str) -> None:
    status, out, _ = invoke(*path.split(), "--help")
    assert status == 0
    assert out.startswith("Usage: certwright")
    assert max(len(line) for line in out.splitlines()) <= 100
    assert {"  Example:", "  Examples:"} & set(out.splitlines()), "examples begin on a line of their own"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gett"], "there is no command `gett`; did you mean `get`?"),
        (["get"], "Missing argument"),
        (["status"], "which object? `certwright status web`"),
        (["get", "x", "-o", "xml"], "'xml' is not one of"),
        (["get", "cert", "a/b/c"], "write either `KIND NAME NAME …` or `KIND/NAME KIND/NAME …`"),
        (["apply"], "Missing option '-f'"),
        (
            ["user", "create", "x"],
            "Missing option '--kubeconfig'; `",
        ),
        (["apply", "-f"], "requires an argument"),
        (["delete"], "name what to delete: either KIND NAME…, or -f FILE"),
        (["renew"], "name the certificates: NAME…, -l SELECTOR, or --all"),
        (["renew", "web", "--all"], "name the certificates"),
        (["wait", "cert", "web", "--for=tea"], "`tea` is not one of condition=TYPE"),
        (["wait", "cert", "web", "--for=Ready"], "did you mean condition=Ready?"),
        (["revoke", "web", "--reason", "foo"], "'foo' is not one of unspecified, keyCompromise, aff"),
        (["backup", "-"], "a backup is written to a file"),
        (["wait", "cert", "web", "--for=delete", "--timeout=soon"], "'soon' is not a duration"),
        (["serve", "--listen", "8443"], "`8443` is not HOST:PORT"),
        (["serve", "--listen", "::1:8443"], "write an IPv6 address in brackets"),
        (["serve", "--listen", "127.0.0.1:99999"], "port 99999 is too large (65535 at most)"),
        (["run"], "Missing argument"),
        (["run", "nothing.yaml", "--timeout=soon"], "'soon' is not a duration"),
        (["delete", "cert", "web", "--timeout=-5s"], "'-5s' cannot be negative"),
        (["list"], "there is no command `list`; did you mean `get`?"),
        (["start"], "there is no command `start`; did you mean `serve`?"),
        (["-n"], "option `-n` needs a value"),
        (["-n", "shop"], "name a command behind the options"),
        (["status", "issuer"], "which issuer? Give its name, e.g. `issuer/web`"),
        (["status", "pod", "web"], "`pod` is not one of the kinds certificate, issuer, clusterissuer"),
        (["status", "cert", "web", "api"], "name one object: NAME, KIND NAME or KIND/NAME"),
        (["create", "cert"], "but `certwright create ca` or `certwright create certificate`"),
        (["create", "certificate", "web", "--issuer", "ca"], "a certificate needs a name: --dns, --ip"),
        (["create", "certificate", "web", "--issuer", "ca", "--dns", "10.0.0.1"], "use --ip 10.0.0.1"),
        (["create", "certificate", "web", "--issuer", "ca", "--ip", "a.b"], "use --dns for DNS names"),
        (["help", "gett"], "did you mean `get`?"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["inspect", "pod/web"], "`pod` is not one of the kinds secret, certificate"),
        (["encryption", "turn"], "`certwright encryption rotate` or `certwright encryption status`"),
        (["serve", "--event-ttl=-5h"], "'-5h' cannot be negative"),
        (["controllers", "--certificate-request-minimum-backoff-duration", "64h"], "longer than the maximum"),
        (["serve", "--certificate-request-minimum-backoff-duration", "-1h"], "cannot be negative"),
        (["controllers", "--certificate-request-maximum-backoff-duration", "soon"], "is not a duration"),
        (["controllers", "--enable-certificate-owner-ref=perhaps"], "'perhaps' is neither true nor false"),
        (["get", "cert", "-n", ""], "is empty; leave the option out, or name a namespace"),
        (["--wrong"], "No such option"),
        (["serve", "--store", "etcd://h:1", "--etcd-prefix", "/"], "e.g. /certwright"),
        (
            ["serve", "--max-requests-inflight", "0"],
            "must be above 0, unless --enable-priority-and-fairness=false",
        ),
        (["serve", "--max-mutating-requests-inflight", "-1"], "-1 is not in the range x>=0"),
        (["get", "cert", "-o", "jsonpath={.a"], "a brace without its partner"),
        (["get", "cert", "-o", "custom-columns=A"], "'A' is not HEADER:PATH"),
        (["get", "cert", "--sort-by", ".a["], "is not understood"),
        (["get", "cert", "--sort-by", "{.a"], "a brace without its partner"),
        (["get", "cert", "--sort-by", ".a", "-w"], "leave out --watch"),
        (["get", "cert", "-o", "json", "--show-labels"], "leave out -o"),
        (
            ["user", "create", "Bob", "--role", "view", "--kubeconfig", "x"],
            "'Bob' is not a name: write lower-case letters",
        ),
        (["user", "create", "bob", "--role", "root", "--kubeconfig", "x"], "'root' is not one of"),
        (
            ["user", "create", "bob", "--role", "view", "--for", "5m", "--kubeconfig", "x"],
            "a token is valid for 10m at least",
        ),
        (
            ["user", "create", "bob", "--role", "cluster-admin", "-n", "shop", "--kubeconfig", "x"],
            "applies to all namespaces",
        ),
        (
            ["user", "create", "bob", "--role", "edit", "-n", "certwright-users", "--kubeconfig", "x"],
            "would give the user the tokens of all users",
        ),
        (["serve", "--http01-listen", "80"], "is not HOST:PORT, e.g. :80"),
        (["serve", "--tlsalpn01-listen", "::1:443"], "write an IPv6 address in brackets"),
        (["serve", "--max-concurrent-challenges", "0"], "0 is not in the range x>=1"),
        (["serve", "--dns01-check-retry-period", "soon"], "soon"),
        (
            ["serve", "--acme-http01-solver-extra-labels", "team"],
            "'team' is not a label; write e.g. team=web",
        ),
        (["serve", "--acme-http01-solver-extra-labels", "a=b c"], "a valid label must be"),
        (["controllers", *LISTEN, FILES[0]], "need each other"),
        (["controllers", *LISTEN, FILES[1]], "need each other"),
        (["controllers", *LISTEN, *CA_FLAGS[:2]], "--metrics-dynamic-serving-dns-names need each other"),
        (["controllers", *LISTEN, *CA_FLAGS, *FILES], "exclude each other"),
        (["controllers", *FILES], "a certificate for metrics needs --metrics-listen-address"),
        (["controllers", *FILES, "--metrics-listen-address=0"], "needs --metrics-listen-address"),
        (["controllers", "--metrics-tls-min-version=VersionTLS10"], "write VersionTLS12 or VersionTLS13"),
        (
            ["controllers", "--metrics-tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"],
            "is not supported; known are TLS_ECDHE_",
        ),
        (["controllers", "--metrics-dynamic-serving-leaf-duration=5s"], "is not between 1m and 8760h"),
        (["controllers", "--metrics-dynamic-serving-leaf-duration=9000h"], "is not between 1m and 8760h"),
        (
            ["controllers", "--metrics-dynamic-serving-dns-names=a_b c"],
            "is neither a DNS name nor an IP address",
        ),
        (["serve", "--cluster-resource-namespace", ""], "'' is not a namespace: a name has at most 63 lower"),
        (["serve", "--cluster-resource-namespace", "No_Namespace"], "'No_Namespace' is not a namespace"),
        (["serve", "--cluster-resource-namespace", "a" * 64], "is not a namespace: a name has at most 63"),
        (["serve", "--cluster-resource-namespace=-a"], "'-a' is not a namespace"),
        (["serve", "--cluster-resource-namespace", "a.b"], "'a.b' is not a namespace"),
    ],
)
def test_wrong_use_is_told_in_a_sentence_with_exit_status_2(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "certwright-data").mkdir()
    monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(tmp_path)))
    status, out, err = invoke(*words)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert sentence in err


def _kubeconfig(folder: Path) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n"
    )
    return path


def test_without_any_kubeconfig_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    status, _, err = invoke("get", "certificates")
    assert status == 1
    assert err == (
        "error: no server configured: --kubeconfig is not given, $KUBECONFIG is not set, and "
        "./certwright-data/kubeconfig does not exist; start one here with `certwright serve` "
        "(`sudo certwright setup service`: as a service), or name its kubeconfig with --kubeconfig\n"
    )


def test_a_server_that_does_not_answer_is_told_with_the_file_that_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(tmp_path)))
    status, _, err = invoke("get", "certificates")
    assert status == 1
    assert f"{tmp_path / 'kubeconfig'} (from $KUBECONFIG)" in err
    assert "https://127.0.0.1:9" in err
    assert "`certwright serve` starts it" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "cannot be used"),
        ("", "cannot be used: not a kubeconfig: there is no context in it\n"),
        ("some text", "cannot be used: not a kubeconfig\n"),
        (None, "does not exist"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told(tmp_path: Path, content: str | None, sentence: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    status, _, err = invoke("get", "certificates", "--kubeconfig", str(path))
    assert status == 1
    assert err.startswith(f"error: the kubeconfig {path} (from --kubeconfig) ")
    assert sentence in err


def test_the_order_of_places_is_option_environment_default(tmp_path: Path) -> None:
    from certwright.cli.access import choose

    default = tmp_path / "certwright-data" / "kubeconfig"
    default.parent.mkdir()
    default.touch()
    environment = {"KUBECONFIG": f"/nowhere{os.pathsep}{default}"}
    assert choose(Path("/x"), environment, tmp_path).paths == (Path("/x"),)
    assert choose(None, environment, tmp_path).paths == (Path("/nowhere"), default)
    assert choose(None, {}, tmp_path).paths == (Path("certwright-data/kubeconfig"),)
    with pytest.raises(Failed):
        choose(None, {}, tmp_path / "elsewhere")


def test_version_names_the_version() -> None:
    from certwright import __version__

    status, out, _ = invoke("version")
    assert status == 0
    assert f"certwright {__version__} " in out


def test_crds_prints_all_definitions() -> None:
    from certwright.kube.api.manifests import Document, read_documents

    status, out, _ = invoke("crds")
    assert status == 0
    names = {
        d.content["metadata"]["name"] for d in read_documents(out, source="-") if isinstance(d, Document)
    }
    assert names == {
        "certificates.cert-manager.io",
        "certificaterequests.cert-manager.io",
        "issuers.cert-manager.io",
        "clusterissuers.cert-manager.io",
        "issuersets.certwright.io",
        "clusterissuersets.certwright.io",
        "deliveries.certwright.io",
        "orders.acme.cert-manager.io",
        "challenges.acme.cert-manager.io",
    }


HELP = """
from certwright.cli.main import program
try: program(['--help'])
except SystemExit: pass
"""
LARGE = ("aiohttp", "uvloop", "cryptography", "rich")
CLIENTS = (
    *("certwright.app", "urllib.request", "google", "difflib", "certwright.resources.certificate"),
    "certwright.kube.util.jsonpath",
)


@pytest.mark.parametrize(
    ("code", "slow"),
    [
        pytest.param(HELP, ("asyncio", "msgspec", "yaml"), id="help"),
        *(
            pytest.param(f"import certwright.cli.main, certwright.cli.commands.{name}", CLIENTS, id=name)
            for name in ("get", "status", "apply")
        ),
    ],
)
def test_help_and_clients_load_no_server_and_no_large_library(code: str, slow: tuple[str, ...]) -> None:
    """They have 150 ms of processor time: scripts, prompts and dashboards call them often."""
    code += f"\nimport sys\nsys.exit(' '.join({{*{LARGE}, *{slow}}} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_url_is_not_taken_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(tmp_path)))
    _, _, err = invoke("apply", "-f", "https://example.com/x.yaml")
    assert "URLs are not read; use `curl -L https://example.com/x.yaml | certwright apply -f -`" in err


def test_a_backup_replaces_no_file_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "all.backup").write_text("earlier")
    status, _, err = invoke("backup", str(tmp_path / "all.backup"), "--data-dir", str(tmp_path))
    assert (status, (tmp_path / "all.backup").read_text()) == (1, "earlier")
    assert err.endswith("all.backup exists; name another file, or replace it with --force\n")


def test_a_closed_output_is_no_error() -> None:
    command = ["sh", "-c", f"{sys.executable} -m certwright version >&-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "certwright", "crds"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_output_that_cannot_be_written_is_said_in_a_sentence() -> None:
    program = [sys.executable, "-m", "certwright", "completion", "bash"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: writing failed: No space left on device\n")


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


_NEVER_CLOSED = """
import asyncio
from certwright import app

async def close(server):
    print("closing", flush=True)
    await asyncio.sleep(60)

app.RunningServer.close = close
"""


def test_the_reference_has_the_exit_statuses_of_processes_and_no_other(start: Start, tmp_path: Path) -> None:
    server = Process("serve", "--listen", "127.0.0.1:0", cwd=tmp_path, prologue=_NEVER_CLOSED)
    try:
        assert server.line().startswith("certwright is ready at ")
        watch = start("get", "namespaces", "--watch")
        watch.lines_until("default")
        watch.kill(signal.SIGINT)
        statuses = [
            start("--version").rest().status,
            start("get", "certificates", "--kubeconfig", "none").rest().status,
            start("nosuch").rest().status,
            watch.rest().status,
        ]
        server.kill(signal.SIGTERM)
        server.lines_until("closing")
        server.kill(signal.SIGTERM)
        statuses.append(server.rest().status)
    finally:
        server.close()
    assert [str(status) for status in statuses] == list(STATUSES)
