"""Token controller: Secrets of ServiceAccounts get their token, and are deleted with the account.

The controller adds a token, the CA of the server and the namespace to each Secret of type
`kubernetes.io/service-account-token` that names a ServiceAccount, and restores removed entries. It deletes a
Secret whose account is missing, or is another one of that name.

Source: Kubernetes documentation, "Managing Service Accounts" (token controller); kube-controller-manager's
`pkg/controller/serviceaccount/tokens_controller.go`.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

import msgspec

from certwright.kube.api.errors import from_response
from certwright.kube.apiserver.auth import service_accounts
from certwright.kube.apiserver.auth.service_accounts import (
    ACCOUNT_UID,
    ACCOUNTS,
    NAMESPACE,
    ROOT_CA,
    SECRETS,
    TOKEN,
)
from certwright.kube.apiserver.auth.tokens import TokenIssuer
from certwright.kube.apiserver.background.worker import OwnClient, Worker
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.core_strategies import ACCOUNT_NAME
from certwright.kube.apiserver.model.backend import Backend, is_terminating
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import JSON
from certwright.kube.apiserver.model.objects import uid_of
from certwright.kube.apiserver.requests.patch import MERGE
from certwright.kube.store.contract import DamagedRow, Key, Row
from certwright.kube.util.decoders import json_decoder


class _Named(NamedTuple):
    """A Secret, and the ServiceAccount that it names or named."""

    secret: Key
    account: Key


class _References(msgspec.Struct):
    secrets: list[Json] | None = None


_references = json_decoder(_References).decode


class TokenSecrets:
    """Maintains token Secrets in the background. An observer of writes.

    `issuer` signs the tokens; `root_ca` is PEM, empty: none is added.
    """

    observed_buckets = (SECRETS, ACCOUNTS)

    def __init__(self, backend: Backend, client: OwnClient, issuer: TokenIssuer, root_ca: str) -> None:
        self._backend = backend
        self._client = client
        self._issuer = issuer
        self.use_root_ca(root_ca)
        self._naming: dict[Key, set[Key]] = {}  # by ServiceAccount: the Secrets that name it
        # A refusal may be for good: the Secret may be immutable.
        self.worker = Worker(backend, "tokens in Secrets", self._process, gives_up=True)

    def use_root_ca(self, pem: str) -> None:
        """Add this CA to Secrets from now on."""
        self._root_ca = base64.b64encode(pem.encode()).decode()

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Enqueue a Secret that names an account, and the Secrets that name a new account."""
        if definition.bucket == SECRETS:
            self.enqueue(row)
        elif previous is None:
            self._enqueue_secrets(row.key)

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Enqueue the Secrets of a deleted account, and an account that may list a deleted Secret."""
        if definition.bucket != SECRETS:
            self._enqueue_secrets(row.key)
        elif service_accounts.account_of(row) and service_accounts.entries(row) is not None:
            self.enqueue(row)

    def enqueue(self, row: Row) -> None:
        """Enqueue a Secret, which may be given without its body. Other objects are ignored."""
        if row.key.bucket == SECRETS and (name := service_accounts.account_of(row)):
            account = Key(ACCOUNTS, row.key.namespace, name)
            self._naming.setdefault(account, set()).add(row.key)
            self.worker.add(_Named(row.key, account))

    def _enqueue_secrets(self, account: Key) -> None:
        for secret in self._naming.get(account, ()):
            self.worker.add(_Named(secret, account))

    async def _process(self, named: _Named) -> None:
        try:
            secret = await self._backend.store.get(named.secret)
            account = await self._backend.store.get(named.account)
        except DamagedRow:
            self._leave(named)
            return
        if secret is None:
            self._leave(named)
            listed = _references(b"{%b}" % account.body).secrets or [] if account is not None else []
            left = [reference for reference in listed if reference.get("name") != named.secret.name]
            if account is not None and len(left) < len(listed):
                # The account's list must not name a deleted Secret.
                await self._send("PATCH", named, account, {"metadata": _of_version(account), "secrets": left})
            return
        stored = service_accounts.entries(secret)
        if stored is None or service_accounts.account_of(secret) != named.account.name:
            self._leave(named)
        elif not is_terminating(secret):
            # Add the missing entries to the Secret, or delete it.
            uid = service_accounts.annotations_of(secret).get(ACCOUNT_UID)
            if account is None or (uid and uid != uid_of(account.meta)):
                await self._send("DELETE", named, secret, {"preconditions": {"uid": uid_of(secret.meta)}})
                return
            # The entries that it should have and lacks, in base64.
            missing = {}
            if self._root_ca and stored.get(ROOT_CA) != self._root_ca:
                missing[ROOT_CA] = self._root_ca
            if not stored.get(NAMESPACE):
                missing[NAMESPACE] = base64.b64encode(secret.key.namespace.encode()).decode()
            if not stored.get(TOKEN):
                token = self._issuer.sign(service_accounts.secret_claims(account, secret.key.name))
                missing[TOKEN] = base64.b64encode(token.encode()).decode()
            if missing or not uid:
                notes = {ACCOUNT_NAME: account.key.name, ACCOUNT_UID: uid_of(account.meta)}
                change = {"metadata": _of_version(secret, annotations=notes), "data": missing}
                await self._send("PATCH", named, secret, change)

    def _leave(self, named: _Named) -> None:
        others = self._naming.get(named.account, set())
        others.discard(named.secret)
        if not others:
            self._naming.pop(named.account, None)

    async def _send(self, method: str, named: _Named, row: Row, body: Json) -> None:
        """Change or delete the object of `row`. Raises `ApiError` when the server refuses."""
        bucket, namespace, name = row.key
        path = f"/api/v1/namespaces/{namespace}/{bucket}/{name}"
        answer = await self._client.send(method, path, body, media=MERGE if method == "PATCH" else JSON)
        if answer.status == 409:
            # Another writer was faster: the Secret may be right already.
            self.worker.add(named)
        elif answer.status >= 400 and answer.status != 404:
            raise from_response(answer.status, answer.body)


def _of_version(row: Row, **members: Json) -> Json:
    """The metadata that limits a change to this state of the object."""
    return {"uid": uid_of(row.meta), "resourceVersion": str(row.revision), **members}
