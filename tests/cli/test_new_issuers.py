"""`create issuer`: issuers and Secrets from options, and what is refused."""

from __future__ import annotations

import base64
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from certwright.cli.dns_providers import PROVIDERS
from certwright.kube.util.decoders import json_decoder
from certwright.resources.issuer import IssuerSpec
from certwright.resources.issuer_rules import validate
from certwright.resources.solver import DNS01_PROVIDERS
from cli.calls import EXAMPLES, PATIENT, Cli, Start
from support.bind import running_bind
from support.openbao import app_role, openbao
from support.pebble import running_pebble, serving

LETS_ENCRYPT = ("create", "issuer", "letsencrypt", "--email", "you@example.org")
DRY = ("--dry-run", "-o", "yaml")
WITHIN = ("--wait", *PATIENT)


def printed(cli: Cli, *words: str, stdin: str = "") -> list[dict[str, Any]]:
    """The objects that a dry run prints."""
    outcome = cli(*words, *DRY, stdin=stdin)
    assert (outcome.status, outcome.err) == (0, ""), outcome
    return list(yaml.safe_load_all(outcome.out))


def entries(secret: dict[str, Any]) -> dict[str, str]:
    """The content of a Secret."""
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


@pytest.mark.parametrize(
    ("words", "solver"),
    [
        ("--http01", {"http01": {"ingress": {}}}),
        ("--webroot /var/www", {"http01": {"webroot": {"path": "/var/www"}}}),
        ("--tls-alpn01", {"tlsALPN01": {}}),
    ],
)
def test_an_issuer_for_lets_encrypt_is_one_object(cli: Cli, words: str, solver: dict[str, Any]) -> None:
    (issuer,) = printed(cli, *LETS_ENCRYPT, *words.split(), "--profile", "shortlived")
    assert issuer == {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": {"name": "letsencrypt"},
        "spec": {
            "acme": {
                "server": "https://acme-v02.api.letsencrypt.org/directory",
                "email": "you@example.org",
                "profile": "shortlived",
                "privateKeySecretRef": {"name": "letsencrypt-account"},
                "solvers": [solver],
            }
        },
    }
    (staging,) = printed(cli, *LETS_ENCRYPT, "try", "--http01", "--staging", "-n", "shop")
    assert staging["metadata"] == {"name": "try", "namespace": "shop"}
    assert staging["spec"]["acme"]["server"] == "https://acme-staging-v02.api.letsencrypt.org/directory"


SERVICE_ACCOUNT = '{"type": "service_account", "project_id": "p", "private_key": "k"}'
# Of each provider: its credentials as a user has them, settings of the issuer, and the entries of the Secret.
CREDENTIALS: tuple[tuple[str, str, dict[str, Any], dict[str, str]], ...] = (
    ("cloudflare", "t0ken\n", {}, {"api-token": "t0ken"}),
    ("cloudflare", "# certbot\ndns_cloudflare_api_token = t0ken", {}, {"api-token": "t0ken"}),
    ("Cloudflare", "export CF_DNS_API_TOKEN='t0=ken='", {}, {"api-token": "t0=ken="}),
    (
        "cloudflare",
        '{"email": "a@b.org", "apiKey": "k"}',
        {"email": "a@b.org"},
        {"api-key": "k"},
    ),
    ("digitalocean", "DO_AUTH_TOKEN=t", {}, {"access-token": "t"}),
    (
        "route53",
        "[default]\naws_access_key_id = AK\naws_secret_access_key = s/+=\nregion = eu-west-1",
        {"accessKeyID": "AK", "region": "eu-west-1"},
        {"secret-access-key": "s/+="},
    ),
    ("google", SERVICE_ACCOUNT, {"project": "p"}, {"key.json": SERVICE_ACCOUNT}),
    (
        "azure",
        "AZURE_SUBSCRIPTION_ID=s\nAZURE_RESOURCE_GROUP=g\nAZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\n"
        "AZURE_CLIENT_SECRET=x",
        {"subscriptionID": "s", "resourceGroupName": "g", "tenantID": "t", "clientID": "c"},
        {"client-secret": "x"},
    ),
    (
        "akamai",
        "[default]\nclient_secret = s\nhost = h.luna.akamaiapis.net\naccess_token = a\nclient_token = c",
        {"serviceConsumerDomain": "h.luna.akamaiapis.net"},
        {"client-secret": "s", "access-token": "a", "client-token": "c"},
    ),
    (
        "acme-dns",
        '{"host": "https://auth.test", "accounts": {"a.test": {"username": "u"}}}',
        {"host": "https://auth.test"},
        {"accounts": '{"a.test": {"username": "u"}}'},
    ),
    ("powerdns", "PDNS_API_URL=https://p.test\nPDNS_API_KEY=k", {"host": "https://p.test"}, {"api-key": "k"}),
    (
        "rfc2136",
        "dns_rfc2136_server = 192.0.2.1\ndns_rfc2136_port = 5353\ndns_rfc2136_name = key.\n"
        "dns_rfc2136_secret = c2VjcmV0\ndns_rfc2136_algorithm = HMAC-SHA512",
        {"nameserver": "192.0.2.1:5353", "tsigKeyName": "key", "tsigAlgorithm": "HMACSHA512"},
        {"tsig-secret": "c2VjcmV0"},
    ),
    ("lexicon:hetzner", "auth_token: t", {"provider": "hetzner"}, {"auth_token": "t"}),
    ("plugin:mine", "token=t", {"name": "mine"}, {"token": "t"}),
    (
        "webhook:acme.test/dns",
        '{"zone": "z"}',
        {"groupName": "acme.test", "solverName": "dns", "config": {"zone": "z"}},
        {},
    ),
)


