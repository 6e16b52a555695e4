"""Feature gates: behavior that can be switched on and off.

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
"""All gates."""


ALIASES: Mapping[str, str] = {"RetryGenerateName": NAME_GENERATION_RETRIES}
"""Other names of gates: Kubernetes released the first one under a name that differs from the KEP's."""


class FeatureGates:
    """The state of the feature gates. They may change while the server runs: each request reads them."""

    __slots__ = ("_open",)

    def __init__(self, settings: Mapping[str, bool] | None = None) -> None:
        """All at their default but those in `settings`. Raises `ValueError` for an unknown gate."""
        self._open = dict(DEFAULTS)
        self.switch(settings or {})

    def switch(self, settings: Mapping[str, bool]) -> None:
        """Enable and disable gates; the others stay as they are. Raises `ValueError`."""
        gates.check(settings, DEFAULTS)
        self._open.update(settings)

    def enabled(self, name: str) -> bool:
        """Whether the gate is enabled. Raises `KeyError` for an unknown gate."""
        return self._open[name]

    def all(self) -> dict[str, bool]:
        """Every gate and whether it is enabled."""
        return dict(self._open)
