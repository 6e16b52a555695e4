"""Settings of a provider of dns-lexicon."""

from __future__ import annotations

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child.messages import Provider
from certwright.acme.solvers.dns01.hosts.in_child import ChildSettings, settings_of
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.lexicon import LexiconDNS, option_problem


async def settings(spec: LexiconDNS, values: HostValues) -> ChildSettings:
    """Raises `SolverError`."""
    secret: dict[str, str] = {}
    if spec.credentials_secret_ref is not None:
        secret = await _credentials(spec.provider, spec.credentials_secret_ref.name, values)
    for name, value in spec.options.items():
        if problem := option_problem(spec.provider, name, value):
            raise SolverError(f"{values.path}.options.{name}: {problem}")
    operators = values.lexicon_options.get(spec.provider, {})
    provider = Provider(
        kind="lexicon",
        name=spec.provider,
        options={**spec.options, **secret, **operators},
        # The others select something within an account: their values are no names of servers.
        servers=tuple(v for name, v in operators.items() if option_problem(spec.provider, name, v)),
    )
    return settings_of(provider, [*secret.values(), *operators.values()])


async def _credentials(provider: str, name: str, values: HostValues) -> dict[str, str]:
    data = await values.get_secret(name)
    where = f"{values.path}.credentialsSecretRef"
    if data is None:
        raise SolverError(f'{where}: Secret "{name}" does not exist; create it')
    credentials: dict[str, str] = {}
    for option, content in data.items():
        value = content.decode(errors="replace").strip()
        if problem := option_problem(provider, option, value):
            raise SolverError(f'{where}: entry "{option}" of Secret "{name}": {problem}')
        credentials[option] = value
    return credentials
