"""`--feature-gates`: one flag for the API server's gates and the controllers'."""

from __future__ import annotations

from dataclasses import replace

from certwright.app.options import ControllerOptions, StartError
from certwright.controllers import settings as of_controllers
from certwright.kube.apiserver.base import features
from certwright.kube.apiserver.base import features as of_server
from certwright.kube.apiserver.base.features import FeatureGates
from certwright.resources.operator_policy import OperatorPolicy


def server_gates(text: str) -> FeatureGates:
    """The API server's gates. Raises `StartError` for a gate that neither it nor the controllers know."""
    return FeatureGates({name: on for name, on in _parse(text).items() if name in of_server.DEFAULTS})


def controller_gates(text: str) -> dict[str, bool]:
    """All gates of the controllers. Raises `StartError` for a gate that neither side knows."""
    requested = _parse(text)
    return {name: requested.get(name, default) for name, default in of_controllers.FEATURE_GATES.items()}


def operator_policy(options: ControllerOptions) -> OperatorPolicy:
    """The policy of the flags, with the gates that decide what objects may ask for. Raises `StartError`."""
    gates_of = controller_gates(options.feature_gates)
    return replace(options.acme.policy, post_quantum=gates_of[of_controllers.POST_QUANTUM])


def _parse(text: str) -> dict[str, bool]:
    try:
        return features.parse(
            text, of_server.DEFAULTS.keys() | of_controllers.FEATURE_GATES.keys(), of_server.ALIASES
        )
    except ValueError as error:
        raise StartError(f"--feature-gates: {error}") from error
