"""Packs Kubernetes' published discovery and OpenAPI documents into the data of the server and of its tests.

    python tests/go/pack_openapi.py

Reads `api/` of the Go module k8s.io/kubernetes, which the go command downloads. Only facts are kept: names,
types, and keywords such as `x-kubernetes-list-type`; no descriptions. The server gets the keywords of each
message. If several releases have a field, the served release (the last) counts. The tests get all facts of
that release.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import zlib
from pathlib import Path
from typing import Any

Json = dict[str, Any]

RELEASES = ("v1.36.1", "v1.33.0")
_ROOT = Path(__file__).parents[2]
_SERVER = _ROOT / "src/certwright/kube/apiserver/data/openapi.json.zlib"
_TESTS = _ROOT / "tests/kube/apiserver/data/kubernetes.json.xz"
_PACKAGES = re.compile(r"io\.k8s\.(api|[a-z-]+\.pkg\.(apis|api|util|runtime|version))\.")
# What the tables of Go's types have already.
_TYPES = ("type", "format", "items", "additionalProperties", "$ref", "oneOf")


def downloaded(release: str) -> Path:
    """The folder of a release's published documents."""
    command = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{release}"]
    module = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return Path(module["Dir"]) / "api"


def documents(api: Path) -> list[Json]:
    """The OpenAPI documents of all groups in version v1."""
    return [json.loads(path.read_text()) for path in sorted(api.glob("openapi-spec/v3/*__v1_openapi.json"))]


def plain(value: Any) -> Any:
    """A schema without descriptions, Go's zero values as defaults, and `allOf` around a reference."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {
        key: plain(item)
        for key, item in value.items()
        if not (key == "description" and isinstance(item, str))
        and not (key == "default" and item in ("", {}, 0))
    }
    if "allOf" in made:
        made.pop("x-kubernetes-list-type", None)  # Status.details has it, and is no list
    if len(made.get("allOf", ())) == 1:
        made |= made.pop("allOf")[0]
    return made


def schemas(api: Path) -> dict[str, Json]:
    """The schemas of all components by name, with those of scalar values in place."""
    every = {
        name: {key: item for key, item in plain(schema).items() if key != "x-kubernetes-group-version-kind"}
        for document in documents(api)
        for name, schema in document["components"]["schemas"].items()
    }

    def in_place(value: Any) -> Any:
        if isinstance(value, list):
            return [in_place(item) for item in value]
        if not isinstance(value, dict):
            return value
        name = str(value.get("$ref", "")).rpartition("/")[2]
        target = every.get(name, {"type": "object"})
        if target.get("type") == "object" and not name.endswith((".FieldsV1", ".RawExtension")):
            return {key: in_place(item) for key, item in value.items()}
        return {**target, **{key: in_place(item) for key, item in value.items() if key != "$ref"}}

    return {name: in_place(schema) for name, schema in every.items()}


def keywords(schema: Json) -> Json:
    """What a schema says beyond its types, and what its properties say."""
    properties = {name: _untyped(prop) for name, prop in schema.get("properties", {}).items()}
    made = {key: item for key, item in _untyped(schema).items() if key != "properties"}
    return made | ({"properties": kept} if (kept := {name: p for name, p in properties.items() if p}) else {})


def _untyped(schema: Json) -> Json:
    return {key: item for key, item in schema.items() if key not in _TYPES}


def server_data(releases: list[dict[str, Json]]) -> Json:
    """The keywords of each message, e.g. `core.v1.PodSpec`."""
    made: Json = {}
    for release in releases:
        for name, schema in release.items():
            known = made.setdefault(_PACKAGES.sub("", name), {})
            properties = {
                field: words
                for field, words in known.pop("properties", {}).items()
                if field not in schema.get("properties", {})
            }
            known.clear()
            known |= keywords(schema)
            if properties := properties | known.get("properties", {}):
                known["properties"] = properties
    return {name: words for name, words in sorted(made.items()) if words}


def resources(api: Path) -> Json:
    """The resources of each group and version, as discovery lists them."""
    made = {}
    for path in sorted(api.glob("discovery/*__v1.json")):
        content = json.loads(path.read_text())
        made[content["groupVersion"]] = content["resources"]
    return made


def methods(api: Path) -> Json:
    """The methods of each path."""
    return {
        path: sorted(item.keys() - {"parameters"})
        for document in documents(api)
        for path, item in sorted(document["paths"].items())
    }


if __name__ == "__main__":
    folders = [downloaded(release) for release in RELEASES]
    every = [schemas(folder) for folder in folders]
    served = folders[-1]
    facts = {"resources": resources(served), "methods": methods(served), "schemas": every[-1]}
    _SERVER.write_bytes(zlib.compress(json.dumps(server_data(every), separators=(",", ":")).encode(), 9))
    _TESTS.write_bytes(lzma.compress(json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()))
