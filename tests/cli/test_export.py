"""`certwright export`: a Certificate's files on another machine, with the rights of a user of its own."""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from certwright.kube.client import kubeconfig
from cli.calls import PATIENT, Cli, Start, serve
from faults.disks import memory_disk
from support.pairs import ca_pair
from support.waiting import until_so


@pytest.fixture
def issued(cli: Cli, namespace: str) -> str:
    """A namespace with the Certificates `web` and `other` of the CA `office`."""
    assert cli("create", "ca", "office", "-n", namespace).status == 0
    for name in ("web", "other"):
        words = ("create", "certificate", name, "--dns", f"{name}.example.test", "--issuer", "office")
        assert cli(*words, "-n", namespace).status == 0
    waited = ("wait", "cert", "--all", "--for=condition=Ready", "-n", namespace, *PATIENT)
    assert cli(*waited).status == 0
    return namespace


def test_files_are_those_of_the_secret_and_keep_mode_and_group(cli: Cli, issued: str, tmp_path: Path) -> None:
    to = tmp_path / "new" / "tls"
    first = cli("export", f"{issued}/web", "--to", str(to))
    assert (first.status, first.err) == (0, "")
    assert f"{issued}/web: tls.crt, tls.key, ca.crt written to {to}; valid until " in first.out
    assert stat.S_IMODE((to / "tls.key").stat().st_mode) == 0o600
    secret = json.loads(cli("get", "secret", "web-tls", "-n", issued, "-o", "json").out)["data"]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        assert (to / name).read_bytes() == base64.b64decode(secret[name])
    (to / "tls.key").chmod(0o640)
    assert "are current" in cli("export", "web", "-n", issued, "--to", str(to)).out
    assert cli("renew", "web", "-n", issued).status == 0
    until_so(lambda: "tls.crt, tls.key written" in cli("export", "web", "-n", issued, "--to", str(to)).out)
    assert stat.S_IMODE((to / "tls.key").stat().st_mode) == 0o640
    # Another format replaces the files of the one before.
    assert cli("export", "web", "-n", issued, "--to", str(to), "--format", "combined").status == 0
    assert [path.name for path in to.iterdir() if not path.name.startswith("..")] == ["tls-combined.pem"]


