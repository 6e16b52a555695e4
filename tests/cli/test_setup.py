"""`certwright setup`: in a scratch root, and with real servers on a machine of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from certwright.cli.main import program
from certwright.cli.setup import plan
from certwright.cli.setup.programs import SERVERS
from certwright.kube.util.files import write_atomically
from cli.calls import Outcome
from support.machine import Machine, own_machine
from support.real import require

WITHIN_S = 60.0
SERVICE = f"certwright setup service --program {Path(sys.executable).parent}/certwright"


def setup(*words: str) -> Outcome:
    result = CliRunner().invoke(program, ["setup", *words], prog_name="certwright")
    return Outcome(result.exit_code, result.stdout, result.stderr)


def contents(root: Path) -> dict[str, bytes]:
    """All files and links below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"->"
        for path in root.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of an image with all servers, and the service."""
    for server in SERVERS.values():
        (tmp_path / str(server.config).lstrip("/")).mkdir(parents=True)
    (tmp_path / "etc/postgresql/15/main/conf.d").mkdir(parents=True)
    assert setup("service", "--root", str(tmp_path)).status == 0
    return tmp_path


CHANGED = "was changed after setup had written it"
NGINX = ("nginx", "web", "--dns", "www.example.test", "--root")


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_set_up_in_an_image_twice_and_removed(name: str, root: Path) -> None:
    before = contents(root)
    words = (name, "web", "--dns", "www.example.test", "--root", str(root))
    planned = setup(*words, "--dry-run")
    assert (planned.status, planned.err, contents(root)) == (0, "", before)

    assert setup(*words).status == 0
    made = contents(root)
    fragment = (root / f"etc/certwright/conf.d/50-{name}.yaml").read_text()
    assert fragment.startswith(f"# {plan.HEAD} sha256:")
    assert f"{name}: /etc/{SERVERS[name].config.name}/tls" in fragment
    written = [path for path in made.keys() - before.keys() if not path.endswith(".json")]
    assert all(f"{root}/{path}" in planned.out for path in written if "enabled" not in path)
    assert setup(*words).status == 0
    assert contents(root) == made

    assert setup(*words, "--remove").err == ""
    assert contents(root) == before
    assert "nothing to remove" in setup(*words, "--remove").out


def test_the_configuration_of_all_servers_together_is_valid(root: Path) -> None:
    for name in SERVERS:
        assert setup(name, "web", "--dns", "www.example.test", "--root", str(root)).status == 0
    for fragment in (root / "etc/certwright/conf.d").iterdir():
        fragment.write_text(fragment.read_text().replace(" /etc/", f" {root}/etc/"))
    checked = CliRunner().invoke(program, ["config", "check", str(root / "etc/certwright/certwright.yaml")])
    assert (checked.exit_code, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("etc/nginx/snippets/certwright-web.conf", "# mine\n", "was not written by setup"),
        (
            "etc/systemd/system/certwright.service.d/50-nginx.conf",
            None,
            "was changed after setup had written it",
        ),
        ("etc/certwright/conf.d/50-nginx.yaml", None, CHANGED),
        ("etc/nginx/tls", "", "is not a directory"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_changes(
    path: str, content: str | None, reason: str, root: Path
) -> None:
    place = root / path
    if content is None:
        assert setup(*NGINX, str(root)).status == 0
        place.write_text(place.read_text() + "# a change\n")
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    before = contents(root)
    for extra in ((), ("--dry-run",)):
        refused = setup(*NGINX, str(root), *extra)
        assert refused.status == 1
        assert f"{place} {reason}" in refused.err.replace("exists and ", "")
        assert contents(root) == before
    assert "stays, because it was changed" in setup(*NGINX, str(root), "--remove").err or content is not None
    assert place.exists()


def test_an_interrupted_set_up_is_completed_or_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(root)
    assert setup(*NGINX, str(root)).status == 0
    whole = contents(root)
    assert setup(*NGINX, str(root), "--remove").status == 0
    for last in range(1, 30, 4):
        calls = 0

        def fail(path: Path, content: bytes, *, mode: int = 0o600, last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls == last:
                raise OSError(28, "No space left on device", str(path))
            write_atomically(path, content, mode=mode)

        monkeypatch.setattr("certwright.cli.setup.plan.write_atomically", fail)
        failed = setup(*NGINX, str(root))
        monkeypatch.undo()
        if failed.status == 0:
            break
        assert "No space left on device; what was made so far is recorded" in failed.err
        if last % 8 == 1:
            assert setup(*NGINX, str(root)).status == 0
            assert contents(root) == whole
        assert setup(*NGINX, str(root), "--remove").status == 0
        assert contents(root) == before
    assert last > 5


def test_the_unit_is_that_of_the_package(root: Path) -> None:
    unit = (root / "etc/systemd/system/certwright.service").read_text()
    packaged = (Path(__file__).parents[2] / "deploy/systemd/certwright.service").read_text()
    packaged = packaged.replace("/usr/bin/env certwright", "/usr/bin/certwright")
    assert unit[unit.index("[Unit]") :] == packaged[packaged.index("[Unit]") :]


def test_wrong_use_is_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ("--root", str(root))
    (root / "etc/caddy").rmdir()
    assert setup("postgresql", "a", "--dns", "a.test", *place).status == 0
    for words, text in (
        (("caddy", "web", *place), "Caddy is not installed"),
        (("postgresql", "b", *place), "presents a already"),
        (("service", "--remove", *place), "postgresql would lose the service"),
        (("nginx", "web", "--address", ":443"), "--address needs a host"),
        (("nginx", "web", "--dns", "no name"), "neither a DNS name nor an IP address"),
        (("ngnix", "web"), "there is no command"),
    ):
        assert text in setup(*words).err
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "only root may run it" in setup("service").err


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with the stand-in for systemd."""
    with own_machine(tmp_path) as machine:
        machine.start_systemd()
        yield machine


