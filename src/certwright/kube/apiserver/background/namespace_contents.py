"""Default contents of every namespace: the ServiceAccount `default`, and the ConfigMap with the root CA; in
`kube-system` also the ConfigMap by which aggregated servers know the proxy of this one.

They are created with the namespace, and again after a deletion.

Source: Kubernetes documentation, "Managing Service Accounts" (ServiceAccount controller);
kube-controller-manager's root CA certificate publisher; kube-apiserver
`pkg/controlplane/controller/clusterauthenticationtrust`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate, load_pem_x509_certificates

from certwright.kube.apiserver.background.worker import Worker
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.backend import NAMESPACES, Backend, is_terminating
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.store.contract import DamagedRow, Key, Row
from certwright.kube.util.http_messages import Handler, Identity, Request

_log = logging.getLogger(__name__)
_ACCOUNTS, _CONFIG_MAPS = "serviceaccounts", "configmaps"
_TOGETHER = 64  # namespaces filled concurrently: their writes share commits
ACCOUNT, ROOT_CA = "default", "kube-root-ca.crt"
_SYSTEM, _TRUST = "kube-system", "extension-apiserver-authentication"
_ABOUT = "kubernetes.io/description"
_TEXT = "The certificates of the CA that signs this API server's own certificate, to check it by."


class NamespaceContents:
    """Maintains the default contents of namespaces. `root_ca` is PEM; empty: no ConfigMap is created."""

    observed_buckets = (NAMESPACES, _ACCOUNTS, _CONFIG_MAPS)

    def __init__(self, backend: Backend, handle: Handler, user: Identity, root_ca: str) -> None:
        self._backend = backend
        self._handle = handle
        self._user = user
        self.root_ca = root_ca
        self._trust: Mapping[str, str] = {}
        self._replaces_trust = False
        self.worker = Worker(backend, "contents of namespaces", self._fill)

    def trust(self, settings: Mapping[str, str]) -> None:
        """Publish `settings` for aggregated servers, in place of what is published."""
        self._trust, self._replaces_trust = settings, True
        self.worker.add(_SYSTEM)

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Fill a new namespace; restore a changed CA."""
        if previous is None:
            if definition.bucket == NAMESPACES:
                self.worker.add(row.key.name)
        elif definition.bucket == _CONFIG_MAPS and self._is_kept(row.key) and row.body != previous.body:
            self.worker.add(row.key.namespace)

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Create deleted contents again."""
        if (definition.bucket, row.key.name) == (_ACCOUNTS, ACCOUNT) or self._is_kept(row.key):
            self.worker.add(row.key.namespace)

    @staticmethod
    def _is_kept(key: Key) -> bool:
        return key.bucket == _CONFIG_MAPS and (
            key.name == ROOT_CA or (key.namespace, key.name) == (_SYSTEM, _TRUST)
        )

    async def fill_all(self) -> None:
        """Check every existing namespace, once, when the server starts."""
        async for rows in self._backend.pages(NAMESPACES, meta_only=True):
            for start in range(0, len(rows), _TOGETHER):
                await asyncio.gather(*(self._fill(row.key.name) for row in rows[start : start + _TOGETHER]))

    async def _fill(self, namespace: str) -> None:
        with suppress(DamagedRow):  # which the store has reported; it is not overwritten
            there = await self._backend.store.latest(Key(NAMESPACES, "", namespace))
            if there is None or is_terminating(there):
                return
            root = f"/api/v1/namespaces/{namespace}"
            if await self._backend.store.latest(Key(_ACCOUNTS, namespace, ACCOUNT)) is None:
                await self._write("POST", f"{root}/{_ACCOUNTS}", {"metadata": {"name": ACCOUNT}})
            if self.root_ca:
                await self._publish(namespace, f"{root}/{_CONFIG_MAPS}")
            if self._trust and namespace == _SYSTEM:
                await self._publish_trust(f"{root}/{_CONFIG_MAPS}")

    async def _publish(self, namespace: str, path: str) -> None:
        data = {"ca.crt": self.root_ca}
        config_map = {"metadata": {"name": ROOT_CA, "annotations": {_ABOUT: _TEXT}}, "data": data}
        row = await self._backend.store.latest(Key(_CONFIG_MAPS, namespace, ROOT_CA))
        if row is None:
            await self._write("POST", path, config_map)
        elif encode_json(data) not in row.body:
            await self._write("PUT", f"{path}/{ROOT_CA}", config_map)

    async def _publish_trust(self, path: str) -> None:
        row = await self._backend.store.latest(Key(_CONFIG_MAPS, _SYSTEM, _TRUST))
        stored = {} if row is None else decode_json(b"{%b}" % row.body).get("data") or {}
        # At its start a server replaces the CAs of before. Servers on one store that have different CAs at
        # the moment keep each other's.
        data = dict(self._trust) if self._replaces_trust else self._with_own(stored)
        config_map = {"metadata": {"name": _TRUST}, "data": data}
        if row is None:
            await self._write("POST", path, config_map)
        elif data != stored:
            await self._write("PUT", f"{path}/{_TRUST}", config_map)
        self._replaces_trust = False

    def _with_own(self, stored: Json) -> Json:
        """The stored settings with this server's own: its CAs are added to those that have not expired."""
        now, data = self._backend.clock.now(), dict(self._trust)
        for name in (name for name in data if name.endswith("ca-file")):
            own, others = _certificates(data[name]), _certificates(stored.get(name, ""))
            if set(own) <= set(others):
                data[name] = stored[name]
                continue
            kept = [certificate for certificate in others if certificate.not_valid_after_utc > now]
            pems = [certificate.public_bytes(Encoding.PEM) for certificate in dict.fromkeys((*kept, *own))]
            data[name] = b"".join(pems).decode()
        return data

    async def _write(self, method: str, path: str, obj: Json) -> None:
        headers = {"user-agent": "kube-controller-manager"}
        response = await self._handle(Request(method, path, headers, encode_json(obj), self._user))
        # The namespace may have been deleted since, or another server may have written first.
        if response.status >= 400 and response.status not in (403, 404, 409):
            _log.warning("%s %s: %s", method, path, response.body.decode(errors="replace"))


def _certificates(pem: str) -> list[Certificate]:
    """The certificates in a text; none if one of them cannot be read."""
    try:
        return load_pem_x509_certificates(pem.encode())
    except ValueError:
        return []
