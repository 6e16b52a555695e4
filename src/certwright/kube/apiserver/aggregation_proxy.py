"""Aggregation layer: proxies requests for a group to the Service that its APIService names.

E.g. cert-manager's DNS webhooks are such servers. The user has been authorized here, as for any other
resource, and is named in headers (`X-Remote-User`, …). Servers trust these headers from the bearer of the
front proxy's client certificate only; `trust_settings` is how they know it. Answers are not streamed: no
watches, no upgraded connections. Discovery does not list these groups.

Source: Kubernetes documentation, "Configure the Aggregation Layer"; kube-aggregator
`pkg/apiserver/handler_proxy.go`; client-go `transport/round_trippers.go` (escaped names of extras);
kube-apiserver `pkg/controlplane/controller/clusterauthenticationtrust`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlsplit

import msgspec

from certwright.kube.api.errors import Unavailable
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.definitions import ResourceDefinition, WebhookTarget
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.webhooks.client import CallFailed, WebhookClient
from certwright.kube.apiserver.webhooks.config import target_of
from certwright.kube.store.contract import Row
from certwright.kube.util.http_messages import Identity, Request, Response

_GROUP, _PLURAL = "apiregistration.k8s.io", "apiservices"
_BUCKET = f"{_GROUP}/{_PLURAL}"
_TIMEOUT_S = 60
_PASSED_ON = ("accept", "content-type", "user-agent")
_PASSED_BACK = ("content-type", "retry-after", "warning")
_LEGAL = "!#$&'*+-.^_`|~"
"""Characters of names of header fields beside letters and digits (RFC 9110 §5.6.2); "%" escapes."""
CLIENT_NAME = "front-proxy-client"
"""The common name of the proxy's client certificate: that of kubeadm."""
USER, UID, GROUP, EXTRA = "X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-"


class FrontProxy(msgspec.Struct, frozen=True):
    """The proxy's client certificate with its key, and their CA (PEM)."""

    pair_pem: bytes
    ca_pem: bytes


def trust_settings(proxy: FrontProxy, client_ca: str) -> Mapping[str, str]:
    """The data of the ConfigMap `extension-apiserver-authentication`, by which aggregated servers know the
    proxy. `client_ca`: the CAs of this server's clients (PEM)."""
    lists = {
        "allowed-names": CLIENT_NAME,
        "username-headers": USER,
        "uid-headers": UID,
        "group-headers": GROUP,
        "extra-headers-prefix": EXTRA,
    }
    return {
        "client-ca-file": client_ca,
        "requestheader-client-ca-file": proxy.ca_pem.decode(),
        **{f"requestheader-{name}": encode_json([value]).decode() for name, value in lists.items()},
    }


class AggregationProxy:
    """The APIServices that name a Service. An observer of writes."""

    observed_buckets = (_BUCKET,)

    def __init__(self, client: WebhookClient) -> None:
        self._client = client
        self._targets: dict[str, WebhookTarget] = {}
        self.pair_pem = b""
        """The proxy's client certificate and its key (PEM); empty: none is presented."""

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Record a committed APIService."""
        spec: Json = objects.to_object(definition, row)["spec"]
        if spec.get("service"):
            self._targets[row.key.name] = target_of(spec)
        else:
            self._targets.pop(row.key.name, None)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Forget a deleted APIService."""
        self._targets.pop(row.key.name, None)

    async def ask(self, request: Request, user: Identity, group: str, version: str) -> Response | None:
        """The proxied answer; None where no APIService names a server for that group and version.

        Raises `Unavailable`.
        """
        target = self._targets.get(f"{version}.{group}")
        if target is None:
            return None
        headers = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
        try:
            answer = await self._client.send(
                target,
                request.method,
                f"https://{urlsplit(target.url).netloc}{request.target}",
                headers=[*headers, *_names(user)],
                body=request.body,
                pair_pem=self.pair_pem,
                timeout_s=_TIMEOUT_S,
            )
        except CallFailed as error:
            raise Unavailable(f"error trying to reach service: {error}") from error
        kept = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return Response(answer.status, kept, answer.body)


def _names(user: Identity) -> Iterator[tuple[str, str]]:
    """The user, in the headers of an authenticating proxy."""
    yield USER, user.name
    if user.uid:
        yield UID, user.uid
    for group in user.groups:
        yield GROUP, group
    for key, values in user.extra.items():
        for value in values:
            yield EXTRA + quote(key, safe=_LEGAL), value
