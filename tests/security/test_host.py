"""A tenant runs no program and writes no file on the machine of the server (audit A1, A2)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from certwright.acme.solvers.contract import SolverNotAllowed
from certwright.controllers.acme import solver_factory
from certwright.controllers.acme.challenge_progress import SolverUse
from certwright.controllers.acme.options import AcmeOptions
from certwright.kube.api import codec
from certwright.resources.issuer import ClusterIssuer
from certwright.resources.names import ACME_FINALIZER
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CHALLENGES, CLUSTER_ISSUERS
from security.conftest import Json, Server, acme, refusal, running_server
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble, running_pebble, shown
from support.world import make_world

SHELL = ["/bin/sh", "-c"]


@pytest.fixture(scope="module")
def pebble() -> Iterator[Pebble]:
    """A CA that accepts every proof, as the one of the audit did."""
    with running_pebble(environment={"PEBBLE_VA_ALWAYS_VALID": "1"}) as running:
        yield running


def program(folder: Path) -> Json:
    """The solver of audit A1: it writes who it is and what it finds to `folder/out`."""
    line = f"id > {folder}/out; env >> {folder}/out"
    return {"waitInsteadOfSelfCheck": "0s", "exec": {"type": "DNS-01", "command": [*SHELL, line]}}


def challenge(solver: Json, **spec: str) -> Json:
    """A Challenge written by hand, for a ClusterIssuer of somebody else."""
    return {
        "url": "https://ca.invalid/chall/1",
        "authorizationURL": "https://ca.invalid/authz/1",
        "dnsName": "a.example.com",
        "type": "DNS-01" if "exec" in solver else "HTTP-01",
        "token": "cronjob",
        "key": "* * * * * root id\n",
        "issuerRef": {"kind": "ClusterIssuer", "name": "le"},
        "solver": solver,
        **spec,
    }


def issuer_object(solver: Json) -> ClusterIssuer:
    """A ClusterIssuer with that solver."""
    spec = acme("https://ca.invalid/dir", b"", solver)
    manifest = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "ClusterIssuer",
        "metadata": {"name": "le"},
        "spec": spec,
    }
    return codec.from_dict(CLUSTER_ISSUERS, manifest)


async def post_challenge(world: AcmeWorld, spec: Json) -> None:
    """Create a Challenge as somebody with rights on them, with the finalizer of ours."""
    meta = {"name": "evil", "namespace": "default", "finalizers": [ACME_FINALIZER]}
    await world.create(CHALLENGES, {"metadata": meta, "spec": spec})


async def until_gone(world: AcmeWorld) -> None:
    """Return when the Challenge is gone."""
    async with asyncio.timeout(60):
        while (await world.client.list(CHALLENGES)).items:  # noqa: ASYNC110 - what a user would do
            await asyncio.sleep(0.02)


async def page_in(folder: Path) -> Path:
    """The first page that is written below the web root."""
    async with asyncio.timeout(60):
        while not (output := shown(folder)):  # noqa: ASYNC110 - see `until_gone`
            await asyncio.sleep(0.02)
    return output[0]


async def test_a_tenants_issuer_runs_no_program(server: Server, tmp_path: Path) -> None:
    refusal_text = await refusal(
        server.tenant().create("Issuer", "evil", spec=acme("https://ca.invalid/dir", b"", program(tmp_path)))
    )
    assert "spec.acme.solvers[0].exec.command" in refusal_text
    assert f"id > {tmp_path}/out" in refusal_text
    assert "--exec-solver NAME=" in refusal_text
    assert not (tmp_path / "out").exists()


async def test_a_tenants_challenge_runs_no_program(server: Server, tmp_path: Path) -> None:
    await server.allow_challenges()
    refusal_text = await refusal(
        server.tenant().create("Challenge", "evil", spec=challenge(program(tmp_path)))
    )
    assert "spec.solver.exec.command" in refusal_text
    assert "--exec-solver" in refusal_text


async def test_a_tenant_writes_no_file(server: Server, tmp_path: Path) -> None:
    await server.allow_challenges()
    solver = {"waitInsteadOfSelfCheck": "1h", "http01": {"webroot": {"path": str(tmp_path / "new")}}}
    for kind, spec in (
        ("Issuer", acme("https://ca.invalid/dir", b"", solver)),
        ("Challenge", challenge(solver)),
    ):
        refusal_text = await refusal(server.tenant().create(kind, "evil", spec=spec))
        assert "http01.webroot.path" in refusal_text
        assert str(tmp_path / "new") in refusal_text
        assert "--webroot" in refusal_text
    assert not (tmp_path / "new").exists()


async def test_a_tenant_who_updates_an_issuer_brings_no_program_in(server: Server, tmp_path: Path) -> None:
    tenant = server.tenant()
    await tenant.create("Issuer", "mild", spec={"selfSigned": {}})
    change = {"spec": {"selfSigned": None, **acme("https://ca.invalid/dir", b"", program(tmp_path))}}
    assert "--exec-solver" in await refusal(tenant.patch("Issuer", "mild", change))


async def test_the_flags_allow_exactly_what_they_name(tmp_path: Path) -> None:
    allowed, root = [*SHELL, "exit 0"], tmp_path / "www"
    root.mkdir()
    words = ("--exec-solver", "hook=/bin/sh -c 'exit 0'", "--webroot", str(root))
    async with running_server(tmp_path, *words) as server:
        tenant = server.tenant()
        for number, command in enumerate((["hook"], allowed)):
            solver: Json = {"exec": {"command": command}}
            await tenant.create("Issuer", f"p{number}", spec=acme("https://ca.invalid/dir", b"", solver))
        for command in (["hook", "more"], ["other"], [*allowed, "x"], [*SHELL, "id"], SHELL):
            spec = acme("https://ca.invalid/dir", b"", {"exec": {"command": command}})
            assert "allowed: hook" in await refusal(tenant.create("Issuer", "no", spec=spec))
        for number, path in enumerate((root, root / "site" / "a")):
            below: Json = {"http01": {"webroot": {"path": str(path)}}}
            await tenant.create("Issuer", f"w{number}", spec=acme("https://ca.invalid/dir", b"", below))
        for path in (root.parent, root / ".." / "x", Path(f"{root}x"), Path("www"), Path("/")):
            spec = acme("https://ca.invalid/dir", b"", {"http01": {"webroot": {"path": str(path)}}})
            assert "--webroot" in await refusal(tenant.create("Issuer", "no", spec=spec))


async def test_what_is_not_allowed_is_in_the_condition_where_the_api_server_does_not_know(
    tmp_path: Path,
) -> None:
    # An API server without our admission, as Kubernetes' own is.
    async with make_world() as world:
        await world.client.create(CLUSTER_ISSUERS, issuer_object(program(tmp_path)))
        await world.settle()
        issuer = await world.client.get(CLUSTER_ISSUERS, "le", "")
        (condition,) = issuer.status.conditions
        assert (condition.status, condition.reason) == ("False", "NotAllowed")
        assert condition.message.startswith("spec.acme.solvers[0].exec.command: `/bin/sh -c ")
        assert "--exec-solver NAME=" in condition.message


async def _no_secret(_name: str) -> Mapping[str, bytes] | None:
    return None


@pytest.mark.parametrize("kind", ["exec", "webroot"])
async def test_no_solver_is_made_that_the_flags_do_not_allow(tmp_path: Path, kind: str) -> None:
    """Whatever Order or issuer the Challenge belongs to."""
    webroot: Json = {"http01": {"webroot": {"path": str(tmp_path / "www")}}}
    spec = challenge(program(tmp_path) if kind == "exec" else webroot)
    meta = {"name": "evil", "namespace": "default"}
    manifest = {"apiVersion": CHALLENGES.api_version, "kind": "Challenge", "metadata": meta, "spec": spec}
    obj = codec.from_dict(CHALLENGES, manifest)
    flag = "--exec-solver" if kind == "exec" else "--webroot"
    solver = obj.spec.solver
    use = SolverUse(solver=solver, issuer_kind="Issuer", get_secret=_no_secret, secrets_in="default")
    nothing = cast(Any, None)  # No webhook and no DNS host is asked.
    solvers = solver_factory.Solvers(AcmeOptions(), nothing, nothing, lambda: datetime.now(UTC))
    with pytest.raises(SolverNotAllowed, match=flag):
        await solvers.make(use)


@pytest.mark.parametrize("kind", ["exec", "webroot"])
async def test_a_challenge_that_admission_has_let_in_does_nothing_and_can_be_deleted(
    pebble: Pebble, tmp_path: Path, kind: str
) -> None:
    webroot: Json = {"waitInsteadOfSelfCheck": "1h", "http01": {"webroot": {"path": str(tmp_path / "www")}}}
    async with acme_world(pebble) as world:
        await world.issuer("le")
        await world.until(CLUSTER_ISSUERS, "le", lambda i: i.status.conditions[:1] != ())
        await post_challenge(world, challenge(program(tmp_path) if kind == "exec" else webroot))
        challenge_after = await world.until(CHALLENGES, "evil", lambda c: bool(c.status.reason))
        assert not challenge_after.status.presented
        await world.client.delete(CHALLENGES, "evil", "default")
        await until_gone(world)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "www").exists()


async def test_the_page_is_computed_and_not_taken_from_the_challenge(pebble: Pebble, tmp_path: Path) -> None:
    policy = OperatorPolicy(webroots=(str(tmp_path),))
    async with acme_world(pebble, policy=policy) as world:
        webroot: Json = {"http01": {"webroot": {"path": str(tmp_path)}}, "waitInsteadOfSelfCheck": "1h"}
        await world.issuer("root", solvers=[webroot])
        await world.certificate("page", "page.example.org", issuer="root")
        page = await page_in(tmp_path)
        token, dot, print_ = page.read_text().partition(".")
        assert (token, dot, len(print_)) == (page.name, ".", 43)


async def test_a_program_finds_nothing_of_the_servers_environment(
    pebble: Pebble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERTWRIGHT_ENCRYPTION_KEY", "the key of the Secrets")
    script = tmp_path / "hook.py"
    script.write_text(
        f"import os, pathlib; pathlib.Path({str(tmp_path / 'out')!r}).write_text(str(dict(os.environ)))"
    )
    policy = OperatorPolicy(
        exec_solvers={"hook": (sys.executable, "-I", str(script))}, exec_environment={"ZONE": "a"}
    )
    async with acme_world(pebble, policy=policy) as world:
        await world.issuer("hook", solvers=[{"exec": {"command": ["hook"]}, "waitInsteadOfSelfCheck": "0s"}])
        await world.certificate("env", "env.example.org", issuer="hook")
        await world.chain_of("env")
    variables = eval((tmp_path / "out").read_text())  # noqa: S307 - written by the program above
    variables.pop("LC_CTYPE", None)  # Python's own
    assert os.environ["PATH"] != variables["PATH"]
    assert set(variables) == {
        "PATH",
        "ZONE",
        *(f"ACME_{name}" for name in ("TYPE", "NAME", "WILDCARD", "TOKEN", "VALUE", "UID", "RECORD")),
    }
