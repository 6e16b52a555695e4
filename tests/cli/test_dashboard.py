"""The dashboard of real processes: its link, behind nginx, in a cluster, and after a reload."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
import yaml
from click.testing import CliRunner

from certwright.cli.commands import dashboard
from certwright.cli.main import program
from cli.calls import Start, issue_quickstart, serve
from deploy.rights import documents, render
from support.oracle import running_etcd, running_kubernetes
from support.programs import TOOLS, free_port, running, tool
from support.real import require
from support.waiting import until_so

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "dashboard.md").read_text()
CRDS = ROOT / "deploy" / "crds.yaml"


class Browser:
    """Follows redirects, and keeps the cookie for the folder that has set it, as browsers do."""

    def __init__(self) -> None:
        self.cookie = self.folder = ""
        self.headers: http.client.HTTPMessage | None = None
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    @contextmanager
    def open(
        self, url: str, form: Mapping[str, str] | None = None, **headers: str
    ) -> Iterator[tuple[str, http.client.HTTPResponse]]:
        """The answer after redirects, and its address."""
        for _ in range(6):
            parts = urlsplit(url)
            connection = http.client.HTTPSConnection(parts.netloc, context=self._tls, timeout=60)
            fields = {"accept": "text/html", **headers}
            if self.cookie and parts.path.startswith(self.folder):
                fields["cookie"] = self.cookie
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            if form is not None:
                fields |= {
                    "content-type": "application/x-www-form-urlencoded",
                    "sec-fetch-site": "same-origin",
                }
                connection.request("POST", target, urlencode(form), fields)
            else:
                connection.request("GET", target, headers=fields)
            response = connection.getresponse()
            if field := response.headers.get("set-cookie"):
                self.cookie, self.folder = field.partition(";")[0], parts.path.rpartition("/")[0]
            if response.status not in (302, 303, 308):
                try:
                    yield url, response
                finally:
                    connection.close()
                return
            response.read()
            connection.close()
            url, form = urljoin(url, response.headers["location"]), None
        raise AssertionError(f"{url} redirects for ever")

    def page(self, url: str, form: Mapping[str, str] | None = None, **headers: str) -> tuple[str, int, str]:
        """Address, status and content of the page."""
        with self.open(url, form, **headers) as (where, response):
            return where, response.status, response.read().decode()


def _link_of(start: Start, *words: str) -> str:
    done = start("dashboard", *words).rest()
    assert done.err == ""
    return done.out.strip()


def _forms(url: str, page: str) -> dict[str, dict[str, str]]:
    return {
        urljoin(url, action): dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', inner))
        for action, inner in re.findall(r'<form method="post" action="([^"]*)">(.*?)</form>', page, re.S)
    }


def test_below_a_prefix_of_nginx_everything_works(start: Start, tmp_path: Path) -> None:
    nginx, port = require("nginx"), free_port()
    process = start("serve", "--listen", "127.0.0.1:0")
    at = process.line().split()[4].rstrip(";")
    issue_quickstart(start)
    pki = tmp_path / "certwright-data" / "pki"
    snippet = DOCS.partition("```nginx\n")[2].partition("```")[0]
    snippet = snippet.replace("https://127.0.0.1:8443", at).replace("/var/lib/certwright/pki", str(pki))
    folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{name}_temp_path {tmp_path}/{name};" for name in folders)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr; {'user root;' if os.geteuid() == 0 else ''}\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {pki}/server.crt;\n"
        f"ssl_certificate_key {pki}/server.key;\n{snippet}\n}}\n}}\n"
    )
    with running([nginx, "-c", f"{tmp_path}/nginx.conf"], tmp_path / "nginx.log", port):
        base, browser = f"https://localhost:{port}/certs", Browser()
        where, status, page = browser.page(f"{base}/ui/issuers")
        assert (where, status) == (f"{base}/ui/login?next=issuers", 200)
        link = _link_of(start, "--url", base, "--certificate-authority", f"{pki}/ca.crt")
        assert link.startswith(f"{base}/ui/login?code=")
        where, status, page = browser.page(link)
        assert (where, status) == (f"{base}/ui/", 200)
        assert "default/web" in page or ">web<" in page
        links = {urljoin(where, link) for link in re.findall(r'(?:href|src)="([^"#][^"]*)"', page)}
        assert len(links) > 8
        assert [link for link in links if not link.startswith(f"{base}/ui/")] == []
        assert {browser.page(link)[1] for link in links} == {200}
        deep = f"{base}/ui/certificates/default/web"
        where, status, page = browser.page(deep)
        assert (where, status) == (deep, 200)
        assert all(form.startswith(f"{base}/ui/") for form in _forms(where, page))
        question = next(link for link in re.findall(r'href="([^"]*)"', page) if link.endswith("/renew"))
        where, _, page = browser.page(urljoin(where, question))
        form = next(form for form in _forms(where, page).items() if form[0].endswith("/renew"))
        with browser.open(f"{base}/ui/live?at=certificates/default/web") as (_, stream):
            assert stream.headers["content-type"] == "text/event-stream"
            before = _event(stream)
            where, status, page = browser.page(*form, origin=f"https://localhost:{port}")
            assert (where.partition("?")[0], status) == (deep, 200)
            assert before != _event(stream)  # arrives without a buffer between
        where, status, page = browser.page(f"{base}/ui/")
        logout = next(form for form in _forms(where, page).items() if form[0].endswith("/logout"))
        assert browser.page(*logout)[0] == f"{base}/ui/login"
        assert browser.page(f"{base}/ui/")[0].startswith(f"{base}/ui/login")
    process.end()


def _event(stream: http.client.HTTPResponse) -> bytes:
    while not (line := stream.readline()).startswith(b"data: "):
        assert line
    return line


@contextmanager
def _certwright(start: Start, folder: Path) -> Iterator[Path]:
    """Our API server is the cluster; its kubeconfig."""
    serve(start, "--controllers", "", "--dashboard", "off")
    yield folder / "certwright-data" / "kubeconfig"


@contextmanager
def _kubernetes(_: Start, folder: Path) -> Iterator[Path]:
    """Kubernetes' API server is the cluster; its kubeconfig. CI does not build the server for ten minutes."""
    if not (TOOLS / "kube-apiserver").exists():
        pytest.skip("kube-apiserver does not exist; run `make kubernetes`")
    with running_etcd(folder) as etcd, running_kubernetes(folder, etcd) as server:
        kubectl = [require("kubectl"), "--kubeconfig", str(server.kubeconfig)]
        for words in (["create"], ["wait", "--for=condition=Established", "--timeout=60s"]):
            subprocess.run([*kubectl, *words, "-f", str(CRDS)], check=True, stdout=subprocess.DEVNULL)
        yield server.kubeconfig


