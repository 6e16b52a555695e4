"""Tokens for Azure's resource manager: of a service principal, a federated workload, or a managed identity.

Source: Microsoft identity platform, "OAuth 2.0 client credentials flow"; "How managed identities work".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from certwright.acme.solvers.dns01.hosts.api import Endpoint, HostApi
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from certwright.acme.solvers.dns01.hosts.tokens import AccessToken
from certwright.kit.outgoing import HttpAnswer, ServerRules
from certwright.kube.util.decoders import UNDECODABLE, json_decoder

METADATA: Final = Endpoint("http://169.254.169.254", ServerRules(allow_http=True))
"""The instance metadata service, a link-local address of each machine in Azure."""
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class _Token(msgspec.Struct):
    access_token: str
    # The metadata service writes the number as a string.
    expires_in: int | str = 3600


class _Failure(msgspec.Struct):
    error: str = ""
    error_description: str = ""


class AzureLogin(Protocol):
    """A way to get a token. A frozen dataclass; see `HostSettings`."""

    async def fetch(self, outside: Outside) -> AccessToken:
        """Request a token. Raises `SolverError`."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrincipal:
    """A client with a `secret`, or with the `assertion` of a federated identity (a ServiceAccount's token).

    `authority` is the identity service of the cloud, `resource` the URL of its resource manager.
    """

    authority: Endpoint
    tenant: str
    client_id: str
    resource: str
    secret: str = field(default="", repr=False)
    assertion: str = field(default="", repr=False)

    async def fetch(self, outside: Outside) -> AccessToken:
        """See `AzureLogin`."""
        if self.assertion:
            proof = {"client_assertion_type": _ASSERTION, "client_assertion": self.assertion}
        else:
            proof = {"client_secret": self.secret}
        form = {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "scope": f"{self.resource.rstrip('/')}/.default",
            **proof,
        }
        api = HostApi("Azure's identity service", self.authority, outside, explain=_reason)
        what = f"log in the client {self.client_id}"
        answer = await api.call(
            "POST",
            f"/{quote(self.tenant, safe='')}/oauth2/v2.0/token",
            what=what,
            body=urlencode(form).encode(),
            headers=(("content-type", "application/x-www-form-urlencoded"),),
            allowed=(400, 401),
        )
        if answer.status >= 400:
            raise CredentialsRejected(
                f"{api.failure(answer, what)}; correct clientID, tenantID or the client secret"
            )
        return _token(api, answer, what, outside)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedIdentity:
    """The identity of the machine or pod: the one with this client or resource ID, or the only one."""

    resource: str
    client_id: str = ""
    resource_id: str = ""
    metadata: Endpoint = METADATA

    async def fetch(self, outside: Outside) -> AccessToken:
        """See `AzureLogin`."""
        query = {"api-version": "2018-02-01", "resource": self.resource}
        if self.client_id:
            query["client_id"] = self.client_id
        if self.resource_id:
            query["msi_res_id"] = self.resource_id
        api = HostApi("Azure's metadata service", self.metadata, outside, explain=_reason)
        what = "get a token of the managed identity"
        answer = await api.call(
            "GET",
            "/metadata/identity/oauth2/token",
            what=what,
            query=query,
            headers=(("metadata", "true"),),
            allowed=(400,),
        )
        if answer.status == 400:
            raise CredentialsRejected(
                f"{api.failure(answer, what)}; assign the identity to this machine, or correct "
                "managedIdentity"
            )
        return _token(api, answer, what, outside)


def _token(api: HostApi, answer: HttpAnswer, what: str, outside: Outside) -> AccessToken:
    token = api.parse(answer, _Token, what)
    seconds = int(token.expires_in) if str(token.expires_in).isdigit() else 0
    return AccessToken(token.access_token, outside.now() + timedelta(seconds=seconds))


def _reason(answer: HttpAnswer) -> str:
    try:
        failure = json_decoder(_Failure).decode(answer.body)
    except UNDECODABLE:
        return ""
    # The lines after the first are trace IDs.
    described = failure.error_description.splitlines()[:1]
    return ": ".join([failure.error, *described])
