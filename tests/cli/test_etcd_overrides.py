"""`serve --etcd-servers-overrides`: the contents of some resources on another etcd."""

from __future__ import annotations

import asyncio
import itertools
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trustme

from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import RANGE, RangeRequest
from certwright.kube.store.etcd.rows import Layout
from certwright.resources.certificate import Certificate
from certwright.resources.table import CERTIFICATES
from cli.calls import PATIENT, Process
from cli.test_etcd import ALONE, FIRST, ISSUERS, apply, call, is_issued, issued, stopped, until
from cli.test_etcd import ENCRYPTION_KEY as KEY
from support.etcd import Etcd, running_etcd
from support.programs import free_port
from support.real import require

Start = Callable[..., Process]
REQUESTS = "cert-manager.io/certificaterequests"
LAYOUT = Layout("/certwright")


@pytest.fixture
def etcds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Etcd]]:
    """The main etcd, and two others."""
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / name for name in ("main", "second", "third")]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        yield [stack.enter_context(running_etcd(folder)) for folder in folders]


def options(etcds: list[Etcd]) -> tuple[str, ...]:
    """The store: Secrets and requests have their contents on the others."""
    main, second, third = etcds
    overrides = f"/secrets#http://{second.member},{REQUESTS}#http://{third.member}"
    return ("--store", main.url, "--etcd-servers-overrides", overrides)


def served(start: Start, folder: str, *flags: str) -> Process:
    """A server that is ready."""
    process = start("serve", "--data-dir", folder, "--listen", "127.0.0.1:0", *KEY, *ALONE, *flags)
    assert process.line().startswith("certwright is ready"), process.rest().err
    return process


async def bodies(etcd: Etcd | Access) -> list[bytes]:
    """The bucket of each body that an etcd has."""
    access = etcd if isinstance(etcd, Access) else Access((etcd.member,))
    client, begin = EtcdClient(access), LAYOUT.body
    response = await client.call(RANGE, RangeRequest(key=begin, range_end=begin[:-1] + b"0", keys_only=True))
    await client.close()
    return [kv.key[len(begin) :].partition(b"\0")[0] for kv in response.kvs]


