"""Feature gates: behaviour that can be switched off, and on again.

Source: Kubernetes documentation, "Feature Gates"; component-base `featuregate`.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_GENERATION_RETRIES = "NameGenerationRetries"
"""Create with `generateName` tries further names while the generated one is taken (KEP-4420)."""
NAME_GENERATION_LOOK_AHEAD = "NameGenerationLookAhead"
"""After the first taken name, later ones are looked up before the object is validated under them (KEP-4420,
"Beta", the optional optimisation)."""

DEFAULTS: Mapping[str, bool] = {NAME_GENERATION_RETRIES: True, NAME_GENERATION_LOOK_AHEAD: True}
"""Every gate there is."""

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse(text: str) -> dict[str, bool]:
    """What `--feature-gates A=true,B=false` says; empty for an empty text.

    Raises `ValueError` with one sentence for a gate nobody knows, or a value that is no boolean.
    """
    found: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for feature gate {name}: write {name}=true or {name}=false")
        if value not in _TRUE and value not in _FALSE:
            raise ValueError(f"invalid value of feature gate {name}={value}: it must be true or false")
        found[name] = value in _TRUE
    _check(found)
    return found


def _check(wanted: Mapping[str, bool]) -> None:
    for name in wanted:
        if name not in DEFAULTS:
            raise ValueError(f"unrecognized feature gate: {name}; there are {', '.join(sorted(DEFAULTS))}")


class FeatureGates:
    """Which gates are open. They may be switched while the server runs: each request looks anew."""

    __slots__ = ("_open",)

    def __init__(self, wanted: Mapping[str, bool] | None = None) -> None:
        """All at their default but those in `wanted`. Raises `ValueError` for a gate nobody knows."""
        self._open = dict(DEFAULTS)
        self.switch(wanted or {})

    def switch(self, wanted: Mapping[str, bool]) -> None:
        """Open and close gates; those not named stay as they are. Raises `ValueError`."""
        _check(wanted)
        self._open.update(wanted)

    def enabled(self, name: str) -> bool:
        """Whether the gate is open. Raises `KeyError` for one nobody knows."""
        return self._open[name]

    def all(self) -> dict[str, bool]:
        """Every gate and whether it is open."""
        return dict(self._open)
