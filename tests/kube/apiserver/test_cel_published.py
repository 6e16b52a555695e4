"""The CEL rules of published CustomResourceDefinitions, on large objects: they never hit the bound."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from certwright.kube.apiserver.cel import rules as cel_rules
from support.go import GATEWAY_API, folder_of

MODULES = {
    GATEWAY_API: "config/crd/*/*.yaml",
    "github.com/cert-manager/trust-manager@v0.25.0": "deploy/crds/*.yaml",
}
"""Go modules that hold the definitions. Those of Argo CD have no rules."""
_FEW = 3


def filled(schema: dict[str, Any]) -> Any:
    """A value with all fields, and several items in each list and map."""
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            more = schema.get("additionalProperties")
            if isinstance(more, dict):
                return {f"k{number}": filled(more) for number in range(_FEW)}
            return {name: filled(inner) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [filled(schema["items"]) for _ in range(min(schema.get("maxItems", _FEW), _FEW))]
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return str(schema.get("default") or "example")[: schema.get("maxLength", 20)]


@pytest.mark.real("go")
@pytest.mark.parametrize("module", MODULES)
def test_rules_of_published_definitions_are_evaluated_to_the_end(module: str) -> None:
    evaluated = 0
    for path in sorted(folder_of(module).glob(MODULES[module])):
        for definition in yaml.safe_load_all(path.read_text()):
            if definition.get("kind") != "CustomResourceDefinition":
                continue
            for version in definition["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                rules = cel_rules.compile_rules(schema, root=True)
                if rules is None:
                    continue
                evaluated += 1
                errors = map(str, cel_rules.run_rules(rules, filled(schema), None))
                assert not [error for error in errors if "no further validation rules" in error]
    assert evaluated
