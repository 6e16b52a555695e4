"""Tools of issuers, as the controllers pass them for one check, signature or probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import AcmeTools, GetSecret, ServerTools, Tools


@dataclass(frozen=True, slots=True)
class IssuerTools:
    """Makes `Tools`. `acme` and `servers` return those for issuers whose Secrets are in that namespace."""

    toolbox: Toolbox
    acme: Callable[[str], AcmeTools]
    servers: Callable[[str], ServerTools]

    def within(self, secrets_in: str, get_secret: GetSecret) -> Tools:
        """The tools of an issuer whose Secrets are in the namespace `secrets_in` and read by `get_secret`."""
        return Tools(
            get_secret=get_secret,
            executor=self.toolbox.executor,
            now=self.toolbox.now,
            acme=self.acme(secrets_in),
            servers=self.servers(secrets_in),
        )
