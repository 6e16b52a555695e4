"""What the house weighs: lines and modules of each package. `python -m house.size` lowers the figures in
size.toml to those of now; a figure is raised by hand."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("size.toml")

_HEAD = """\
# [lines, modules] of each package, at most. A change that needs more raises the figure in the same commit; a
# comment on its line says which user needs it. `make size` lowers the figures to what is there.
"""


def weigh() -> dict[str, tuple[int, int]]:
    """Lines and modules of each package (those of `kube` apart), and of src, tests and bench as wholes."""
    source = ROOT / "src" / "certwright"
    kube = source / "kube"
    packages = [path for path in (*source.iterdir(), *kube.iterdir()) if path.is_dir() and path != kube]
    folders = [
        *(path for path in packages if any(path.rglob("*.py"))),
        *(ROOT / name for name in ("src", "tests", "bench")),
    ]
    weights = {}
    for folder in folders:
        texts = [path.read_bytes() for path in folder.rglob("*.py")]
        weights[folder.relative_to(ROOT).as_posix()] = (sum(text.count(b"\n") for text in texts), len(texts))
    return dict(sorted(weights.items()))


def figures() -> dict[str, tuple[int, int]]:
    return {name: (lines, modules) for name, (lines, modules) in tomllib.loads(FILE.read_text()).items()}


def main() -> None:
    """Lower the figures; what is commented at the end of a line stays."""
    known = figures() if FILE.exists() else {}
    comments = {}
    for line in FILE.read_text().splitlines() if FILE.exists() else ():
        name, _, rest = line.partition(" = ")
        comments[name.strip('"')] = "  #" + rest.partition("#")[2] if "#" in rest else ""
    rows = []
    for name, now in weigh().items():
        lines, modules = map(min, now, known.get(name, now))
        rows.append(f'"{name}" = [{lines}, {modules}]{comments.get(name, "")}\n')
    FILE.write_text(_HEAD + "".join(rows))


if __name__ == "__main__":
    main()
