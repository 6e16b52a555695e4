"""Feature gates: behaviour that can be switched off, and on again.

Source: Kubernetes documentation, "Feature Gates"; component-base `featuregate`.
"""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.util import gates

NAME_GENERATION_RETRIES = "NameGenerationRetries"
"""Create with `generateName` tries further names while the generated one is taken (KEP-4420)."""
NAME_GENERATION_LOOK_AHEAD = "NameGenerationLookAhead"
"""After the first taken name, later ones are looked up before the object is validated under them (KEP-4420,
"Beta", the optional optimisation)."""

DEFAULTS: Mapping[str, bool] = {NAME_GENERATION_RETRIES: True, NAME_GENERATION_LOOK_AHEAD: True}
"""Every gate there is."""


ALIASES: Mapping[str, str] = {"RetryGenerateName": NAME_GENERATION_RETRIES}
"""Other names of gates: Kubernetes released the first one under a name that differs from the KEP's."""


class FeatureGates:
    """Which gates are open. They may be switched while the server runs: each request looks anew."""

    __slots__ = ("_open",)

    def __init__(self, wanted: Mapping[str, bool] | None = None) -> None:
        """All at their default but those in `wanted`. Raises `ValueError` for a gate nobody knows."""
        self._open = dict(DEFAULTS)
        self.switch(wanted or {})

    def switch(self, wanted: Mapping[str, bool]) -> None:
        """Open and close gates; those not named stay as they are. Raises `ValueError`."""
        gates.check(wanted, DEFAULTS)
        self._open.update(wanted)

    def enabled(self, name: str) -> bool:
        """Whether the gate is open. Raises `KeyError` for one nobody knows."""
        return self._open[name]

    def all(self) -> dict[str, bool]:
        """Every gate and whether it is open."""
        return dict(self._open)
