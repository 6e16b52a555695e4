"""Access to the servers of issuers: HTTPS clients of this process, and tokens of ServiceAccounts."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from certwright.issuers.contract import ServerTools
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import whole_body
from certwright.kube.util.tasks import TaskSet
from certwright.resources.operator_policy import OperatorPolicy

if TYPE_CHECKING:
    from certwright.kit.https import HttpsClient

_MOST_CLIENTS: Final = 256
_TOKEN_S: Final = 600
"""Lifetime of a requested token: the shortest that Kubernetes grants; it is used at once."""


class Servers:
    """HTTPS clients by their TLS configuration, made when needed.

    Tokens are requested with `client`, whose user needs the right to `create` `serviceaccounts/token`.
    Requests go where the operator's `policy` allows.
    """

    def __init__(self, client: Client, *, user_agent: str, policy: OperatorPolicy) -> None:
        self._client = client
        self._user_agent = user_agent
        self._policy = policy
        self._clients: OrderedDict[tuple[ServerTls, str, ServerRules], HttpsClient] = OrderedDict()
        self._closing = TaskSet()

    def tools(self, secrets_in: str) -> ServerTools:
        """The tools of an issuer whose Secrets and ServiceAccounts are in the namespace `secrets_in`."""

        async def get_token(account: str, audiences: Sequence[str]) -> str:
            return await self._token(secrets_in, account, audiences)

        return ServerTools(
            client=self.client,
            get_token=get_token,
            trusted_client=self._trusted_client,
            environment=os.environ,
            allows_ambient=self._policy.allows_ambient,
        )

    def _trusted_client(self, rules: ServerRules) -> HttpClient:
        return self.client(ServerTls(), "add its CA to those of the system", rules)

    async def close(self) -> None:
        """Close the connections."""
        await self._closing.close()
        for client in self._clients.values():
            await client.close()

    def client(self, tls: ServerTls, trust_fix: str, rules: ServerRules | None = None) -> HttpClient:
        """See `ServerTools`. `rules` replace the operator's general rules, for a server that the operator
        names."""
        from certwright.kit.https import HttpsClient  # loads aiohttp: 9 MB, 0.1 s

        rules = rules or self._policy.servers
        key = (tls, trust_fix, rules)
        client = self._clients.get(key)
        if client is None:
            client = HttpsClient(tls, user_agent=self._user_agent, trust_fix=trust_fix, rules=rules)
            self._clients[key] = client
            if len(self._clients) > _MOST_CLIENTS:
                # A session with the evicted client connects again with its next request.
                _, unused = self._clients.popitem(last=False)
                self._closing.start(unused.close(), name="closing of an HTTPS client")
        self._clients.move_to_end(key)
        return client

    async def _token(self, namespace: str, account: str, audiences: Sequence[str]) -> str:
        """A token of the ServiceAccount (API reference, TokenRequest). Raises `ApiError`, `Unreachable`."""
        # The name comes from an object that a tenant may have written: it must not lead to another path.
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{quote(account, safe='')}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": list(audiences), "expirationSeconds": _TOKEN_S},
        }
        headers = {"content-type": "application/json"}
        answer = await self._client.raw("POST", path, body=json.dumps(request).encode(), headers=headers)
        try:
            token = json.loads(await whole_body(answer))["status"]["token"]
        except (ValueError, KeyError, TypeError) as error:
            raise Unreachable("the API server answered a TokenRequest without a token") from error
        return str(token)
