"""Builds the Debian package from dist/certwright. `make deb`.

The package has a virtual environment below /opt/certwright with what each supported Python needs: one fits
Debian 12 and 13 and Ubuntu 24.04, and an upgrade of the distribution leaves it working. Files that are equal
for several Pythons are hard links. The same commit gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import dist
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

FOLDER = dist.ROOT / "deploy" / "debian"
SCRIPTS = ("postinst", "prerm", "postrm")
HOME = PurePosixPath("/opt/certwright")
NAME, EMAIL = "certwright maintainers", "maintainers@certwright.invalid"
"""Who maintains a package that nobody has published, as names below .invalid reach nobody (RFC 2606)."""
PROGRAM = f"""#!{HOME}/bin/python
import sys
from certwright.__main__ import main
sys.exit(main())
"""
# The packages' own tests, and what cel-expr-python has of its build.
LEFT_OUT = {"tests", "bazel-project", ".prefix"}


def main() -> None:
    """Build into the directory that is named, `dist` by default, from the executable there."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    os.chdir(dist.ROOT)
    os.environ.setdefault("SOURCE_DATE_EPOCH", dist.time_of_commit())
    shown = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    architecture = shown.stdout.strip()
    with tempfile.TemporaryDirectory() as folder, ZipFile(out / dist.EXECUTABLE) as executable:
        root = Path(folder, "root")
        root.mkdir(mode=0o755)
        version = _environment(executable, root / str(HOME).lstrip("/"))
        _files(root)
        _control(root, version, architecture)
        for path in root.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        package = out / f"certwright_{version}_{architecture}.deb"
        # zstd: dpkg reads it since Debian 12 and Ubuntu 21.10, and unpacks 400 MB in two seconds.
        options = ["--root-owner-group", "-Zzstd", "-z12"]
        subprocess.run(["dpkg-deb", *options, "--build", str(root), str(package)], check=True, stdout=2)
    print(package)


def _environment(executable: ZipFile, home: Path) -> str:
    """Write the virtual environment to `home`, and return the version of certwright."""
    scripts = home / "bin"
    scripts.mkdir(parents=True)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (scripts / "python").symlink_to("/usr/bin/python3")
    (scripts / "certwright").write_text(PROGRAM)
    (scripts / "certwright").chmod(0o755)
    wheels = sorted(
        {name.split("/")[1] for name in executable.namelist() if name.startswith(".deps/")} - {""}
    )
    folders: dict[str, list[Path]] = {wheel: [] for wheel in wheels}
    version = ""
    for python in dist.PYTHONS:
        folder = home / "lib" / f"python{python[0]}.{python[1]}" / "site-packages"
        for wheel, (project, version_of_wheel) in _fitting(executable, wheels, python).items():
            folders[wheel].append(folder)
            version = version_of_wheel if project == "certwright" else version
    for name in sorted(executable.namelist()):
        _, _, path = name.partition("/")
        wheel, _, path = path.partition("/")
        left_out = path.endswith("/") or path == ".layout.json" or LEFT_OUT & set(path.split("/"))
        if wheel in folders and path and not left_out:
            _write(executable.read(name), [folder / path for folder in folders[wheel]])
    return version


def _fitting(executable: ZipFile, wheels: list[str], python: tuple[int, int]) -> dict[str, tuple[str, str]]:
    """The wheels for that Python, with name and version: of each project the newest that its first patch
    release can use, because Debian has an early one."""
    tags, first = frozenset(dist.tags_of(python)), f"{python[0]}.{python[1]}.0"
    newest: dict[str, tuple[Version, str]] = {}
    for wheel in wheels:
        project, version, _, of_wheel = parse_wheel_filename(wheel)
        metadata = executable.read(
            f".deps/{wheel}/{'-'.join(wheel.split('-')[:2])}.dist-info/METADATA"
        ).decode()
        required = re.search(r"^Requires-Python: *(.+)$", metadata.partition("\n\n")[0], re.M)
        if tags & of_wheel and SpecifierSet(required[1] if required else "").contains(first):
            newest[project] = max(newest.get(project, (version, wheel)), (version, wheel))
    return {wheel: (project, str(version)) for project, (version, wheel) in newest.items()}


def _write(content: bytes, paths: list[Path]) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path is paths[0]:
            path.write_bytes(content)
            path.chmod(0o644)
        else:
            path.hardlink_to(paths[0])


def _files(root: Path) -> None:
    """Write what is outside of the virtual environment."""
    units = dist.ROOT / "deploy" / "systemd"
    unit, follower = ((units / f"certwright{name}.service").read_text() for name in ("", "-export@"))
    for name, content in {
        "usr/lib/systemd/system/certwright.service": unit.replace("/bin/env certwright", "/bin/certwright"),
        "usr/lib/systemd/system/certwright-export@.service": follower,
        "usr/lib/sysusers.d/certwright.conf": (FOLDER / "sysusers.conf").read_text(),
        "etc/certwright/certwright.yaml": (units / "certwright.yaml").read_text(),
        "usr/share/doc/certwright/copyright": (FOLDER / "copyright").read_text(),
        "usr/share/doc/certwright/CHANGELOG.md": (dist.ROOT / "CHANGELOG.md").read_text(),
    }.items():
        _write(content.encode(), [root / name])
    (root / "etc/certwright/conf.d").mkdir()
    (root / "usr/bin").mkdir()
    (root / "usr/bin/certwright").symlink_to(HOME / "bin" / "certwright")


def _control(root: Path, version: str, architecture: str) -> None:
    """Write the package's metadata and scripts."""
    control = root / "DEBIAN"
    control.mkdir()
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    inodes = {path.stat().st_ino: path.stat().st_size for path in files}
    text = (FOLDER / "control").read_text()
    sizes = {"VERSION": version, "ARCHITECTURE": architecture, "SIZE": str(sum(inodes.values()) >> 10)}
    sizes["MAINTAINER"] = f"{os.environ.get('DEBFULLNAME', NAME)} <{os.environ.get('DEBEMAIL', EMAIL)}>"
    for mark, value in sizes.items():
        text = text.replace(f"@{mark}@", value)
    (control / "control").write_text(text)
    (control / "conffiles").write_text("/etc/certwright/certwright.yaml\n")
    (control / "triggers").write_text("interest-noawait /usr/bin/python3\n")
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files)  # noqa: S324 - dpkg's format
    (control / "md5sums").write_text("".join(sums))
    for name in SCRIPTS:
        shutil.copyfile(FOLDER / name, control / name)
        (control / name).chmod(0o755)


if __name__ == "__main__":
    main()
