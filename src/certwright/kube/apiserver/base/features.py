"""Feature gates: behavior that can be switched on and off.

Source: Kubernetes documentation, "Feature Gates"; component-base `featuregate`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

NAME_GENERATION_RETRIES = "NameGenerationRetries"
"""Create with `generateName` tries further names while the generated one is taken (KEP-4420)."""
NAME_GENERATION_LOOK_AHEAD = "NameGenerationLookAhead"
"""After the first taken name, later ones are looked up before the object is validated under them (KEP-4420,
"Beta", the optional optimisation)."""

DEFAULTS: Mapping[str, bool] = {NAME_GENERATION_RETRIES: True, NAME_GENERATION_LOOK_AHEAD: True}
"""All gates."""

ALIASES: Mapping[str, str] = {"RetryGenerateName": NAME_GENERATION_RETRIES}
"""Other names of gates: Kubernetes released the first one under a name that differs from the KEP's."""

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FeatureGates:
    """The state of the feature gates. They may change while the server runs: each request reads them."""

    __slots__ = ("_open",)

    def __init__(self, settings: Mapping[str, bool] | None = None) -> None:
        """All at their default but those in `settings`. Raises `ValueError` for an unknown gate."""
        self._open = dict(DEFAULTS)
        self.switch(settings or {})

    def switch(self, settings: Mapping[str, bool]) -> None:
        """Enable and disable gates; the others stay as they are. Raises `ValueError`."""
        check(settings, DEFAULTS)
        self._open.update(settings)

    def enabled(self, name: str) -> bool:
        """Whether the gate is enabled. Raises `KeyError` for an unknown gate."""
        return self._open[name]

    def all(self) -> dict[str, bool]:
        """Every gate and whether it is enabled."""
        return dict(self._open)


def parse(text: str, known: Collection[str], aliases: Mapping[str, str] = ALIASES) -> dict[str, bool]:
    """Parse `--feature-gates A=true,B=false`; empty for an empty text. `aliases`: other names of gates.

    Raises `ValueError` with one sentence for a gate that is not `known`, a value that is no boolean, or two
    names of one gate with different values.
    """
    gates: dict[str, bool] = {}
    names: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for feature gate {name}: write {name}=true or {name}=false")
        if value not in _TRUE and value not in _FALSE:
            raise ValueError(f"invalid value of feature gate {name}={value}: it must be true or false")
        gate, is_on = aliases.get(name, name), value in _TRUE
        if names.setdefault(gate, name) != name and gates[gate] != is_on:
            raise ValueError(f"{names[gate]} and {name} are two names of one feature gate: give it one value")
        gates[gate] = is_on
    check(gates, known)
    return gates


def check(names: Collection[str], known: Collection[str]) -> None:
    """Raises `ValueError` with one sentence for a gate that is not `known`."""
    for name in names:
        if name not in known:
            raise ValueError(f"unrecognized feature gate: {name}; there are {', '.join(sorted(known))}")
