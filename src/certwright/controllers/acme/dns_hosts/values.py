"""Values that the settings of DNS hosts are made of: entries of Secrets, endpoints, ambient credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.issuers.contract import GetSecret, GetToken
from certwright.kit.outgoing import HTTPS_ONLY, ServerRules
from certwright.resources.references import SecretKeySelector


@dataclass(frozen=True, slots=True, kw_only=True)
class HostValues:
    """What one solver's settings may be made of.

    `path` is the provider's field, for errors. `endpoints` are the operator's, by the provider's name
    (`--dns01-endpoint`); `environment` is this process's. `namespace` is that of the issuer's Secrets and
    ServiceAccounts; `get_token` requests a token of one of the latter; None: this process cannot. `ambient`:
    whether the credentials of this process (environment, metadata server, workload identity) may be used for
    this issuer. `rules` are those for servers that a manifest names.
    """

    path: str
    get_secret: GetSecret
    namespace: str = ""
    get_token: GetToken | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    ambient: bool = False
    rules: ServerRules = HTTPS_ONLY
    lexicon_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    async def secret(self, reference: SecretKeySelector, name: str) -> bytes:
        """The entry of the Secret that the field `name` refers to. Raises `SolverError` if it is missing or
        empty."""
        data = await self.get_secret(reference.name)
        where = f"{self.path}.{name}"
        if data is None:
            raise SolverError(f'{where}: Secret "{reference.name}" does not exist; create it')
        value = data.get(reference.key, b"")
        if not value:
            raise SolverError(
                f'{where}: Secret "{reference.name}" has no entry "{reference.key}"; add it, or '
                f"correct {where}.key"
            )
        return value

    async def word(self, reference: SecretKeySelector, name: str) -> str:
        """The same as one line of text, without the spaces around it, as tokens and keys are. Raises
        `SolverError`."""
        value = await self.secret(reference, name)
        try:
            text = value.decode("ascii").strip()
        except UnicodeDecodeError:
            text = ""
        if not text or not text.isprintable():
            where = f"{self.path}.{name}"
            raise SolverError(
                f'{where}: entry "{reference.key}" of Secret "{reference.name}" is not a line of ASCII text'
            )
        return text

    def endpoint(self, provider: str, default: Endpoint, *variables: str) -> Endpoint:
        """Where the API is: the operator's flag, one of these environment variables (the vendor's own, the
        first that is set), or the default. Only the operator's may be `http`."""
        url = self.endpoints.get(provider) or next(
            (self.environment[variable] for variable in variables if self.environment.get(variable)), ""
        )
        return self.replaced(url, default)

    def replaced(self, url: str, default: Endpoint) -> Endpoint:
        """The operator's URL, http allowed; the default if it is empty."""
        return Endpoint(url, ServerRules(allow_http=True)) if url else default

    def require_ambient(self, fields: str) -> None:
        """Raises `SolverError` unless this process's own credentials may be used in place of `fields`."""
        if not self.ambient:
            raise SolverError(
                f"{self.path}: no credentials are given, and ambient ones are not allowed for this issuer; "
                f"give {fields}, or start certwright with --issuer-ambient-credentials (for a ClusterIssuer "
                "--cluster-issuer-ambient-credentials)"
            )

    def named_endpoint(self, provider: str, url: str) -> Endpoint:
        """The endpoint that the manifest names, by the operator's general rules; the operator's flag replaces
        it."""
        return self.endpoint(provider, Endpoint(url, self.rules))