@pytest.mark.parametrize(("provider", "text", "settings", "secret"), CREDENTIALS)
def test_credentials_go_into_a_secret_that_the_issuer_refers_to(
    cli: Cli, tmp_path: Path, provider: str, text: str, settings: dict[str, Any], secret: dict[str, str]
) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    path.chmod(0o600)
    words = (*LETS_ENCRYPT, "--dns01", provider, "--credentials")
    *secrets, issuer = printed(cli, *words, str(path))
    assert printed(cli, *words, "-", stdin=text)[-1] == issuer
    ((solver, made),) = issuer["spec"]["acme"]["solvers"][0]["dns01"].items()
    assert [entries(each) for each in secrets] == ([secret] if secret else [])
    assert made | settings == made
    for each in secrets:
        assert each["metadata"]["name"] == "letsencrypt-dns01"
    assert solver in DNS01_PROVIDERS.values()
    assert validate(json_decoder(IssuerSpec).decode(msgspec.json.encode(issuer["spec"]))) == []


def test_every_provider_has_credentials() -> None:
    assert {*PROVIDERS, "lexicon", "plugin", "webhook"} == set(DNS01_PROVIDERS.values())
    assert {each[0].partition(":")[0].lower() for each in CREDENTIALS} >= {
        "cloudflare",
        "digitalocean",
        "route53",
        "google",
        "azure",
        "akamai",
        "acme-dns",
        "powerdns",
        "rfc2136",
    }


