"""A client that has an event also has those of earlier writes, on whichever watch they come."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from certwright.kube.client.kubeconfig import load
from conformance.daemon import running_daemon

_TESTS: Final = Path(__file__).parents[1]
_WRITERS: Final = 8
_NAME: Final = re.compile(rb"pair-[0-9]{5}")
_LONGEST_WAIT_S: Final = 60.0
_PARTIAL: Final = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_SELECTED: Final = "&labelSelector=controller.cert-manager.io%2Ffao%3Dtrue"
FORMS: Final = {
    "json": ("application/json", ""),
    "json, selected": ("application/json", _SELECTED),
    "metadata": (f"application/json;{_PARTIAL}", ""),
    "metadata as protobuf, selected": (f"application/vnd.kubernetes.protobuf;{_PARTIAL}", _SELECTED),
    "protobuf": ("application/vnd.kubernetes.protobuf", ""),
    "protobuf, selected": ("application/vnd.kubernetes.protobuf", _SELECTED),
}
"""The watches of Secrets: what each accepts, and its selector."""
_SECRETS: Final = "/api/v1/namespaces/default/secrets"
_CERTIFICATES: Final = "/apis/cert-manager.io/v1/namespaces/default/certificates"


@dataclass(frozen=True, slots=True)
class Subject:
    """A server, and the token of a user who may do everything."""

    url: str
    token: str

    def connect(self) -> http.client.HTTPSConnection:
        """A connection of its own."""
        place = urlsplit(self.url)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        assert place.hostname is not None
        return http.client.HTTPSConnection(place.hostname, place.port, context=context)

    def headers(self, content_type: str = "application/json") -> dict[str, str]:
        return {"content-type": content_type, "authorization": f"Bearer {self.token}"}


def out_of_order(subject: Subject, pairs: int) -> dict[str, int]:
    """Write the pairs; how many of them were out of order on each watch.

    One more is written before anything is watched, so that no first use is measured.
    """
    with closing(_Api(subject)) as first:
        _write_pair(first, pairs, _create_certificate(first, pairs))
    certificates = _in_parallel(subject, pairs, _create_certificate)
    observer = subprocess.Popen(
        [sys.executable, "-m", "conformance.test_event_order"],
        cwd=_TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert observer.stdin is not None
        assert observer.stdout is not None
        print(json.dumps({"subject": asdict(subject), "pairs": pairs}), file=observer.stdin, flush=True)
        assert observer.stdout.readline() == "watching\n"
        _in_parallel(subject, pairs, lambda api, number: _write_pair(api, number, certificates[number]))
        result: dict[str, int] = json.loads(observer.stdout.readline())
        return result
    finally:
        observer.kill()
        observer.communicate()


class _Api:
    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._connection = subject.connect()

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, self.subject.headers(content_type))
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status < 300, (response.status, answer[:500])
        return json.loads(answer)


def _in_parallel(subject: Subject, count: int, work: Callable[[_Api, int], Any]) -> list[Any]:
    local = threading.local()
    with ExitStack() as connections:

        def run(number: int) -> Any:
            if not hasattr(local, "api"):
                local.api = connections.enter_context(closing(_Api(subject)))
            return work(local.api, number)

        with ThreadPoolExecutor(_WRITERS) as pool:
            return list(pool.map(run, range(count)))


def _create_certificate(api: _Api, number: int) -> Any:
    body = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": f"pair-{number:05}"},
        "spec": {"secretName": f"s-{number}", "dnsNames": ["a.example.com"], "issuerRef": {"name": "ca"}},
    }
    return api.send("POST", _CERTIFICATES, body)


def _write_pair(api: _Api, number: int, certificate: dict[str, Any]) -> None:
    name = f"pair-{number:05}"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {"controller.cert-manager.io/fao": "true"}},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(b"x" * 1200).decode() for key in ("tls.crt", "tls.key", "ca.crt")},
    }
    if number % 2:
        api.send("POST", _SECRETS, secret)
    else:
        query = "fieldManager=issuing&force=true"
        api.send("PATCH", f"{_SECRETS}/{name}?{query}", secret, "application/apply-patch+yaml")
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date"}
    ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    changed = certificate | {"status": {"revision": 1, "conditions": [ready]}}
    api.send("PUT", f"{_CERTIFICATES}/{name}/status", changed)


class _Watch:
    """One watch on its own connection, and the names in what it has received."""

    def __init__(self, subject: Subject, collection: str, accept: str, selector: str) -> None:
        query = f"resourceVersion={_revision(subject, collection)}{selector}"
        connection = subject.connect()
        connection.request(
            "GET", f"{collection}?watch=true&{query}", headers=subject.headers() | {"accept": accept}
        )
        # Not the response's own reader, which waits for whole chunks: names are looked for in raw bytes.
        self._socket = connection.sock
        self._connection = connection
        self._rest = b""
        self.names: set[bytes] = set()

    def receive(self, *, wait: bool) -> None:
        """Read what has arrived; with `wait`, at least something."""
        self._socket.settimeout(_LONGEST_WAIT_S if wait else 0.0)
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except ssl.SSLWantReadError:
                return
            assert data, "the watch ended"
            self.names.update(_NAME.findall(self._rest + data))
            self._rest = data[-10:]
            self._socket.settimeout(0.0)


def _revision(subject: Subject, collection: str) -> str:
    with closing(_Api(subject)) as api:
        revision: str = api.send("GET", f"{collection}?limit=1")["metadata"]["resourceVersion"]
    return revision


def observe(subject: Subject, pairs: int) -> dict[str, int]:
    """Watch until the events of all pairs have arrived; how many were out of order on each watch."""
    effects = _Watch(subject, _CERTIFICATES, "application/json", "")
    causes = {form: _Watch(subject, _SECRETS, *how) for form, how in FORMS.items()}
    print("watching", flush=True)
    late = dict.fromkeys(causes, 0)
    judged: set[bytes] = set()
    while len(judged) < pairs:
        effects.receive(wait=True)
        for form, watch in causes.items():
            watch.receive(wait=False)
            late[form] += len(effects.names - judged - watch.names)
        judged |= effects.names
    return late


def main() -> None:
    """Be the observer of the pairs that standard input describes."""
    task = json.loads(sys.stdin.readline())
    print(json.dumps(observe(Subject(**task["subject"]), task["pairs"])), flush=True)


if __name__ == "__main__":
    main()


PAIRS = 2000 if "CERTWRIGHT_SOAK" in os.environ else 150


def test_an_event_never_arrives_before_those_of_earlier_writes_on_other_watches(tmp_path: Path) -> None:
    """On SQLite, with encrypted Secrets, reached as by other programs."""
    with running_daemon(tmp_path, "--controllers", "") as daemon:
        subject = Subject(daemon.url, load(daemon.kubeconfig).token)
        assert out_of_order(subject, PAIRS) == dict.fromkeys(FORMS, 0)