def test_two_commands_lead_from_an_installed_program_to_nginx_with_a_certificate(machine: Machine) -> None:
    machine.run("systemctl start nginx")
    began = time.monotonic()
    machine.run(SERVICE)
    said = machine.run("certwright setup nginx web --dns www.example.test")
    assert time.monotonic() - began < WITHIN_S
    assert "www.example.test@127.0.0.1:443 presents default/web, valid until" in said
    deployed = (
        "certwright get delivery web-nginx -o jsonpath='{.status.conditions[?(@.type==\"Deployed\")].status}'"
    )
    assert machine.run(deployed).strip() == "True"
    assert "certwright runs" in machine.run(SERVICE)
    assert "write" not in machine.run("certwright setup nginx web")
    planned = machine.run("certwright setup nginx web --dry-run")
    assert "done already" in planned
    assert "reload" not in planned
    # A second one by hand, and what is left of it, are told apart from the service.
    assert "is a service already" in machine.run("cd /tmp && certwright serve", status=1)
    machine.run("cd /tmp && certwright create ca x --dry-run > x.yaml && certwright run x.yaml --once")
    left = machine.run("cd /tmp && certwright status web", status=1)
    assert "that of the service on this machine is --kubeconfig /var/lib/certwright/kubeconfig" in left
    # A renewal reaches nginx by the rule of polkit; the service's user may reload nothing else.
    machine.run("certwright renew web")
    eventually(machine, "certwright setup nginx web", "presents default/web")
    denied = machine.run(
        "setpriv --reuid=certwright --regid=certwright --clear-groups systemctl stop nginx", status=1
    )
    assert "authentication required" in denied
    findings = {finding["check"]: finding["state"] for finding in doctor(machine, status=0)}
    assert findings.keys() >= {"configuration", "service", "directories", "hooks", "ports", "disk", "issuers"}
    assert "problem" not in findings.values()
    machine.run("certwright setup nginx web --remove && certwright setup service --remove")
    assert (
        machine.run("ls /etc/nginx/conf.d /etc/systemd/system/certwright* /etc/certwright 2>/dev/null; true")
        == ""
    )


