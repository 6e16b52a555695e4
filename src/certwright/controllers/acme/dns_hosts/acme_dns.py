"""Settings of acme-dns."""

from __future__ import annotations

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts import acmedns
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.kube.util.decoders import json_decoder
from certwright.resources.solver import AcmeDNS


class _Account(msgspec.Struct):
    """What acme-dns answers to a registration, as cert-manager and other clients keep it."""

    username: str
    password: str
    fulldomain: str
    subdomain: str


async def settings(spec: AcmeDNS, values: HostValues) -> acmedns.AcmeDnsSettings:
    """Raises `SolverError`."""
    content = await values.secret(spec.account_secret_ref, "accountSecretRef")
    try:
        accounts = json_decoder(dict[str, _Account]).decode(content)
    except msgspec.DecodeError:
        # The reason could quote a password.
        raise SolverError(
            f"{values.path}.accountSecretRef: the entry is not a JSON object of accounts by domain; write "
            '{"DOMAIN": {"username": …, "password": …, "fulldomain": …, "subdomain": …}}'
        ) from None
    by_domain = tuple(
        (domain, acmedns.Account(account.username, account.password, account.fulldomain, account.subdomain))
        for domain, account in sorted(accounts.items())
    )
    return acmedns.AcmeDnsSettings(endpoint=values.named_endpoint("acmeDNS", spec.host), accounts=by_domain)
