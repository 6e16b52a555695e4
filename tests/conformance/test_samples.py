"""Sample manifests of other projects, sent to the reference and to ours.

`make soak` runs it: the Go modules of the projects, with definitions and samples, are downloaded by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from certwright.kube.api.manifests import Document, read_documents
from certwright.resources.crds import custom_resource_definitions
from conformance.compare import compare
from conformance.differences import compared
from conformance.kinds import CRDS, Json
from conformance.peers import Caller, Exchange, Peer
from conformance.servers import ours, reference, until_gone, until_served
from support.go import GATEWAY_API, folder_of
from support.oracle import Oracle

NAMESPACE = "samples"


class Project(NamedTuple):
    """A Go module, and where its definitions and samples are."""

    module: str
    definitions: str
    samples: tuple[str, ...]


PROJECTS = {
    "gateway-api": Project(
        GATEWAY_API,
        "config/crd/experimental/*.yaml",
        ("examples/**/*.yaml", "hack/invalid-examples/**/*.yaml"),
    ),
    "istio": Project(
        "istio.io/istio@v0.0.0-20260827124520-eed52ebb66ad",
        "manifests/charts/base/files/crd-all.gen.yaml",
        ("samples/**/*.yaml", "tests/**/testdata/**/*.yaml"),
    ),
    "tekton": Project(
        "github.com/tektoncd/pipeline@v1.6.0", "config/300-crds/*.yaml", ("examples/**/*.yaml",)
    ),
    "argo": Project(
        "github.com/argoproj/argo-rollouts@v1.8.3",
        "manifests/crds/*-crd.yaml",
        ("examples/**/*.yaml", "test/**/*.yaml"),
    ),
}


def objects(folder: Path, *patterns: str) -> Iterator[Json]:
    """The objects in these files; templates, which are no YAML, are left out."""
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        for document in read_documents(path.read_bytes(), source=path.name):
            if isinstance(document, Document):
                yield document.content


async def send(peer: Peer, definitions: list[Json], samples: list[Json]) -> list[Exchange]:
    """Create and apply each sample."""
    c = Caller(peer, NAMESPACE, NAMESPACE)
    kinds = {}
    for definition in definitions:
        spec = {name: part for name, part in definition["spec"].items() if name != "conversion"}
        await c.post(CRDS, {**definition, "spec": spec})
        for version in spec["versions"]:
            if version["served"]:
                base = f"/apis/{spec['group']}/{version['name']}"
                scope = f"/namespaces/{NAMESPACE}" if spec["scope"] == "Namespaced" else ""
                path = f"{base}{scope}/{spec['names']['plural']}"
                kinds[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = path
                await until_served(c, path)
    for number, sample in enumerate(samples):
        about = sample["apiVersion"], sample["kind"]
        if about not in kinds:
            continue
        path = kinds[about]
        # Samples share names, and have namespaces that neither server has.
        meta = {name: part for name, part in sample["metadata"].items() if name != "generateName"}
        meta |= {"name": f"sample-{number}", "namespace": NAMESPACE}
        if "/namespaces/" not in path:
            del meta["namespace"]
        named = {**sample, "metadata": meta}
        await c.post(f"{path}?fieldValidation=Strict", named)
        await c.patch(f"{path}/sample-{number}?fieldManager=m&force=true", named, "apply")
        await c.get(f"{path}/sample-{number}")
    for definition in definitions:
        name = f"{CRDS}/{definition['metadata']['name']}"
        await c.delete(name, quiet=True)
        await until_gone(c, name)
    return c.transcript


def _without_causes(exchange: Exchange) -> Exchange:
    """Stories compare the causes of an invalid object. Of an object that fits no branch of a `oneOf`, the
    reference describes the branch with most matches, and ours the branch with fewest errors."""
    answered = exchange.answered
    is_invalid = type(answered) is dict and answered.get("status") == 422
    return replace(exchange, answered=422) if is_invalid else exchange


@pytest.mark.skipif("CERTWRIGHT_SOAK" not in os.environ, reason="downloads other projects: `make soak`")
@pytest.mark.parametrize("name", PROJECTS)
async def test_both_servers_take_the_samples_of_a_project_alike(
    oracle: Oracle, tmp_path: Path, name: str
) -> None:
    project = PROJECTS[name]
    folder = folder_of(project.module)
    definitions = [
        definition
        for definition in objects(folder, project.definitions)
        if definition["kind"] == "CustomResourceDefinition"
    ]
    samples = list(objects(folder, *project.samples))
    async with reference(oracle) as peer:
        theirs = await send(peer, definitions, samples)
    async with ours("memory", oracle, tmp_path, [NAMESPACE]) as peer:
        answers = await send(peer, definitions, samples)
    assert len(theirs) > len(definitions)
    compared["memory"] += len(theirs)
    if different := compare(list(map(_without_causes, theirs)), list(map(_without_causes, answers))):
        pytest.fail("\n".join([f"{len(different)} answers differ", *different]), pytrace=False)


OURS = {definition["metadata"]["name"]: definition for definition in custom_resource_definitions()}


@pytest.mark.parametrize("name", sorted(OURS))
async def test_kubernetes_accepts_our_definitions(oracle: Oracle, name: str) -> None:
    definition: Json = OURS[name]
    async with reference(oracle) as peer:
        answer = await Caller(peer).post(f"{CRDS}?dryRun=All&fieldValidation=Strict", definition)
    assert answer.status == 201, answer.body