def test_without_systemd_a_server_that_starts_is_awaited_and_reads_its_files_again(tmp_path: Path) -> None:
    command = "certwright setup nginx web --dns www.example.test"
    with own_machine(tmp_path) as machine:
        machine.run("nginx")
        started = machine.run(SERVICE).partition("start certwright yourself: ")[2].strip()
        before = machine.run("ls -R /etc/nginx /etc/certwright")
        refused = machine.run(command, status=1)
        assert "certwright does not run; start it" in refused
        assert "Nothing was changed" in refused
        assert machine.run("ls -R /etc/nginx /etc/certwright") == before
        machine.run(f"({started} > /tmp/log 2>&1 &)")
        said = machine.run(f"{command} || true")
        assert "www.example.test@127.0.0.1:443 presents default/web" in said
        assert "SIGHUP" in machine.run("cat /tmp/log")
        assert "certwright runs" in machine.run("certwright doctor || true")


def doctor(machine: Machine, *, status: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(machine.run("certwright doctor -o json", status=status))
    return found


BROKEN = {
    "echo 'kubeconfg: a' > /etc/certwright/conf.d/60-typo.yaml": "there is no key `kubeconfg`",
    "rm /etc/polkit-1/rules.d/*certwright*": "no rule of polkit lets certwright reload nginx",
    "rm /etc/systemd/system/certwright.service.d/50-nginx.conf": "the unit may not write /etc/nginx/tls",
    "chown root /etc/nginx/tls": "/etc/nginx/tls belongs to root, not to certwright",
    "chmod 755 /var/lib/certwright": "has keys, and other users may enter it",
    "echo '# mine' >> /etc/certwright/conf.d/50-nginx.yaml": "50-nginx.yaml was changed",
    "certwright create ca -n default broken; certwright delete secret broken-ca": "",
    "systemctl stop certwright": "certwright does not run",
}


def test_the_doctor_finds_each_fault_and_names_its_fix(machine: Machine) -> None:
    problem, clock = machine.run("certwright doctor", status=1).splitlines()
    assert problem.startswith(
        "problem  service: no service is set up on this machine; `sudo certwright setup"
    )
    assert "clock: it is 20" in clock
    machine.run(f"systemctl start nginx && {SERVICE} && certwright setup nginx web --dns www.example.test")
    expected = []
    for fault, text in BROKEN.items():
        machine.run(fault)
        expected.append(text)
    hidden = "chmod 0700 /var/lib/certwright; setpriv --reuid=daemon --clear-groups certwright doctor"
    assert "sees nothing of the service; run `sudo certwright doctor`\n" in machine.run(hidden, status=1)
    machine.run("chmod 0755 /var/lib/certwright")
    said = machine.run("certwright doctor", status=1)
    assert [text for text in expected if text not in said] == []


HAPROXY = """frontend https
    bind 127.0.0.1:443 ssl crt /etc/haproxy/tls/site/all.pem
    http-request return status 200
"""


def test_a_database_a_proxy_and_a_mail_server_present_their_certificates(machine: Machine) -> None:
    for tool in ("pg_ctlcluster", "haproxy", "dovecot"):
        require(tool)
    machine.run("mkdir -p /run/postgresql /run/haproxy /run/dovecot; chown postgres /run/postgresql")
    machine.run(f"systemctl start postgresql && systemctl start dovecot && {SERVICE}")
    said = machine.run("certwright setup postgresql db --dns db.example.test")
    assert "postgres://db.example.test@127.0.0.1:5432 presents default/db" in said
    assert machine.run("stat -L -c '%a %U' /etc/postgresql/tls/db/tls.key") == "600 postgres\n"
    said = machine.run("certwright setup dovecot mail --dns mail.example.test")
    assert "imap://mail.example.test@127.0.0.1:143 presents default/mail" in said
    said = machine.run("certwright setup haproxy site --dns shop.example.test")
    assert "bind :443 ssl crt /etc/haproxy/tls/site/all.pem" in said
    assert "does not use default/site yet" in said
    machine.run(f"cat >> /etc/haproxy/haproxy.cfg <<'END'\n{HAPROXY}END\nsystemctl restart haproxy")
    assert "@127.0.0.1:443 presents default/site" in machine.run("certwright setup haproxy site")


def eventually(machine: Machine, script: str, text: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while text not in machine.run(f"{script}; true"):
        assert time.monotonic() < deadline, script
        time.sleep(0.2)
