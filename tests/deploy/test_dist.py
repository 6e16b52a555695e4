"""What `make dist` and `make deb` build is installed in clean environments and used.

`make dist-test` runs all of it, `make test ALL=1` what needs no dist/.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from flit_core import buildapi

from certwright import __version__
from deploy.rights import ROOT
from support.programs import free_port, running
from support.real import require
from support.waiting import until_so

DIST = Path(os.environ.get("CERTWRIGHT_DIST", "")).absolute()
needs_dist = pytest.mark.skipif("CERTWRIGHT_DIST" not in os.environ, reason="`make dist-test` runs it")
BUILDER = ROOT / ".venv-dist" / "bin"
WHEEL = DIST / f"certwright-{__version__}-py3-none-any.whl"
EXECUTABLE = DIST / "certwright"
QUICKSTART = ROOT / "examples" / "quickstart.yaml"
USER = 65532
"""That of the image."""
_STATUS = """Package: {name}
Status: install ok installed
Architecture: all
Maintainer: nobody
Version: {version}
Description: not there

"""
_FROM_ENVIRONMENT = re.compile("(?i)^pip_|^uv_|_proxy$|^ssl_|^requests_")


def run(
    *words: str | Path, status: int = 0, cwd: Path | None = None, env: Mapping[str, str | Path] | None = None
) -> str:
    """Run a program in a clean environment with the variables of `env`, and return all that it prints."""
    kept = {name: value for name, value in os.environ.items() if _FROM_ENVIRONMENT.search(name)}
    environment = {"PATH": f"/usr/sbin:/sbin:{os.defpath}", "HOME": "/nonexistent", **kept}
    environment |= {name: str(value) for name, value in (env or {}).items()}
    command = [str(word) for word in words]
    done = subprocess.run(
        command,
        env=environment,
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def interpreter(minor: int) -> Path:
    """That Python of PATH. Skips the test where there is none."""
    for folder in os.environ["PATH"].split(os.pathsep):
        found = shutil.which(f"python3.{minor}", path=folder)
        shown = "import sys; print(sys.version_info[1], sys.executable)"
        if found is not None:
            done = subprocess.run([found, "-c", shown], capture_output=True, text=True, check=False)
            if done.stdout.startswith(f"{minor} "):
                return Path(done.stdout.split()[1])
    pytest.skip(f"python3.{minor} is not in PATH")


def test_wheel_and_source_archive_have_the_same_bytes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    digests = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        wheel = folder / buildapi.build_wheel(str(folder))
        source = folder / buildapi.build_sdist(str(folder))
        digests.add(hashlib.sha256(wheel.read_bytes() + source.read_bytes()).hexdigest())
    assert len(digests) == 1
    with ZipFile(wheel) as archive, tarfile.open(source) as sources:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
        names = [*archive.namelist(), *sources.getnames()]
    assert {"apprise", "doh", "etcd", "lexicon"} <= set(metadata.get_all("Provides-Extra", ()))
    assert metadata["Requires-Python"] == ">=3.11"
    assert not [name for name in names if "certwright-data" in name or name.endswith((".key", ".pyc"))]


@needs_dist
@pytest.mark.parametrize("program", ["pip", "pipx", "uv"])
def test_the_wheel_installs_in_a_clean_environment(program: str, tmp_path: Path) -> None:
    places = {"HOME": tmp_path, "PIPX_HOME": tmp_path / "pipx", "PIPX_BIN_DIR": tmp_path / "bin"}
    places |= {"UV_TOOL_DIR": tmp_path / "uv", "UV_TOOL_BIN_DIR": tmp_path / "bin"}
    base = Path(sys.base_prefix, "bin", "python3")
    if program == "pip":
        run(base, "-m", "venv", tmp_path)
        run(tmp_path / "bin" / "pip", "install", "--quiet", f"{WHEEL}[etcd,doh,lexicon,apprise]", env=places)
        run(tmp_path / "bin" / "python", "-c", "import apprise, h2, hpack, lexicon")
    elif program == "pipx":
        run(BUILDER / "pipx", "install", "--python", base, WHEEL, env=places)
    else:
        run(BUILDER / "uv", "tool", "install", "--python", base, WHEEL, env=places)
    assert __version__ in run(tmp_path / "bin" / "certwright", "version")


@needs_dist
@pytest.mark.parametrize("minor", [11, 12, 13])
def test_the_executable_starts_with_each_python(minor: int, tmp_path: Path) -> None:
    python = interpreter(minor)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(python)
    for name in ("uname", "sed"):
        (tmp_path / "bin" / name).symlink_to(require(name))
    places = {"HOME": tmp_path, "PATH": tmp_path / "bin"}
    for _ in range(2):  # it unpacks itself at the first start
        shown = run(EXECUTABLE, "version", env=places)
        assert f"(Python 3.{minor}." in shown
    shown = run(EXECUTABLE, "run", QUICKSTART, "--once", "--timeout", "3m", cwd=tmp_path, env=places)
    assert (tmp_path / "certwright-export" / "default" / "web" / "tls.crt").exists(), shown
    # As it starts DNS plug-ins; the extras are in it.
    itself = "subprocess.run([sys.executable, '-Psm', 'certwright', 'version'], check=True)"
    assert __version__ in run(
        EXECUTABLE,
        "-c",
        f"import subprocess, sys, apprise, h2, hpack, lexicon; {itself}",
        env={**places, "PEX_INTERPRETER": "1"},
    )


@needs_dist
def test_the_executable_names_the_pythons_that_it_needs(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    (tmp_path / "uname").symlink_to(require("uname"))
    shown = run(EXECUTABLE, "version", status=1, env={"PATH": tmp_path, "HOME": tmp_path})
    assert shown == (
        "error: certwright needs Python 3.11, 3.12 or 3.13 in PATH; "
        "on Debian and Ubuntu: apt install python3\n"
    )


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can enter; those of pytest are made private again by each pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_dist
@pytest.mark.skipif("os.geteuid() != 0", reason="only root starts a program as another user")
def test_an_environment_of_the_executable_serves_as_the_images_user(public: Path) -> None:
    home = public / "opt"
    # With Debian's Python: others may be private to their user.
    run(EXECUTABLE, "venv", home, env={"PEX_TOOLS": "1", "HOME": public})
    data, port = public / "data", free_port()
    data.mkdir(mode=0o700)
    os.chown(data, USER, USER)
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    certwright = [*as_user, "env", "-C", str(data), str(home / "bin" / "certwright")]
    with running([*certwright, "serve", "--listen", f"127.0.0.1:{port}"], public / "log", port):
        until_so((data / "certwright-data" / "kubeconfig").exists)
        subprocess.run([*certwright, "create", "ca", "office"], check=True)
        subprocess.run([*certwright, "wait", "certificate", "--all", "--for=condition=Ready"], check=True)
    owners = {path.stat().st_uid for path in data.rglob("*")}
    assert owners == {USER}


@needs_dist
@pytest.mark.skipif("os.geteuid() != 0", reason="dpkg installs for root")
def test_the_debian_package_is_installed_used_and_removed(tmp_path: Path) -> None:
    require("dpkg-deb", debian="dpkg")
    (package,) = DIST.glob("certwright_*.deb")
    root = tmp_path / "root"
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "etc").mkdir()
    status = root / "var/lib/dpkg/status"
    dpkg = ("dpkg", f"--root={root}", "--force-script-chrootless")
    # Its dependencies are those that Debian's packages have.
    status.write_text(
        _STATUS.format(name="python3", version="3.10.0") + _STATUS.format(name="libc6", version="2.36")
    )
    assert "certwright depends on python3 (>= 3.11)" in run(*dpkg, "-i", package, status=1)
    shutil.rmtree(root / "opt")
    status.write_text(
        _STATUS.format(name="python3", version="3.11.2") + _STATUS.format(name="libc6", version="2.36")
    )
    run(*dpkg, "-i", package)
    assert re.search(
        r"^certwright:.*:/var/lib/certwright:/usr/sbin/nologin$", (root / "etc/passwd").read_text(), re.M
    )
    assert run(*dpkg, "--verify", "certwright") == ""
    unit = (root / "usr/lib/systemd/system/certwright.service").read_text()
    config = "/etc/certwright/certwright.yaml"
    assert f"ExecStart=/usr/bin/certwright serve --config {config}\n" in unit
    assert "\nUser=certwright\n" in unit
    # The interpreter of the environment is Debian's, which is outside of this root.
    python = root / "opt/certwright/bin/python"
    assert __version__ in run(python, "-m", "certwright", "version")
    assert ": valid;" in run(python, "-m", "certwright", "config", "check", f"{root}{config}")
    name = run("/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])").strip()
    compiled = root / "opt/certwright/lib" / name / "site-packages/certwright/__pycache__"
    assert any(compiled.iterdir())
    (root / "etc/certwright/conf.d/50-own.yaml").write_text("")
    (root / "var/lib/certwright").mkdir()
    run(*dpkg, "--remove", "certwright")
    assert not (root / "opt/certwright").exists()
    assert (root / "etc/certwright/certwright.yaml").exists()
    assert "/var/lib/certwright is kept" in run(*dpkg, "--purge", "certwright")
    assert sorted(str(path.relative_to(root)) for path in (root / "etc/certwright").rglob("*.yaml")) == [
        "etc/certwright/conf.d/50-own.yaml"
    ]


@needs_dist
def test_the_executable_and_the_package_have_the_same_bytes_elsewhere(tmp_path: Path) -> None:
    for name in ("dist", "deb"):
        run(
            BUILDER / "python",
            ROOT / "deploy" / f"{name}.py",
            tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": tmp_path / "h"},
        )
    for path in tmp_path.iterdir():
        if path.is_file():
            assert path.read_bytes() == (DIST / path.name).read_bytes(), path.name