def kubectl(*words: str) -> str:
    """What kubectl prints."""
    command = [require("kubectl"), "--kubeconfig", "one/kubeconfig", "-n", "default", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_certificates_are_issued_and_renewed_and_a_killed_server_goes_on(
    start: Start, etcds: list[Etcd]
) -> None:
    flags = options(etcds)
    one = served(start, "one", *flags)
    apply("one", *ISSUERS, *FIRST[:20])
    ready = ("wait", "certificates", "--all", "-n", "default", "--for=condition=Ready", *PATIENT)
    call(*ready, "--kubeconfig", "one/kubeconfig")
    names = kubectl("get", "secrets", "-o", "name").split()
    assert len([name for name in names if name.startswith("secret/first-")]) == 20
    assert kubectl("get", "secret", "first-3", "-o", "jsonpath={.data.tls\\.crt}")
    assert "BEGIN" not in kubectl("get", "secrets")
    main, second, third = (asyncio.run(bodies(etcd)) for etcd in etcds)
    assert not {b"secrets", REQUESTS.encode()} & set(main)
    assert set(second) == {b"secrets"}
    assert set(third) == {REQUESTS.encode()}
    one.kill(signal.SIGKILL)
    one.rest()
    one = served(start, "one", *flags)
    call("renew", "--all", "-n", "default", "--kubeconfig", "one/kubeconfig")
    renewed = partial(is_renewed, prefix="first")
    asyncio.run(until("one", CERTIFICATES, 20, renewed))
    stopped(one)
    call("backup", "--data-dir", "one", *KEY, *flags, "one.backup")
    assert len(issued("one.backup")) >= 40


def test_the_files_of_the_main_etcd_s_tls_are_those_of_the_others(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ca = trustme.CA()
    ca.cert_pem.write_to_path("ca.crt")
    for name in ("127.0.0.1", "client.test"):
        leaf = ca.issue_cert(name, common_name=name)
        leaf.private_key_pem.write_to_path(f"{name}.key")
        leaf.cert_chain_pems[0].write_to_path(f"{name}.crt")
    listener = (
        f"--cert-file={tmp_path / '127.0.0.1.crt'}",
        f"--key-file={tmp_path / '127.0.0.1.key'}",
        f"--trusted-ca-file={tmp_path / 'ca.crt'}",
        "--client-cert-auth=true",
    )
    (tmp_path / "other").mkdir()
    with (
        running_etcd(tmp_path, tls=listener) as main,
        running_etcd(tmp_path / "other", tls=listener) as other,
    ):
        flags = (
            *("--store", main.url, "--etcd-servers-overrides", f"/secrets#https://{other.member}"),
            *("--etcd-cafile", "ca.crt", "--etcd-certfile", "client.test.crt"),
            *("--etcd-keyfile", "client.test.key"),
        )
        server = served(start, "one", *flags)
        apply("one", *ISSUERS, *FIRST[:3])
        asyncio.run(until("one", CERTIFICATES, 3, partial(is_issued, prefix="first")))
        assert kubectl("get", "secret", "first-1", "-o", "jsonpath={.data.tls\\.crt}")
        stopped(server)
        access = Access(
            (main.member,),
            tls=True,
            ca_file=Path("ca.crt"),
            cert_file=Path("client.test.crt"),
            key_file=Path("client.test.key"),
        )
        assert b"secrets" not in asyncio.run(bodies(access))
        assert set(asyncio.run(bodies(replace(access, members=(other.member,))))) == {b"secrets"}


def is_renewed(certificate: Certificate, prefix: str) -> bool:
    """Whether it is a Ready Certificate whose second revision is issued."""
    return is_issued(certificate, prefix) and certificate.status.revision == 2


def test_a_backup_moves_contents_between_etcds(start: Start, etcds: list[Etcd]) -> None:
    main, *_ = etcds
    overridden, plain = options(etcds), ("--store", main.url, "--etcd-prefix", "/plain")
    one = served(start, "one", *overridden)
    apply("one", *ISSUERS, *FIRST[:5])
    asyncio.run(until("one", CERTIFICATES, 5, partial(is_issued, prefix="first")))
    stopped(one)
    stores = [overridden, (), plain, overridden]
    before = None
    for number, (source, target) in enumerate(itertools.pairwise(stores)):
        folders = f"at{number}" if number else "one", f"at{number + 1}"
        call("backup", "--data-dir", folders[0], *KEY, *source, f"{number}.backup")
        restored = call("restore", "--force", "--data-dir", folders[1], *KEY, *target, f"{number}.backup")
        assert shlex.join(target) in restored
        assert ("--etcd-servers-overrides" in restored) == (target is overridden)
        before = before or issued(f"{number}.backup")
        assert issued(f"{number}.backup") == before
    again = served(start, "at3", *overridden)
    call("get", "certificates", "-n", "default", "--kubeconfig", "at3/kubeconfig")
    stopped(again)
    call("backup", "--data-dir", "at3", *KEY, *overridden, "last.backup")
    assert before
    assert before.items() <= issued("last.backup").items()
    for etcd in etcds[1:]:
        assert asyncio.run(bodies(etcd))


def test_a_server_with_other_overrides_does_not_start(start: Start, etcds: list[Etcd]) -> None:
    stopped(served(start, "one", *options(etcds)))
    main, second, _ = etcds
    listen = ("--listen", "127.0.0.1:0", *KEY, "--store", main.url)
    for flags in ((), ("--etcd-servers-overrides", f"/secrets#http://{second.member}")):
        refused = start("serve", "--data-dir", "one", *listen, *flags).rest()
        assert refused.status == 1
        assert f"start with --etcd-servers-overrides '/secrets#http://{second.member}," in refused.err
    failed = start("backup", "--data-dir", "one", "--store", main.url, *KEY, "file").rest()
    assert failed.status == 1
    assert "start with --etcd-servers-overrides" in failed.err


def test_another_etcd_that_cannot_be_reached_is_named(start: Start, etcds: list[Etcd]) -> None:
    port = free_port()
    flags = ("--store", etcds[0].url, "--etcd-servers-overrides", f"/secrets#http://127.0.0.1:{port}")
    refused = start("serve", "--data-dir", "one", "--listen", "127.0.0.1:0", *flags).rest()
    assert refused.status == 1
    assert f"etcd at 127.0.0.1:{port} cannot be reached" in refused.err


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/secrets", "write GROUP/RESOURCE#URL"),
        ("secrets#http://h:1", "write /secrets#"),
        ("/secrets#h:1", "h:1: write http://HOST:PORT"),
        ("/secrets#http://h:1;", "write http://HOST:PORT"),
        ("/secrets#http://h:1/path", "more than a host and a port"),
        ("/secrets#http://me:hush@h:1", "the URL of h has a user; give --etcd-user"),
        ("/secrets#http://h:123456", "is not a URL"),
        ("/secrets#http://h:1,/secrets#http://i:1", "/secrets is named twice"),
        (",", "write GROUP/RESOURCE#URL"),
        ("/pods/status#http://h:1", "write GROUP/RESOURCE#URL"),
        ("/secret#http://h:1", "/secret: not a resource of this server; did you mean /secrets?"),
        ("/certificates#http://h:1", "did you mean cert-manager.io/certificates?"),
        ("example.com/things#http://h:1", "custom resources of others stay on the etcd of --store"),
        ("events.k8s.io/events#http://h:1", "stored as /events; name that"),
        ("/secrets#https://h:1", "with --store etcd://e1 it has to be http://h:1"),
        ("/secrets#http://e1", "that is the etcd of --store"),
        ("/secrets#http://h:1;http://i:1,/configmaps#http://i:1", "http://i:1 is a server of /secrets, too"),
    ],
)
def test_what_makes_no_sense_is_told(start: Start, value: str, words: str) -> None:
    flags = ("--store", "etcd://e1", "--etcd-servers-overrides", value)
    outcome = start("serve", "--listen", "127.0.0.1:0", *flags).rest()
    assert outcome.status in (1, 2)
    assert words in outcome.err
    assert "hush" not in outcome.err


def test_overrides_need_an_etcd(start: Start) -> None:
    flags = ("--listen", "127.0.0.1:0", "--etcd-servers-overrides", "/secrets#http://h:1")
    outcome = start("serve", *flags).rest()
    assert outcome.status == 1
    assert "need --store etcd://" in outcome.err
