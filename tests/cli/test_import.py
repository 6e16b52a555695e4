"""`certwright import`: folders that the programs themselves have made (`importing/make.py`), single files."""

from __future__ import annotations

import base64
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certwright.cli.importing import programs
from certwright.cli.importing.objects import AcmeDefaults, Place, plan_of
from certwright.cli.main import program
from certwright.pki.keys import load_private_jwk, load_private_key, public_key_der
from cli.calls import PATIENT, Cli, Outcome

FOLDERS = Path(__file__).parent / "importing"
SERVER = "https://localhost:14000/dir"


def dry_run(*words: str) -> Outcome:
    """A dry run, where no server is configured."""
    runner = CliRunner(env={"KUBECONFIG": ""})
    result = runner.invoke(program, ["import", *words, "--dry-run"], prog_name="certwright")
    return Outcome(result.exit_code, result.stdout, result.stderr)


def objects(cli: Cli, namespace: str, kind: str) -> dict[str, Any]:
    """The objects of a namespace by name."""
    listing = json.loads(cli("get", kind, "-n", namespace, "-o", "json").out)
    return {item["metadata"]["name"]: item for item in listing["items"]}


def data_of(secret: dict[str, Any], entry: str) -> bytes:
    return base64.b64decode(secret["data"][entry])


def test_certbot(cli: Cli, namespace: str) -> None:
    here, folder = ("-n", namespace), FOLDERS / "certbot"
    words = ("import", "certbot", str(folder), "--only", "standalone.example.com", *here)
    first = cli(*words)
    assert (first.status, first.out.splitlines()) == (
        0,
        [
            "secret/localhost-account created",
            "secret/standalone.example.com-tls created",
            "issuer.cert-manager.io/localhost created",
            "certificate.cert-manager.io/standalone.example.com created",
        ],
    )
    assert "issuer.cert-manager.io/localhost is not Ready: Failed to register ACME account" in first.err
    assert cli("wait", "certificates", "--all", "--for=condition=Ready", *here, *PATIENT).status == 0
    assert objects(cli, namespace, "certificaterequests") == {}

    secrets = objects(cli, namespace, "secrets")
    (account,) = folder.glob("accounts/*/*/*/private_key.json")
    kept = load_private_key(data_of(secrets["localhost-account"], "tls.key"))
    assert public_key_der(kept) == public_key_der(load_private_jwk(json.loads(account.read_text())))
    chain = (folder / "live" / "standalone.example.com" / "fullchain.pem").read_bytes()
    assert data_of(secrets["standalone.example.com-tls"], "tls.crt") == chain
    acme = objects(cli, namespace, "issuers")["localhost"]["spec"]["acme"]
    assert (acme["server"], acme["disableAccountKeyGeneration"]) == (SERVER, True)
    assert acme["solvers"] == [{"http01": {"ingress": {}}}]
    certificate = objects(cli, namespace, "certificates")["standalone.example.com"]
    assert certificate["spec"]["privateKey"] == {"algorithm": "ECDSA", "size": 256}
    assert [condition["type"] for condition in certificate["status"]["conditions"]] == ["Ready"]

    again = cli(*words)
    assert (again.status, {line.split()[-1] for line in again.out.splitlines()}) == (0, {"unchanged"})


def test_what_the_server_refuses_leaves_nothing_behind(cli: Cli, namespace: str) -> None:
    result = cli("import", "certbot", str(FOLDERS / "certbot"), "-n", namespace)
    assert (result.status, result.out) == (1, "")
    assert '"/var/www/a" is not below a directory that the operator allows' in result.err
    assert result.err.endswith("error: nothing was imported, for the reasons above\n")
    assert objects(cli, namespace, "secrets") == {}