@pytest.mark.parametrize("namespace", ["", "shop"])
@pytest.mark.parametrize("cluster", [_certwright, _kubernetes])
def test_in_a_cluster_users_of_the_api_server_see_what_they_may(
    start: Start,
    tmp_path: Path,
    namespace: str,
    cluster: Callable[[Start, Path], AbstractContextManager[Path]],
) -> None:
    with cluster(start, tmp_path) as admin:
        _users_see_what_they_may(start, tmp_path, namespace, admin)


def _users_see_what_they_may(start: Start, folder: Path, namespace: str, admin: Path) -> None:
    """The controllers have the rights of the chart, and no others."""
    kubectl = require("kubectl")

    def kube(*words: str, stdin: str = "") -> str:
        done = subprocess.run(
            [kubectl, "--kubeconfig", str(admin), *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for each in ("shop", "bank", "certwright"):
        kube("create", "namespace", each)
    values = ["--namespace", "certwright", "--set", "dashboard.enabled=true,crds.enabled=false"]
    rendered = documents(render(*values, *(("--set", f"watchNamespace={namespace}") if namespace else ())))
    wanted = [
        obj for obj in rendered if obj["apiVersion"].startswith("rbac.") or obj["kind"] == "ServiceAccount"
    ]
    kube("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    token = kube("-n", "certwright", "create", "token", "certwright")
    config = yaml.safe_load(admin.read_text())
    config["users"][0]["user"] = {"token": token}
    (folder / "controllers.kubeconfig").write_text(yaml.safe_dump(config))
    kube("apply", "-f", "-", stdin=SHOP)
    only = ("--namespace", namespace) if namespace else ()
    process = start(
        *("controllers", "--kubeconfig", "controllers.kubeconfig", "--dashboard-listen", "127.0.0.1:0"),
        *("--leader-election-namespace", namespace or "kube-system", *only),
    )
    at = process.line().partition("https://")[2].removesuffix("/ui/")
    browser = Browser()
    for name, where in (("looks", "shop"), ("nothing", "bank")):
        kube("-n", where, "create", "serviceaccount", name)
    kube(
        "-n", "shop", "create", "role", "looks", "--verb=get,list", "--resource=certificates.cert-manager.io"
    )
    kube("-n", "shop", "create", "rolebinding", "looks", "--role=looks", "--serviceaccount=shop:looks")
    tokens = {
        name: kube("-n", ns, "create", "token", name) for name, ns in (("looks", "shop"), ("nothing", "bank"))
    }
    found: dict[str, list[str]] = {}
    for name, bearer in tokens.items():
        _, status, page = browser.page(f"https://{at}/ui/status.json", authorization=f"Bearer {bearer}")
        assert status == 200, page
        found[name] = [f"{each['namespace']}/{each['name']}" for each in json.loads(page)["certificates"]]
    assert found == {"looks": ["shop/web"], "nothing": []}
    assert browser.page(f"https://{at}/ui/status.json", authorization="Bearer wrong")[1] == 401
    assert browser.page(f"https://{at}/api/v1/secrets", authorization=f"Bearer {tokens['looks']}")[1] == 404
    where, status, page = browser.page(f"https://{at}/")
    assert (where, status) == (f"https://{at}/ui/login", 200)
    assert "kubectl create token" in page
    _, status, page = browser.page(f"https://{at}/ui/login", {"credential": tokens["looks"]})
    assert (status, "system:serviceaccount:shop:looks" in page) == (200, True)
    config["users"][0]["user"] = {"token": tokens["looks"]}
    (folder / "looks.kubeconfig").write_text(yaml.safe_dump(config))
    host, _, port = at.partition(":")
    (folder / "dashboard.crt").write_text(ssl.get_server_certificate((host, int(port))))
    trusted = ("--url", f"https://{at}", "--certificate-authority", "dashboard.crt")
    link = _link_of(start, *trusted, "--kubeconfig", "looks.kubeconfig")
    assert "system:serviceaccount:shop:looks" in Browser().page(link)[2]
    assert Browser().page(link)[1] == 401
    kube("-n", "shop", "wait", "certificate/web", "--for=condition=Ready", "--timeout=60s")
    where, status, page = browser.page(f"https://{at}/ui/certificates/shop/web")
    assert (status, "may not get Secret web-tls" in page, "web-1" in page) == (200, True, False)
    forbidden = {"token": re.findall(r'name="token" value="([^"]*)"', page)[0]}
    assert browser.page(f"{where}/renew", forbidden)[1] == 403
    assert browser.page(f"https://{at}/ui/certificates/bank/vault")[1] == 404
    more = ("--verb=get,list,patch", "--resource=certificaterequests.cert-manager.io,secrets,events")
    status_too = "--resource=certificates.cert-manager.io/status"
    kube("-n", "shop", "create", "role", "more", *more, status_too)
    kube("-n", "shop", "create", "rolebinding", "more", "--role=more", "--serviceaccount=shop:looks")
    _, status, page = browser.page(where)
    shown = ("SHA-256", "web-1", "The certificate has been successfully issued")
    assert [words for words in shown if words not in page] == []
    assert "successfully issued" in browser.page(f"https://{at}/ui/stream")[2]
    _, status, page = browser.page(f"{where}/renew", forbidden)
    assert (status, "Renewing" in page) == (200, True), page
    until_so(lambda: "web-2" in browser.page(where)[2])
    with browser.open(f"https://{at}/ui/live?at=certificates/shop/web") as (_, stream):
        _event(stream)
        kube("-n", "shop", "delete", "serviceaccount", "looks")
        kube("-n", "shop", "annotate", "certificates", "web", "note=x")
        assert b"event: end\n" in iter(stream.readline, b"")
    until_so(lambda: browser.page(f"https://{at}/ui/")[0].startswith(f"https://{at}/ui/login"))
    process.kill(signal.SIGTERM)
    ended = process.rest()
    assert ended.status == 0
    assert "Traceback" not in ended.err
    assert "sha256=" in ended.err
    assert all(token not in ended.err + ended.out for token in tokens.values())


SHOP = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: shop}
spec: {secretName: web-tls, commonName: web.test, dnsNames: [web.test], issuerRef: {name: root}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: root, namespace: shop}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: vault, namespace: bank}
spec: {secretName: vault-tls, dnsNames: [vault.example.test], issuerRef: {name: nobody}}
"""


def test_the_controllers_use_the_files_that_are_there_now(start: Start, tmp_path: Path) -> None:
    serve(start, "--controllers", "")
    pki = tmp_path / "certwright-data" / "pki"
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    for source, target in zip((pki / "server.crt", pki / "server.key"), files, strict=True):
        shutil.copy(source, target)
    words = "controllers", "--kubeconfig", "certwright-data/kubeconfig", "--dashboard-listen", "127.0.0.1:0"
    alone = start(*words, "--dashboard-tls-cert-file", "tls.crt").rest()
    assert alone.status == 2
    assert "--dashboard-tls-cert-file and --dashboard-tls-private-key-file need each other" in alone.err
    process = start(
        *(*words, "--dashboard-tls-cert-file", "tls.crt", "--dashboard-tls-private-key-file", "tls.key"),
        *("--dashboard-files", "tls.crt", "--dashboard-scan", "127.0.0.1:1"),
    )
    host, _, port = process.line().partition("https://")[2].removesuffix("/ui/").partition(":")
    token = yaml.safe_load((tmp_path / "certwright-data" / "kubeconfig").read_text())["users"][0]["user"][
        "token"
    ]
    bearer = f"Bearer {token}"
    page = Browser().page(f"https://{host}:{port}/ui/elsewhere", authorization=bearer)[2]
    assert [words for words in ("tls.crt", "127.0.0.1:1") if words not in page] == []
    first = ssl.get_server_certificate((host, int(port)))
    assert first in (pki / "server.crt").read_text()
    openssl = require("openssl")
    command = (
        f"{openssl} req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.crt -days 9 -subj /CN=new"
    )
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    until_so(lambda: ssl.get_server_certificate((host, int(port))) != first)
    process.end()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        outcome = start(*words[:-1], address).rest()
    assert f"error: cannot serve the dashboard on {address}: Address already in use" in outcome.err


def test_the_switch_follows_a_reload(start: Start, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIGURATION.format("on"))
    process = start("serve", "--config", "c.yaml")
    at = process.line().split()[4].rstrip(";")
    link, browser = _link_of(start), Browser()
    assert browser.page(link)[1] == 200
    for mode, status in (("off", 401), ("read-only", 200)):
        (tmp_path / "c.yaml").write_text(CONFIGURATION.format(mode))
        process.kill(signal.SIGHUP)
        until_so(partial(_answers, f"{at}/ui/", browser, status))
    failed = start("dashboard", "--url", at)
    assert "is not trusted" in failed.rest().err
    process.kill(signal.SIGTERM)
    process.rest()


def _answers(url: str, browser: Browser, status: int) -> bool:
    return browser.page(url)[1] == status


CONFIGURATION = """
apiVersion: certwright.io/v1alpha1
kind: Configuration
listen: "127.0.0.1:0"
dashboard: "{}"
"""


@pytest.mark.parametrize(
    ("environment", "is_opened"),
    [
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"BROWSER": "firefox"}, True),
        ({}, False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}, False),
        ({"SSH_TTY": "/dev/pts/0", "BROWSER": "lynx"}, False),
    ],
)
def test_a_browser_is_opened_before_the_users_eyes_only(environment: dict[str, str], is_opened: bool) -> None:
    assert dashboard._has_browser(environment) is is_opened


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--url", "http://x"],
            "--url http://x is no address of a dashboard; write https://HOST[:PORT][/PATH]",
        ),
        (["--certificate-authority", __file__], "--certificate-authority is about --url"),
        (["--certificate-authority", "/nowhere", "--url", "https://x"], "does not exist"),
    ],
)
def test_what_the_command_refuses(words: list[str], sentence: str) -> None:
    result = CliRunner().invoke(program, ["dashboard", *words], prog_name="certwright")
    assert result.exit_code != 0
    assert sentence in result.stderr


def test_the_chart_has_the_dashboard_where_it_is_enabled() -> None:
    tool("helm", made_by="helm")
    assert "dashboard" not in render()
    values = "enabled=true", "tlsSecretName=web", "mode=read-only", "scan[0]=db.example:5432"
    text = render("--set", ",".join(f"dashboard.{value}" for value in values))
    objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in documents(text)}
    assert objects["Service", "certwright-dashboard"]["spec"]["sessionAffinity"] == "ClientIP"
    rules = objects["ClusterRole", "certwright-dashboard"]["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["events"], ["list", "watch"]),
        (["tokenreviews"], ["create"]),
    ]
    pod = objects["Deployment", "certwright"]["spec"]["template"]["spec"]
    flags = {"--dashboard-listen=:8444", "--dashboard=read-only", "--dashboard-scan=db.example:5432"}
    assert flags <= set(pod["containers"][0]["args"])
    assert pod["volumes"][0]["secret"] == {"secretName": "web"}


@pytest.mark.parametrize("kind", ["token", "exec", "certificate"])
def test_a_link_is_made_with_any_kubeconfig(start: Start, tmp_path: Path, kind: str) -> None:
    process = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
    process.line()
    data = tmp_path / "certwright-data"
    config = yaml.safe_load((data / "kubeconfig").read_text())
    user = config["users"][0]["user"]
    if kind == "exec":
        status = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": dict(user),
        }
        user["exec"] = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "echo",
            "args": [json.dumps(status)],
            "interactiveMode": "Never",
        }
        del user["token"]
    if kind == "certificate":
        openssl, pki = require("openssl"), data / "pki"
        subject = ["-subj", "/O=system:masters/CN=anna"]
        request = [openssl, "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", "anna.key", *subject]
        signed = [openssl, "x509", "-req", "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key")]
        asked = subprocess.run(request, cwd=tmp_path, check=True, capture_output=True).stdout
        made = subprocess.run(signed, input=asked, check=True, capture_output=True).stdout
        (tmp_path / "anna.crt").write_bytes(made)
        user.clear()
        user |= {"client-certificate": "anna.crt", "client-key": "anna.key"}
    (tmp_path / "its.kubeconfig").write_text(yaml.safe_dump(config))
    browser = Browser()
    where, answered, page = browser.page(_link_of(start, "--kubeconfig", "its.kubeconfig"))
    assert (where.endswith("/ui/"), answered) == (True, 200)
    assert ("anna" if kind == "certificate" else "kubernetes-admin") in page
    assert any(form.endswith("/logout") for form in _forms(where, page))
    process.end()
