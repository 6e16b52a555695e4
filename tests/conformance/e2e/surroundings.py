"""What the end-to-end tests need about them: certwright, an ACME server and a name server, on loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.bind import running_bind
from support.go import GATEWAY_API, folder_of
from support.pebble import running_pebble
from support.programs import free_port, running, wait_for
from support.real import require

_NAMESPACE = "cert-manager"
# What these open is always there, or made so by a flag of `serve`: cases that need them are run.
_GATES = (
    "LiteralCertificateSubject",
    "AdditionalCertificateOutputFormats",
    "ServerSideApply",
    "ExperimentalCertificateSigningRequestControllers",
    "ExperimentalGatewayAPISupport",
)
_SIGNING_REQUESTS = (
    "certificatesigningrequests-issuer-ca",
    "certificatesigningrequests-issuer-selfsigned",
)
# Of several profiles Pebble would pick one at random. The blocked name is that of cert-manager's own set-up.
_PROFILES = {"default": {"description": "90 days", "validityPeriod": 7776000}}
_BLOCKED = ["google.com"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A server that the tests may use; `flags` tell them where everything is."""

    kubeconfig: Path
    flags: tuple[str, ...]


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[Surroundings]:
    """Start all; data and logs lie in `folder`. Raises `RuntimeError` when certwright does not come up."""
    http_port = free_port()
    with (
        # The tests update zones without TSIG.
        running_bind(("example.com",), signed=False) as names,
        running_pebble(
            names=names.address, http_port=http_port, profiles=_PROFILES, domainBlocklist=_BLOCKED
        ) as pebble,
        _certwright(folder, http_port, names.address) as kubeconfig,
    ):
        yield Surroundings(
            kubeconfig,
            (
                f"--kubernetes-config={kubeconfig}",
                f"--kubectl-path={require('kubectl')}",
                f"--repo-root={folder}",
                f"--cluster-resource-namespace={_NAMESPACE}",
                f"--feature-gates={','.join(f'{gate}=true' for gate in _GATES)}",
                f"--acme-server-url={pebble.directory}",
                f"--acme-dns-server={names.address}",
                "--acme-ingress-ip=127.0.0.1",
                "--ingress-controller-domain=http01.example.com",
                "--gateway-domain=http01.example.com",
            ),
        )


@contextlib.contextmanager
def _certwright(folder: Path, http_port: int, names: str) -> Iterator[Path]:
    """`certwright serve`; the path of its kubeconfig."""
    flags = [
        *("--data-dir", str(folder / "data"), "--listen", "127.0.0.1:0"),
        *("--cluster-resource-namespace", _NAMESPACE),
        *("--controllers", ",".join(("*", *_SIGNING_REQUESTS))),
        *("--http01-listen", f"127.0.0.1:{http_port}", "--http01-check-port", str(http_port)),
        *("--acme-http01-solver-nameservers", names),
        # Some cases name http:// servers that do not exist.
        "--allow-http-servers",
        *("--dns01-recursive-nameservers", names, "--dns01-recursive-nameservers-only", "true"),
    ]
    log, kubeconfig = folder / "certwright.log", folder / "data" / "kubeconfig"
    with running([sys.executable, "-m", "certwright", "serve", *flags], log) as process:
        wait_for(lambda: "certwright is ready" in log.read_text(), process, log, what="become ready")
        _kubectl(kubeconfig, "create", "namespace", _NAMESPACE)
        definitions = folder_of(GATEWAY_API) / "config" / "crd" / "standard"
        _kubectl(kubeconfig, "apply", "--server-side", "-f", str(definitions))
        yield kubeconfig


def _kubectl(kubeconfig: Path, *arguments: str) -> None:
    subprocess.run(
        [require("kubectl"), *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        check=True,
        capture_output=True,
    )
