"""Every command works, as users call it: against a real `certwright serve`, and `run` as it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from certwright.cli.main import COMMANDS
from cli.calls import PATIENT, Cli

pytestmark = pytest.mark.smoke
ROOT = Path(__file__).parents[2]
CONFIG_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}"
# Of each command: the words, its exit status, and what it prints among other things.
CALLS = """
version                                                      | 0 | certwright
help get                                                     | 0 | Usage: certwright get
completion bash                                              | 0 | _CERTWRIGHT_COMPLETE
crds                                                         | 0 | kind: CustomResourceDefinition
diff -f c.yaml -n NS                                         | 1 | +  a: b
apply -f c.yaml -n NS                                        | 0 | configmap/c created
edit cm c -n NS                                              | 0 | not changed
create ca internal -n NS                                     | 0 | issuer.cert-manager.io/internal created
create certificate web --dns a.test --issuer internal -n NS  | 0 | certificate.cert-manager.io/web created
wait cert/web --for=condition=Ready -n NS                    | 0 | condition met
get certificates -n NS                                       | 0 | web-tls
describe certificate web -n NS                               | 0 | a.test
events -n NS                                                 | 0 | Issuing
explain certificate.spec.dnsNames                            | 0 | dnsNames
status web -n NS                                             | 0 | ready, valid until
inspect web-tls -n NS                                        | 0 | a.test
expiring -n NS                                               | 0 | web
renew web -n NS                                              | 0 | web
approve none -n NS                                           | 1 | not found
deny none -n NS                                              | 1 | not found
revoke web -n NS                                             | 1 | ACME
check api                                                    | 0 | the API is ready
limits                                                       | 0 | no
report -n NS                                                 | 0 | certificates are valid
dashboard --print                                            | 0 | /ui/login?code=
trust show issuer/internal -n NS                             | 0 | SHA-256
export web --to tls -n NS                                    | 0 | tls.key
import ca --cert none --key none --name x -n NS              | 1 | none does not exist
user create alice --role view --kubeconfig alice             | 0 | alice
backup saved --data-dir DATA                                 | 0 | saved
restore saved --data-dir new --encryption-key-file DATA/encryption.key | 0 | restored
encryption status                                            | 0 | fingerprint
setup nginx web --dns a.test --dry-run                       | 0 | 50-nginx.yaml
doctor --config none.yaml -o json                            | 1 | correct --config
config check none.yaml                                       | 1 | none.yaml
controllers --kubeconfig none                                | 1 | does not exist
serve --listen 8443                                          | 2 | is not HOST:PORT
run none.yaml                                                | 1 | none.yaml
delete cm c -n NS                                            | 0 | configmap/c deleted
"""


def test_every_command_works(
    cli: Cli, namespace: str, daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITOR", "true")
    Path("c.yaml").write_text(CONFIG_MAP)
    calls = [[cell.strip() for cell in line.split("|")] for line in CALLS.strip().splitlines()]
    assert {call[0].split()[0] for call in calls} == {
        name for section in COMMANDS.values() for name in section
    }
    for command, status, text in calls:
        words = command.replace("NS", namespace).replace("DATA", str(daemon.parent)).split()
        outcome = cli(*words)
        assert (outcome.status, text in outcome.out + outcome.err) == (int(status), True), (command, outcome)


def test_the_first_steps_of_the_readme_lead_to_certificates(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "certwright"
    quickstart = ROOT / "examples" / "quickstart.yaml"
    done = subprocess.run(
        [program, "run", quickstart, "--once", "--listen", "127.0.0.1:0", "--export", "out", *PATIENT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "default" / "web" / "tls.crt").exists()
