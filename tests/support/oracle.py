"""The oracle: a Kubernetes API server of the real code base, with an etcd of its own, on loopback.

`apiextensions-apiserver` serves CustomResourceDefinitions and what they define, and nothing else: no
namespaces, no RBAC, no group list. `make oracle` builds it and the etcd; without them tests are skipped.

`running_kubernetes` starts Kubernetes' whole API server, which `make kubernetes` builds in eight minutes: the
peer of the benchmarks, and what `make soak` sends objects of built-in kinds to.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from support.programs import free_port, running, tool, wait_for

# What the reference cannot have: it knows no namespaces, and nobody serves its webhooks or its policies.
_NO_ADMISSION = (
    "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,"
    "MutatingAdmissionPolicy,ValidatingAdmissionPolicy"
)
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{client-certificate: {certificate}, client-key: {certificate}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


@dataclass(frozen=True, slots=True)
class Oracle:
    """A reference server that is running: its address, and how to be its administrator.

    `client_tls` shows a certificate of `ca_path`'s authority for CN=kubernetes-admin, O=system:masters.
    `etcd`: the address of its etcd, which anybody may ask.
    """

    url: str
    client_tls: ssl.SSLContext
    ca_path: Path
    certificate_path: Path
    etcd: str


@contextlib.contextmanager
def running_etcd(folder: Path) -> Iterator[str]:
    """An etcd of one member, empty; the address that clients use."""
    port, peers = free_port(), free_port()
    command = [str(tool("etcd")), str(folder / "etcd"), str(port), str(peers)]
    with running(command, folder / "etcd.log", port):
        yield f"http://127.0.0.1:{port}"


def write_credentials(folder: Path) -> tuple[Path, Path]:
    """The authority's certificate, and one file with the administrator's certificate and key."""
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    # Go refuses trustme's critical extension for alternative names when it is empty, hence one name.
    client = ca.issue_cert(
        "admin.test",
        common_name="kubernetes-admin",
        organization_name="system:masters",
        key_type=trustme.KeyType.ECDSA,
    )
    ca_path, certificate_path = folder / "ca.crt", folder / "admin.pem"
    ca.cert_pem.write_to_path(ca_path)
    client.private_key_and_cert_chain_pem.write_to_path(certificate_path)
    return ca_path, certificate_path


def client_context(certificate: Path) -> ssl.SSLContext:
    """TLS for a client that shows `certificate` and trusts whoever answers on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate)
    return context


@contextlib.contextmanager
def running_oracle(
    *, kubeconfig: Path | None = None, disabled: str = _NO_ADMISSION, flags: Sequence[str] = ()
) -> Iterator[Oracle]:
    """The reference server over an empty etcd; both end with the block.

    It asks itself, or the server of `kubeconfig`, for policies, namespaces and permission; `disabled` are the
    admission plug-ins that it then cannot have.
    """
    server = tool("apiextensions-apiserver")
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        folder = Path(name)
        ca_path, certificate_path = write_credentials(folder)
        with running_etcd(folder) as etcd:
            port = free_port()
            kubeconfig = kubeconfig or write_kubeconfig(folder, port, certificate_path)
            command = [
                str(server),
                f"--etcd-servers={etcd}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                f"--client-ca-file={ca_path}",
                f"--cert-dir={folder}",
                "--authentication-skip-lookup",
                "--enable-priority-and-fairness=false",
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--disable-admission-plugins={disabled}",
                *flags,
            ]
            with running(command, folder / "server.log", port):
                tls = client_context(certificate_path)
                yield Oracle(f"https://127.0.0.1:{port}", tls, ca_path, certificate_path, etcd)


def write_kubeconfig(folder: Path, port: int, certificate: Path) -> Path:
    """With which the reference server asks itself."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(_KUBECONFIG.format(port=port, certificate=certificate))
    return kubeconfig


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """A kube-apiserver that is running, and its administrator's kubeconfig."""

    pid: int
    url: str
    kubeconfig: Path


@contextlib.contextmanager
def running_kubernetes(folder: Path, etcd: str) -> Iterator[Kubernetes]:
    """Kubernetes' API server over that etcd (an address); its files are in `folder`.

    Priority and fairness, RBAC and the default admission plug-ins are on, as in a cluster; only the plug-in
    that mounts ServiceAccount tokens into Pods is off.
    """
    server = tool("kube-apiserver", made_by="kubernetes")
    ca_path, certificate_path = write_credentials(folder)
    signer = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    )
    key_path, port, log = folder / "service-accounts.key", free_port(), folder / "kube-apiserver.log"
    key_path.write_bytes(signer)
    command = [
        str(server),
        f"--etcd-servers={etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder}",
        f"--client-ca-file={ca_path}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={key_path}",
        f"--service-account-signing-key-file={key_path}",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--disable-admission-plugins=ServiceAccount",
    ]
    url, tls = f"https://127.0.0.1:{port}", client_context(certificate_path)

    def is_ready() -> bool:
        # The namespaces are created some time after the server is ready.
        paths = ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system")
        with contextlib.suppress(OSError):
            for path in paths:
                urllib.request.urlopen(url + path, context=tls, timeout=5).close()  # noqa: S310
            return True
        return False

    with running(command, log) as process:
        wait_for(is_ready, process, log, what="become ready")
        yield Kubernetes(process.pid, url, write_kubeconfig(folder, port, certificate_path))
