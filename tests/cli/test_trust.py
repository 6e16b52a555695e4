"""`certwright trust`, with the real update-ca-certificates, certutil and keytool on temporary stores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from certwright.cli import trust_stores
from certwright.cli.main import program
from certwright.pki.certificates import read_certificate
from cli.calls import PATIENT, Cli, Outcome
from cli.test_import import self_signed
from support.real import require

OTHER = "an entry that is not ours"


def call(*words: str) -> Outcome:
    result = CliRunner().invoke(program, ["trust", *words], prog_name="certwright")
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_bytes(self_signed(30, is_ca=True)[0])
    return path


def debian(folder: Path) -> Path:
    for part in (
        "usr/local/share/ca-certificates",
        "usr/share/ca-certificates",
        "etc/ssl/certs",
        "etc/ca-certificates/update.d",
    ):
        (folder / part).mkdir(parents=True)
    (folder / "etc/ca-certificates.conf").write_text("# none\n")
    return folder


def test_the_bundle_of_a_system_gets_the_ca_and_loses_it(ca: Path, tmp_path: Path) -> None:
    require("update-ca-certificates")
    root = debian(tmp_path / "root")
    ours, etc = root / "usr/local/share/ca-certificates", root / "etc/ssl/certs"
    other = self_signed(30, is_ca=True)[0].decode()
    (ours / "other.crt").write_text(other)
    words = ("--file", str(ca), "--root", str(root))
    assert "not installed" in call("show", *words).out

    printed = call("install", *words, "--dry-run")
    assert [line.split()[0] for line in printed.out.splitlines()] == ["install", "update-ca-certificates"]
    assert len(list(ours.iterdir())) == 1

    ca.write_text(ca.read_text() + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    done = call("install", *words)
    assert (done.status, done.err) == (0, "")
    bundle = (etc / "ca-certificates.crt").read_text()
    assert bundle.count("BEGIN CERTIFICATE") == 2
    assert other in bundle
    assert not [path for path in root.rglob("*") if path.is_file() and "PRIVATE" in path.read_text()]
    assert "already installed" in call("install", *words).out
    assert ": installed" in call("show", *words).out

    assert call("uninstall", *words).status == 0
    assert (etc / "ca-certificates.crt").read_text() == other
    assert not [path for path in etc.iterdir() if path.is_symlink() and not path.exists()]
    assert "not installed" in call("uninstall", *words).out


def test_an_nss_database_gets_the_ca_and_loses_it(ca: Path, tmp_path: Path) -> None:
    certutil = require("certutil")
    folder = tmp_path / "nss"
    folder.mkdir()
    at = [certutil, "-d", f"sql:{folder}"]
    subprocess.run([*at, "-N", "--empty-password"], check=True)
    words = ("--file", str(ca), "--nss-db", str(folder))
    assert call("install", *words).status == 0
    assert "C,," in subprocess.run([*at, "-L"], check=True, capture_output=True, text=True).stdout
    assert "already installed" in call("install", *words).out
    assert call("uninstall", *words).out == f"NSS ({folder}): removed\n"
    assert "C,," not in subprocess.run([*at, "-L"], check=True, capture_output=True, text=True).stdout


def test_a_keystore_of_java_gets_the_ca_and_loses_it(ca: Path, tmp_path: Path) -> None:
    require("keytool")
    store, password = tmp_path / "cacerts", tmp_path / "password"
    password.write_text("not-changeit\n")
    words = ("--java-keystore", str(store), "--java-password-file", str(password))
    done = call("install", "--file", str(ca), *words)
    assert (done.status, done.out, done.err) == (0, f"Java ({store}): installed\n", "")
    fingerprint = read_certificate(ca.read_bytes()).fingerprint.hex(":").upper()
    removed = call("uninstall", "--fingerprint", fingerprint, *words)
    assert removed.out == f"Java ({store}): removed\n"


def test_only_a_ca_that_has_not_expired_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "web.crt"
    for is_ca, sentence in ((False, "which is not a CA; only CA certificates"), (True, "expired at")):
        path.write_bytes(self_signed(30 if not is_ca else -1, is_ca=is_ca)[0])
        refused = call("install", "--file", str(path), "--root", str(tmp_path))
        assert refused.status == 1
        assert sentence in refused.err
    assert "which CA? Name a Certificate" in call("install").err
    assert "is not a SHA-256" in call("uninstall", "--fingerprint", "ab").err


def test_without_the_rights_nothing_changes_and_the_command_is_printed(
    ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = debian(tmp_path / "root")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    refused = call("install", "--file", str(ca), "--root", str(root))
    assert refused.status == 1
    assert "nothing was changed. Run" in refused.err
    assert f"sudo certwright trust install --file {ca}" in refused.err
    assert not list((root / "usr/local/share/ca-certificates").iterdir())


def test_on_other_systems_the_instruction_is_printed(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, verb, text in (
        ("darwin", "install", "security add-trusted-cert"),
        ("win32", "uninstall", "certutil -delstore Root"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert text in call(verb, "--file", str(ca)).err
        monkeypatch.undo()
    assert trust_stores.instruction("linux", "ca.crt", remove=False) is None


def test_a_ca_of_the_server_is_found_by_its_names(cli: Cli, namespace: str, tmp_path: Path) -> None:
    at = ("-n", namespace)
    assert cli("create", "ca", "office", *at).status == 0
    assert cli("wait", "issuer", "office", "--for=condition=Ready", *at, *PATIENT).status == 0
    words = ("--root", str(debian(tmp_path / "root")), *at)
    names = ("issuer/office", "office-ca", "secret/office-ca")
    shown = {cli("trust", "show", name, *words, "-o", "pem").out for name in names[:2]}
    assert len(shown) == 1
    printed = cli("trust", "install", names[0], *words, "--dry-run")
    assert "install -D -m 0644 ca.crt" in printed.out
    refused = cli("trust", "show", "issuer/office-selfsigned", *words)
    assert "has no CA Secret (spec.ca is missing)" in refused.err
