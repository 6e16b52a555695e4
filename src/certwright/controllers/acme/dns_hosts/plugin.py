"""Settings of a plug-in."""

from __future__ import annotations

from certwright.acme.solvers.dns01.child.messages import Provider
from certwright.acme.solvers.dns01.hosts.in_child import ChildSettings, settings_of
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.solver import PluginDNS


async def settings(spec: PluginDNS, values: HostValues) -> ChildSettings:
    """Raises `SolverError`."""
    secrets = {
        name: await values.secret(reference, f"secretRefs.{name}")
        for name, reference in spec.secret_refs.items()
    }
    provider = Provider(kind="plugin", name=spec.name, config=spec.config, secrets=secrets)
    return settings_of(provider, list(secrets.values()))