def test_key_stores_have_the_password_of_the_file_and_are_kept(cli: Cli, issued: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("for the stores\nnot this line\n")
    words = ("export", "web", "-n", issued, "--to", str(tmp_path / "to"), "--format", "pkcs12,jks")
    with_password = (*words, "--password-file", str(tmp_path / "password"))
    assert "keystore.p12, keystore.jks written" in cli(*with_password).out
    before = (tmp_path / "to" / "keystore.p12").read_bytes()
    assert "are current" in cli(*with_password).out
    assert (tmp_path / "to" / "keystore.p12").read_bytes() == before
    assert pkcs12.load_pkcs12(before, b"for the stores").cert is not None


@pytest.fixture
def limited(cli: Cli, issued: str, tmp_path: Path) -> Iterator[str]:
    """The kubeconfig of a user who may read `web` only."""
    path = tmp_path / "limited"
    words = ("user", "create", f"m-{issued}", "--certificates", f"{issued}/web", "--kubeconfig", str(path))
    outcome = cli(*words)
    assert outcome.status == 0
    assert outcome.err.startswith(f"warning: {path} names https://127.0.0.1:")
    wrong = cli(*words, "--server", "pki.example.com")
    assert (wrong.status, "`pki.example.com` is not an https URL" in wrong.err) == (2, True)
    assert f"(reads {issued}/web): {path} is valid until " in outcome.out
    yield str(path)
    assert cli("user", "delete", f"m-{issued}").status == 0
    assert f"m-{issued}" not in cli("get", "roles", "-n", issued).out


def test_a_user_of_certificates_reads_these_and_nothing_else(
    cli: Cli, issued: str, limited: str, tmp_path: Path
) -> None:
    # The namespace is that of the kubeconfig.
    assert cli("export", "web", "--to", str(tmp_path / "a"), "--kubeconfig", limited).status == 0
    for refused in (
        ("get", "secret", "other-tls"),
        ("get", "secret", "office-ca"),
        ("get", "secrets"),
        ("get", "certificate", "other"),
        ("get", "certificates", "-A"),
        ("get", "issuers"),
        ("get", "secrets", "-n", "certwright-users"),
        ("renew", "web"),
        ("delete", "secret", "web-tls"),
    ):
        outcome = cli(*refused, "--kubeconfig", limited)
        assert (outcome.status, "forbidden" in outcome.err) == (1, True), (refused, outcome)
    assert "(you may not read them)" in cli("status", "web", "--kubeconfig", limited).out
    other = cli("export", "other", "--to", str(tmp_path / "b"), "--kubeconfig", limited)
    assert (other.status, "`certwright user create` with --certificates" in other.err) == (5, True)
    listed = {user["name"]: user for user in json.loads(cli("user", "list", "-o", "json").out)}
    assert listed[f"m-{issued}"]["roles"] == [f"certificates in {issued}"]
    # Again, with others: they replace the former ones.
    words = ("user", "create", f"m-{issued}", "-n", issued, "--kubeconfig", limited, "--certificates")
    later = cli(*words, "other,later")
    assert (later.status, f"Certificate {issued}/later does not exist yet" in later.err) == (0, True)
    assert cli("export", "other", "--to", str(tmp_path / "b"), "--kubeconfig", limited).status == 0
    assert cli("export", "web", "--to", str(tmp_path / "a"), "--kubeconfig", limited).status == 5
    assert cli("export", "later", "--to", str(tmp_path / "c"), "--kubeconfig", limited).status == 3


def test_a_token_that_has_ended_or_ends_soon_is_named_with_the_fix(
    cli: Cli, issued: str, limited: str, tmp_path: Path
) -> None:
    text = Path(limited).read_text()
    head, claims, signature = re.findall(r"token: (\S+)\.(\S+)\.(\S+)", text)[0]
    values = json.loads(base64.urlsafe_b64decode(claims + "=="))

    def export(ends_in_s: float) -> tuple[int, str]:
        now = time.time()
        given = json.dumps({**values, "iat": now - 30 * 86_400, "exp": now + ends_in_s}).encode()
        forged = base64.urlsafe_b64encode(given).decode().rstrip("=")
        path = tmp_path / "forged"
        path.write_text(text.replace(f"{head}.{claims}.{signature}", f"{head}.{forged}.{signature}"))
        words = ("export", "web", "--to", str(tmp_path / "to"), "--kubeconfig", str(path), "--follow")
        outcome = cli(*words)
        return outcome.status, outcome.err

    fix = f"; on the server, `certwright user create m-{issued}` with its --role or --certificates"
    status, ended = export(-86_400)
    assert (status, "forged (from --kubeconfig) ended at 20" in ended, fix in ended) == (5, True, True)
    status, ends = export(3600)
    assert (status, "warning: the token of " in ends, " ends at 20" in ends) == (5, True, True)


def test_a_directory_that_others_control_is_refused(cli: Cli, issued: str, tmp_path: Path) -> None:
    (mine := tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(mine)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "tls.key").write_text("of another program")
    expected = {
        "link": f"link is a symbolic link, and links are not followed; name the directory: --to {mine}",
        "file/below": "file cannot be written: a symbolic link, or not a directory",
        "open": "(mode 1777) and could take the private key; chmod go-w",
        "foreign": "foreign/tls.key exists and was not written by `certwright export`; remove it",
    }
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        nobody = pwd.getpwnam("nobody")
        os.chown(tmp_path / "theirs", nobody.pw_uid, nobody.pw_gid)
        expected["theirs"] = "belongs to user nobody, who could take the private key; run the"
        (tmp_path / "theirs" / "way").symlink_to(tmp_path / "mine")
        os.chown(tmp_path / "theirs" / "way", nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
        expected["theirs/way/tls"] = "theirs/way is a symbolic link of user nobody"
    for place, sentence in expected.items():
        outcome = cli("export", "web", "-n", issued, "--to", str(tmp_path / place))
        assert (outcome.status, sentence in outcome.err) == (6, True), (place, outcome)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_full_disk_leaves_the_files_as_they_were(cli: Cli, issued: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    (tmp_path / "disk").mkdir()
    with memory_disk(tmp_path / "disk", megabytes=1) as disk:
        to = disk.path / "tls"
        assert cli("export", "web", "-n", issued, "--to", str(to)).status == 0
        before = (to / "tls.crt").read_bytes()
        disk.fill()
        outcome = cli("export", "other", "-n", issued, "--to", str(to))
        assert (outcome.status, "No space left on device" in outcome.err) == (6, True), outcome
        assert (to / "tls.crt").read_bytes() == before


def test_the_exit_status_tells_scripts_what_has_failed(cli: Cli, issued: str, tmp_path: Path) -> None:
    here = ("-n", issued, "--to", str(tmp_path / "to"))
    (tmp_path / "void").touch()
    for words, status, said in (
        (
            ("web", *here, "--kubeconfig", str(tmp_path / "none")),
            1,
            "none (from --kubeconfig) does not exist",
        ),
        (("office-ca", *here, "--format", "combined"), 1, "is a CA, whose private key is not exported"),
        (("web", *here, "--format", "jks", "--password-file", str(tmp_path / "void")), 1, "has no password"),
        (("web", "-n", issued), 2, "--to is missing"),
        (("web", *here, "--format", "der"), 2, "'der' is not one of pem, combined, pkcs12, jks"),
        (("web", *here, "--format", "jks"), 2, "--format jks needs --password-file FILE"),
        (("other/web", *here), 2, f"other/web is not in the namespace of -n {issued}"),
        (("a/b/c", *here), 2, "write NAME or NAMESPACE/NAME"),
        (("web", *here, "--served-at", "gopher://x"), 2, "begins with an unknown protocol"),
        (("nothing", *here), 3, f"Certificate {issued}/nothing does not exist"),
        (("web", *here, "--on-change", "echo no; exit 3"), 7, "ended with status 3: no"),
        (("web", *here, "--served-at", "127.0.0.1:1"), 8, "127.0.0.1:1 cannot be reached"),
    ):
        outcome = cli("export", *words)
        assert (outcome.status, said in outcome.err) == (status, True), (words, outcome)


def test_following_survives_restarts_and_another_ca(start: Start, tmp_path: Path) -> None:
    server = serve(start)
    port = re.findall(r":(\d+)", (tmp_path / "certwright-data" / "kubeconfig").read_text())[0]
    user = ("user", "create", "machine", "--certificates", "web", "--kubeconfig", "machine")
    assert start(*user).rest().status == 0
    log, to = tmp_path / "log", tmp_path / "to"
    command = f'openssl x509 -in "$CERTWRIGHT_DIR/tls.crt" -noout -serial >> {log}'
    words = ("export", "web", "--to", "to", "--kubeconfig", "machine", "--follow", "--on-change", command)
    follower = start(*words)

    def runs() -> int:
        return len(set(log.read_text().splitlines())) if log.exists() else 0

    time.sleep(0.5)
    assert start("create", "ca", "office").rest().status == 0
    made = ("create", "certificate", "web", "--dns", "web.example.test", "--issuer", "office")
    assert start(*made).rest().status == 0
    until_so(lambda: runs() == 1)

    # Renewed by a server that the follower finds again by itself.
    server.end(signal.SIGTERM)
    server = serve(start, listen=f"127.0.0.1:{port}")
    assert start("renew", "web").rest().status == 0
    until_so(lambda: runs() == 2)

    # A server with another key is not believed; the new kubeconfig is.
    server.end(signal.SIGTERM)
    for path in (tmp_path / "certwright-data" / "pki").glob("ca.*"):
        path.unlink()
    server = serve(start, listen=f"127.0.0.1:{port}")
    assert start("renew", "web").rest().status == 0
    time.sleep(1)
    assert runs() == 2
    assert start(*user[:-1], "machine.new").rest().status == 0
    os.replace(tmp_path / "machine.new", tmp_path / "machine")
    until_so(lambda: runs() == 3)
    follower.kill(signal.SIGTERM)
    ended = follower.rest()
    assert ended.status == 0
    assert "warning: Certificate default/web does not exist; create it; waiting for it" in ended.err
    assert "the files stay as they are; trying again" in ended.err
    assert (to / "tls.crt").exists()
    server.end(signal.SIGTERM)


def test_a_server_that_closes_every_connection_is_not_flooded(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "machine").write_bytes(kubeconfig.render(address, ca_pair()[0], "a-token"))
        follower = start("export", "web", "--to", "to", "--kubeconfig", "machine", "--follow")
        server.settimeout(60)
        times: list[float] = []
        while len(times) < 5:
            server.accept()[0].close()
            times.append(time.monotonic())
    follower.kill(signal.SIGTERM)
    ended = follower.rest()
    # Reported once. Each pause has any length up to 1, 2, 4 and 8 s, and at least a tenth.
    assert (ended.status, ended.err.count("cannot be reached")) == (0, 1), ended
    assert times[-1] - times[0] > 0.4
