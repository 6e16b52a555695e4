"""Tools of issuers, as the controllers pass them for one check, signature or probe."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from certwright.controllers.cache.secrets import Secrets
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import AcmeTools, GetSecret, ServerTools, Tools
from certwright.resources.operator_policy import OperatorPolicy


class IssuerTools(msgspec.Struct, frozen=True):
    """Makes `Tools`. `acme` and `servers` return those for issuers whose Secrets are in that namespace;
    `policy` is the operator's."""

    toolbox: Toolbox
    secrets: Secrets
    acme: Callable[[str], AcmeTools]
    servers: Callable[[str], ServerTools]
    policy: OperatorPolicy

    def within(self, secrets_in: str, get_secret: GetSecret) -> Tools:
        """The tools of an issuer whose Secrets are in the namespace `secrets_in` and read by `get_secret`."""
        return Tools(
            get_secret=get_secret,
            executor=self.toolbox.executor,
            now=self.toolbox.now,
            acme=self.acme(secrets_in),
            servers=self.servers(secrets_in),
            post_quantum=self.policy.post_quantum,
        )