def test_the_page_names_the_credentials_of_every_provider() -> None:
    page = (EXAMPLES.parent / "docs" / "dns-providers.md").read_text()
    section = page.split("## Credentials of create issuer")[1].split("\n## ")[0]
    rows = {line.split("`")[1]: line for line in section.splitlines() if line.startswith("| `")}
    for name, provider in PROVIDERS.items():
        assert [each for each in provider.fields if f"`{each}`" not in rows[name]] == [], name


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (
            "",
            2,
            "how are names validated? Give one of --http01, --webroot DIR, --tls-alpn01, --dns01 PROVIDER",
        ),
        ("--http01 --webroot /srv", 2, "--http01 and --webroot DIR exclude each other: keep one"),
        ("--webroot srv", 2, "--webroot srv: write the whole path, from / and without `..`"),
        ("--webroot /srv/../etc", 2, "--webroot /srv/../etc: write the whole path"),
        ("--http01 --email you@", 2, "--email you@: is not one e-mail address, e.g. you@example.org"),
        ("--http01 --credentials - <x", 2, "--credentials are those of a DNS provider: name it by --dns01"),
        ("--dns01 hetzner", 2, "--dns01 hetzner: is not one of acmeDNS, akamai,"),
        ("--dns01 lexicon", 2, "a name after it, e.g. lexicon:hetzner"),
        ("--dns01 lexicon:x", 2, "--dns01 lexicon:x needs --credentials FILE"),
        ("--dns01 webhook:x --credentials - <x", 2, "write webhook:GROUP/NAME"),
        ("--dns01 cloudflare", 2, "needs --credentials FILE with api_token, or email and api_key"),
        ("--dns01 cloudflare --credentials t0ken", 2, "t0ken: No such file or directory; name a file, or -"),
        ("--dns01 cloudflare --credentials /", 2, "/: Is a directory"),
        ("--dns01 cloudflare --credentials - <", 2, "standard input is empty"),
        ("--dns01 cloudflare --credentials - <\xff", 2, "standard input is not text"),
        ("--dns01 cloudflare --credentials - <" + "x" * 70000, 2, "standard input is longer than 64 KiB"),
        (
            "--dns01 cloudflare --credentials - <a b",
            1,
            "standard input, line 1: write NAME = VALUE, or a JSON",
        ),
        ("--dns01 cloudflare --credentials - <{", 1, "standard input, line 1: is not JSON"),
        (
            "--dns01 cloudflare --credentials - <tokn=x",
            1,
            "cloudflare has no setting tokn; it has api_token,",
        ),
        ("--dns01 cloudflare --credentials - <token=", 1, "standard input, line 1: token is empty"),
        ("--dns01 cloudflare --credentials - <token=a\ntoken=b", 1, "line 2: token is set twice; keep one"),
        ("--dns01 cloudflare --credentials - <token=a\napi_token=b", 1, "api_token is set twice; keep one"),
        ("--dns01 cloudflare --credentials - <email=a", 1, "lacks api_key; cloudflare needs api_token, or"),
        ("--dns01 cloudflare --credentials - <api_key=a", 1, "standard input: lacks email; cloudflare needs"),
        ("--dns01 cloudflare --credentials - <token=a\nkey=b", 1, "api_key and api_token exclude each other"),
        ("--dns01 route53 --credentials - <access_key_id=a", 1, "lacks secret_access_key; route53 needs"),
        ('--dns01 acmeDNS --credentials - <{"a.test": {}}', 1, 'write {"host": "https://…", "accounts"'),
        ("--dns01 rfc2136 --credentials - <server=a\nsecret=b", 1, "lacks name; rfc2136 needs server"),
    ],
)
def test_what_cannot_become_an_issuer_is_refused_with_a_sentence(
    cli: Cli, words: str, status: int, sentence: str
) -> None:
    options, _, stdin = words.partition(" <")
    outcome = cli(*LETS_ENCRYPT, *options.split(), *DRY, stdin=stdin.encode("latin-1"))
    assert (outcome.status, outcome.out) == (status, ""), outcome
    assert outcome.err.startswith("error: ")
    assert sentence in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_an_issuer_of_a_ca_and_what_exists_already(cli: Cli, namespace: str) -> None:
    place = ("-n", namespace)
    assert cli("create", "ca", "office", *place, *WITHIN).status == 0
    words = ("create", "issuer", "ca", "again", "--secret", "office-ca", *place)
    assert cli(*words, *WITHIN).status == 0
    taken = cli(*words)
    assert (taken.status, taken.out) == (1, "")
    assert taken.err == (
        f"error: issuer.cert-manager.io/again already exists in namespace {namespace}, and nothing was "
        "created: name another issuer, or replace it: --dry-run -o yaml | certwright apply -f -\n"
    )
    # Neither is an issuer created for the credentials of another purpose.
    secret = "{apiVersion: v1, kind: Secret, metadata: {name: letsencrypt-dns01}}"
    assert cli("apply", "-f", "-", *place, stdin=secret).status == 0
    half = cli(*LETS_ENCRYPT, "--dns01", "digitalocean", "--credentials", "-", *place, stdin="token=x")
    assert (half.status, "secret/letsencrypt-dns01 already exists" in half.err) == (1, True)
    assert cli("get", "issuer", "letsencrypt", *place).status == 1


def test_a_web_root_that_the_server_does_not_allow_comes_with_the_line_that_allows_it(
    cli: Cli, namespace: str
) -> None:
    refused = cli(*LETS_ENCRYPT, "--webroot", "/srv/www", "-n", namespace)
    assert refused.status == 1
    assert refused.err.endswith(
        'add the line `webroot: ["/srv/www"]` to a file of the server\'s configuration, e.g. '
        "/etc/certwright/conf.d/50-issuers.yaml, and run `systemctl reload certwright`\n"
    )
    plain = cli("create", "issuer", "acme", "x", "--server", "http://ca.test/d", "--http01", "-n", namespace)
    assert "add the line `allowHttpServers: true`" in plain.err
    dns = (*LETS_ENCRYPT, "--dns01", "pdns", "--credentials", "-", "-n", namespace)
    assert "`allowHttpServers: true`" in cli(*dns, stdin="host=http://p.test\napi_key=k").err
    lexicon = (*LETS_ENCRYPT, "--dns01", "lexicon:hetzner", "--credentials", "-", "-n", namespace)
    assert "add the line `dns01Lexicon: [hetzner]`" in cli(*lexicon, stdin="auth_token=x").err