def test_each_name_keeps_its_own_web_root() -> None:
    contents = programs.read_certbot(FOLDERS / "certbot", datetime.now(UTC))
    plan = plan_of(contents, Place(namespace="default"), AcmeDefaults())
    (issuer,) = (manifest for manifest in plan.objects if manifest["kind"] == "Issuer")
    assert issuer["spec"]["acme"]["solvers"] == [
        {"selector": {"dnsNames": ["a.example.com"]}, "http01": {"webroot": {"path": "/var/www/a"}}},
        {"selector": {"dnsNames": ["b.example.com"]}, "http01": {"webroot": {"path": "/var/www/b"}}},
        {"selector": {"dnsNames": ["standalone.example.com"]}, "http01": {"ingress": {}}},
    ]
    first, _ = (manifest for manifest in plan.objects if manifest["kind"] == "Certificate")
    assert first["spec"]["dnsNames"] == ["a.example.com", "b.example.com"]
    # certbot's reuse_key.
    assert first["spec"]["privateKey"]["rotationPolicy"] == "Never"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("caddy", "--solver", "tls-alpn01"),
            ["Issuer localhost", "TLS-ALPN-01 by", "Certificate caddy.example.com", "is of Caddy's own CA"],
        ),
        (
            ("dehydrated",),
            ["--webroot /var/www", "Certificate dehydrated.example.com", "RSA 2048, valid until"],
        ),
        (
            ("lego", "--server", SERVER),
            ["the challenge is not saved there: name a solver by --solver", "Certificate lego.example.com"],
        ),
        (("lego",), ["the directory URL of localhost:14000 is not known; name it by --server"]),
        (("certbot", "--only", "a.example.com"), ["Certificate a.example.com", "the account is kept"]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_dry_run_shows_what_becomes_what(words: tuple[str, ...], expected: list[str]) -> None:
    result = dry_run(words[0], str(FOLDERS / words[0]), *words[1:])
    assert (result.status, result.err) == (0, "")
    assert not [text for text in expected if text not in result.out], result.out


def acme_sh(folder: Path, **settings: str) -> Path:
    """acme.sh's folder with lego's certificate and account; written from acme.sh's source (`_initAPI`,
    `_savedomainconf`, `_saveaccountconf_mutable`), because no package registry has acme.sh."""
    pair, account = FOLDERS / "lego" / "certificates", FOLDERS / "lego" / "accounts"
    (key,) = account.glob("*/*/keys/*.key")
    place, server = folder / "lego.example.com_ecc", folder / "ca" / "localhost:14000" / "dir"
    place.mkdir(parents=True)
    server.mkdir(parents=True)
    shutil.copy(pair / "lego.example.com.crt", place / "fullchain.cer")
    shutil.copy(pair / "lego.example.com.key", place / "lego.example.com.key")
    shutil.copy(key, server / "account.key")
    (server / "ca.conf").write_text("CA_EMAIL='admin@example.com'\n")
    reload = base64.b64encode(b"systemctl reload haproxy").decode()
    lines = {
        "Le_Domain": "lego.example.com",
        "Le_Alt": "www.lego.example.com",
        "Le_API": SERVER,
        "Le_ReloadCmd": f"__ACME_BASE64__START_{reload}__ACME_BASE64__END_",
        **settings,
    }
    (place / "lego.example.com.conf").write_text(
        "".join(f"{key}='{value}'\n" for key, value in lines.items())
    )
    return folder


def test_acme_sh_with_credentials_of_a_dns_provider(cli: Cli, namespace: str, tmp_path: Path) -> None:
    folder = acme_sh(tmp_path / "acme.sh", Le_Webroot="dns_cf,no")
    (folder / "account.conf").write_text("SAVED_CF_Token='correct horse'\nAUTO_UPGRADE='0'\n")
    result = cli("import", "acme.sh", str(folder), "-n", namespace)
    assert (result.status, "correct horse" in result.out + result.err) == (0, False)
    assert "--reloadcmd `systemctl reload haproxy` is not imported" in result.err
    issuer = objects(cli, namespace, "issuers")["localhost"]["spec"]["acme"]
    assert issuer["email"] == "admin@example.com"
    assert issuer["solvers"] == [
        {
            "selector": {"dnsNames": ["lego.example.com"]},
            "dns01": {"cloudflare": {"apiTokenSecretRef": {"name": "localhost-dns-1", "key": "api-token"}}},
        },
        {"selector": {"dnsNames": ["www.lego.example.com"]}, "http01": {"ingress": {}}},
    ]
    secrets = objects(cli, namespace, "secrets")
    assert data_of(secrets["localhost-dns-1"], "api-token") == b"correct horse"
    # acme.sh keeps the key of a certificate.
    certificate = objects(cli, namespace, "certificates")["lego.example.com-ecc"]
    assert certificate["spec"]["privateKey"]["rotationPolicy"] == "Never"


@pytest.mark.parametrize(
    ("webroot", "account", "expected"),
    [
        ("dns_pdns", "SAVED_PDNS_Url='https://pdns'\nSAVED_PDNS_Token='t'", "Secret localhost-dns"),
        ("dns_aws", "SAVED_AWS_ACCESS_KEY_ID='a'\nSAVED_AWS_SECRET_ACCESS_KEY='b'", "Secret localhost-dns"),
        ("dns_aws", "", "account.conf lacks the DNS credentials"),
        ("dns_gd", "", "acme.sh's dns_gd has no counterpart"),
        ("no", "", "HTTP-01 by certwright's listener"),
        ("alpn", "", "TLS-ALPN-01 by certwright's listener"),
        ("apache", "", "'apache' has no counterpart"),
    ],
)
def test_ways_of_acme_sh(webroot: str, account: str, expected: str, tmp_path: Path) -> None:
    folder = acme_sh(tmp_path / "acme.sh", Le_Webroot=webroot)
    (folder / "account.conf").write_text(account)
    assert expected in dry_run("acme.sh", str(folder)).out


@pytest.fixture
def certbot(tmp_path: Path) -> Path:
    """A copy of certbot's folder, to be damaged."""
    return Path(shutil.copytree(FOLDERS / "certbot", tmp_path / "letsencrypt", symlinks=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 days", "renewed 30 days before it expires"),
        ("2 weeks", "renew_before_expiry '2 weeks' is not imported: only a number of days is"),
        ("90 days", "renewal 90 days before the expiry is not possible and not imported"),
    ],
)
def test_when_certbot_renews(certbot: Path, text: str, expected: str) -> None:
    path = certbot / "renewal" / "a.example.com.conf"
    path.write_text(
        path.read_text().replace("# renew_before_expiry = 30 days", f"renew_before_expiry = {text}")
    )
    assert expected in dry_run("certbot", str(certbot)).out
    plan = plan_of(
        programs.read_certbot(certbot, datetime.now(UTC)), Place(namespace="default"), AcmeDefaults()
    )
    first, second = (
        manifest["spec"].get("renewBefore") for manifest in plan.objects if manifest["kind"] == "Certificate"
    )
    assert (first, second) == ("720h" if text == "30 days" else None, None)


def test_when_acme_sh_and_dehydrated_renew(tmp_path: Path) -> None:
    # Twenty years have 7300 days.
    acme = acme_sh(tmp_path / "acme.sh", Le_Webroot="no", Le_RenewalDays="7240")
    assert "renewed 59 days before it expires" in dry_run("acme.sh", str(acme)).out
    config = tmp_path / "config"
    config.write_text("RENEW_DAYS=40\n")
    result = dry_run("dehydrated", str(FOLDERS / "dehydrated"), "--config", str(config))
    assert "renewed 40 days before it expires" in result.out


RFC2136 = "dns_rfc2136_server = 192.0.2.1\ndns_rfc2136_name = k.\ndns_rfc2136_secret = c2VjcmV0\n"


def test_hooks_for_every_certificate_of_certbot_are_named(certbot: Path) -> None:
    for when, name, mode in (
        ("deploy", "haproxy.sh", 0o755),
        ("post", "reload", 0o755),
        ("pre", "README", 0o644),
        ("pre", "old~", 0o755),
    ):
        script = certbot / "renewal-hooks" / when / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("#!/bin/sh\n")
        script.chmod(mode)
    out = dry_run("certbot", str(certbot), "--only", "a.example.com").out
    for name in ("deploy/haproxy.sh", "post/reload"):
        assert f"{certbot}/renewal-hooks/{name} is not imported: use --on-change" in out
    assert "README" not in out
    assert "old~" not in out


def test_credentials_of_certbots_plugins(certbot: Path, cli: Cli, namespace: str) -> None:
    (certbot / "rfc2136.ini").write_text(f"{RFC2136}dns_rfc2136_algorithm = HMAC-SHA512\n")
    path = certbot / "renewal" / "a.example.com.conf"
    text = path.read_text().replace("authenticator = webroot", "authenticator = dns-rfc2136")
    credentials = f"[renewalparams]\ndns_rfc2136_credentials = {certbot / 'rfc2136.ini'}"
    path.write_text(text.replace("[renewalparams]", credentials))
    only = ("--only", "a.example.com")
    assert cli("import", "certbot", str(certbot), *only, "-n", namespace).status == 0
    (solver,) = objects(cli, namespace, "issuers")["localhost"]["spec"]["acme"]["solvers"]
    assert solver["dns01"]["rfc2136"] == {
        "nameserver": "192.0.2.1:53",
        "tsigKeyName": "k",
        "tsigAlgorithm": "HMACSHA512",
        "tsigSecretSecretRef": {"name": "localhost-dns", "key": "tsig-secret"},
    }


def damage_link(folder: Path) -> str:
    (folder / "archive" / "a.example.com" / "privkey1.pem").unlink()
    return "privkey.pem is a link to ../../archive/a.example.com/privkey1.pem, which does not exist"


def damage_key(folder: Path) -> str:
    archive = folder / "archive"
    shutil.copy(archive / "standalone.example.com" / "privkey1.pem", archive / "a.example.com")
    return "privkey.pem is not the key of the certificate in"


def damage_size(folder: Path) -> str:
    os.truncate(folder / "archive" / "a.example.com" / "fullchain1.pem", 2**21)
    return "fullchain.pem is larger than 1 MiB"


def damage_text(folder: Path) -> str:
    (folder / "archive" / "a.example.com" / "fullchain1.pem").write_bytes(b"\xff\x00")
    return "fullchain.pem has no certificate (expected is PEM)"


def damage_account(folder: Path) -> str:
    for path in folder.glob("accounts/*/*/*/private_key.json"):
        path.write_text('{"kty": "oct"}')
    return "expected is a JSON Web Key of the type RSA or EC"


def damage_folder(folder: Path) -> str:
    path = folder / "archive" / "a.example.com" / "fullchain1.pem"
    path.unlink()
    path.mkdir()
    return "fullchain.pem is not a file"


@pytest.mark.parametrize(
    "damage", [damage_link, damage_key, damage_size, damage_text, damage_account, damage_folder]
)
def test_what_cannot_be_imported_names_the_file(certbot: Path, damage: Any) -> None:
    expected = damage(certbot)
    result = dry_run("certbot", str(certbot))
    assert result.status == 0
    (line,) = (line for line in result.out.splitlines() if "renewal/a.example.com.conf" in line)
    assert expected in line
    assert "Certificate a.example.com" not in result.out


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    for tool, part in {
        "certbot": "renewal",
        "acme.sh": "ca",
        "lego": "certificates",
        "caddy": "certificates",
        "dehydrated": "certs",
    }.items():
        result = dry_run(tool, str(tmp_path))
        assert result.status == 1
        assert (
            f"{tmp_path} is not a folder of {tool.replace('caddy', 'Caddy')}: {part} is missing" in result.err
        )
    assert "nothing is not a folder; name that of certbot" in dry_run("certbot", "nothing").err


def self_signed(days: int, *, is_ca: bool) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """A certificate that begins a year ago, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Own CA")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=365)).not_valid_after(now + timedelta(days=days))
    made = made.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), key


def pem_of(key: ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)


def files(folder: Path, certificate: bytes, key: bytes) -> tuple[str, ...]:
    (folder / "a.crt").write_bytes(certificate)
    (folder / "a.key").write_bytes(key)
    return ("--cert", str(folder / "a.crt"), "--key", str(folder / "a.key"))


def test_one_pair_and_a_ca(cli: Cli, namespace: str, tmp_path: Path) -> None:
    here = ("-n", namespace)
    (tmp_path / "ca").mkdir()
    certificate, key = self_signed(3650, is_ca=True)
    ca = files(tmp_path / "ca", certificate, pem_of(key))
    assert cli("import", "ca", *ca, "--name", "internal", *here).out.splitlines() == [
        "secret/internal created",
        "issuer.cert-manager.io/internal created",
    ]
    assert cli("wait", "issuer/internal", "--for=condition=Ready", *here, *PATIENT).status == 0
    assert data_of(objects(cli, namespace, "secrets")["internal"], "ca.crt") == certificate

    leaf = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("web.example.com")
    chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
    pair = files(tmp_path, chain, leaf.private_key_pem.bytes())
    alone = cli("import", "pem", *pair, "--name", "alone", *here)
    assert (alone.status, alone.out) == (0, "secret/alone created\n")
    assert "nothing renews it: name an issuer by --issuer" in alone.err
    web = ("import", "pem", *pair, "--name", "web", "--issuer", "internal", *here)
    assert cli(*web).status == 0
    assert cli("wait", "certificate/web", "--for=condition=Ready", *here, *PATIENT).status == 0
    assert objects(cli, namespace, "certificaterequests") == {}
    assert data_of(objects(cli, namespace, "secrets")["web"], "tls.crt") == chain

    another, its_key = self_signed(9, is_ca=False)
    other = files(tmp_path, another, pem_of(its_key))
    refused = cli("import", "pem", *other, "--name", "web", *here)
    assert (refused.status, refused.out) == (1, "")
    assert f"secret/web in namespace {namespace} exists with other content" in refused.err


@pytest.mark.parametrize("command", ["pem", "ca"])
def test_pairs_that_cannot_be_imported(command: str, tmp_path: Path) -> None:
    certificate, key = self_signed(9, is_ca=False)
    old, old_key = self_signed(-1, is_ca=True)
    other = pem_of(self_signed(9, is_ca=False)[1])
    cases = {
        "a.key is not the key of the certificate in": (certificate, other),
        "a.key: the private key is encrypted; an unencrypted one is needed": (certificate, pem_of(key, b"x")),
        "a.crt expired at ": (old, pem_of(old_key)),
        "a.crt has no certificate (expected is PEM)\n": (b"", other),
        "a.crt has no certificate (expected is PEM); `openssl x509 -inform DER": (b"\x30\x82", other),
        "a.key: not a private key that can be read": (certificate, certificate),
    }
    if command == "ca":
        cases["a.crt is not a CA certificate"] = (certificate, pem_of(key))
    for expected, (chain, pem) in cases.items():
        result = dry_run(command, *files(tmp_path, chain, pem), "--name", "web")
        assert (result.status, result.out) == (1, "")
        assert expected in result.err
        assert "PRIVATE KEY" not in result.err
    named = dry_run(command, *files(tmp_path, certificate, pem_of(key)), "--name", "Web_1")
    assert (named.status, "cannot be the name of an object" in named.err) == (2, True)
    missing = dry_run(command, "--cert", str(tmp_path / "no.crt"), "--key", "no.key", "--name", "web")
    assert "no.crt does not exist" in missing.err