def test_a_credential_file_that_others_can_read_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("t")
    path.chmod(0o644)
    words = (*LETS_ENCRYPT, "--dns01", "digitalocean", "--credentials", str(path), *DRY)
    assert cli(*words).err == f"warning: {path} can be read by other users; `chmod 600 {path}`\n"
    ambient = cli(*LETS_ENCRYPT, "--dns01", "route53", *DRY)
    assert (ambient.status, "--issuer-ambient-credentials, which is off" in ambient.err) == (0, True)


def test_wait_prints_no_object(cli: Cli, namespace: str) -> None:
    both = cli("create", "ca", "office", "--wait", "-o", "yaml", "-n", namespace)
    assert (both.status, both.out, "--wait and -o exclude each other" in both.err) == (2, "", True)


def test_certificates_from_pebble_by_a_web_root_and_by_dns(cli: Cli, start: Start, tmp_path: Path) -> None:
    served, bundle = tmp_path / "www", tmp_path / "pebble.pem"
    served.mkdir()
    with (
        running_bind() as bind,
        running_pebble(names=bind.address) as pebble,
        serving(served, "127.0.0.1", pebble.http_port),
    ):
        bundle.write_bytes(pebble.ca_bundle)
        server = start(
            "serve", "--data-dir", "d", "--listen", "127.0.0.1:0", "--webroot", str(served),
            "--http01-check-port", str(pebble.http_port),
            "--dns01-recursive-nameservers", bind.address, "--dns01-recursive-nameservers-only",
        )  # fmt: skip
        assert server.line().startswith("certwright is ready")
        options = ("--kubeconfig", str(tmp_path / "d" / "kubeconfig"))
        acme = ("--server", pebble.directory, "--ca-file", str(bundle), "--email", "you@example.org")
        host, port = bind.address.rsplit(":", 1)
        tsig = f"name = hmacsha256\nsecret = {bind.secrets['hmacsha256']}\nalgorithm = hmac-sha256\n"
        for name, of, words, stdin in (
            ("files", "--ip=127.0.0.1", ("--webroot", str(served)), ""),
            (
                "wildcard",
                "--dns=*.example.org",
                ("--dns01", "rfc2136", "--credentials", "-"),
                f"server = {host}\nport = {port}\n{tsig}",
            ),
        ):
            made = cli("create", "issuer", "acme", name, *acme, *words, *options, *WITHIN, stdin=stdin)
            assert made.status == 0, made
            web = ("create", "certificate", name, of, "--issuer", name)
            issued = cli(*web, *options, *WITHIN)
            assert issued.status == 0, issued
            assert issued.out.splitlines()[-1].startswith(f"default/{name}: ready, valid until ")
        other = ("create", "certificate", "no", "--dns", "no.test", "--issuer", "pebbel", *options)
        never = cli(*other, "--wait", "--timeout=1")
        assert never.status == 1
        server.kill(signal.SIGTERM)


def test_openbao_signs_for_a_token_and_for_an_app_role(cli: Cli, namespace: str, tmp_path: Path) -> None:
    bundle, place = tmp_path / "bao.pem", ("-n", namespace)
    with openbao() as bao:
        bundle.write_bytes(bao.ca_pem)
        role, secret = app_role(bao)
        for name, credentials in (
            ("token", bao.root_token),
            ("role", f"role_id = {role}\nsecret_id = {secret}\n"),
        ):
            words = ("create", "issuer", "vault", name, "--server", bao.url, "--path", "pki/sign/web")
            made = cli(
                *words, "--ca-file", str(bundle), "--credentials", "-", *place, *WITHIN, stdin=credentials
            )
            assert made.status == 0, made
            web = ("create", "certificate", name, "--dns", f"{name}.example.org", "--issuer", name)
            issued = cli(*web, *place, *WITHIN)
            assert issued.status == 0, issued
    wrong = cli(
        "create",
        "issuer",
        "vault",
        "x",
        "--server",
        bao.url,
        "--path",
        "p",
        "--credentials",
        "-",
        stdin="a=b",
    )
    assert wrong.err == (
        "error: standard input: write a token, or role_id and secret_id of AppRole; docs/vault.md has the "
        "other ways to log in\n"
    )
