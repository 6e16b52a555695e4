"""The walls and the words: what the documentation says is there, is there."""

from __future__ import annotations

import ast
import configparser
import importlib
import re
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import click
import pytest

from certwright.cli.main import COMMANDS, program

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "certwright"
PACKAGES = sorted(
    p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("__init__.py") if p.parent != SOURCE
)
MODULES = sorted(p for p in SOURCE.rglob("*.py"))
SERVER = SOURCE / "kube" / "apiserver"
SERVER_PACKAGES = sorted(p.parent.name for p in SERVER.glob("*/__init__.py"))


@dataclass
class Module:
    """What these tests need of a module, from one pass over its tree."""

    docstring: str
    docstrings: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)
    """Modules and their members, imported at the top, for types only, or in functions."""
    late_imports: list[int] = field(default_factory=list)
    """The lines where a function imports a module of ours."""


def read_module(text: str) -> Module:
    tree = ast.parse(text)
    module, seen = Module(ast.get_docstring(tree) or ""), set[ast.AST]()
    for node in ast.walk(tree):
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING"), body=body):
                seen.update(body)
            case ast.ImportFrom(module=source, names=names):
                module.imported |= {f"{source}.{alias.name}" for alias in names}
                if node.col_offset and node not in seen and (node.level or is_ours(source or "")):
                    module.late_imports.append(node.lineno)
            case ast.Import(names=names) if node.col_offset and any(is_ours(alias.name) for alias in names):
                module.late_imports.append(node.lineno)
            case ast.Expr(value=ast.Constant(value=str(prose)) as constant):
                module.docstrings.append(prose)
                seen.add(constant)
            case ast.Constant(value=str(string)) if node not in seen:
                module.strings.append(string)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.ClassDef(name=name):
                module.names.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                module.names.append(name)
    return module


@cache
def all_modules() -> dict[Path, Module]:
    return {path: read_module(path.read_text()) for path in MODULES}


def docstring_of(path: Path) -> str:
    return all_modules()[path].docstring


def test_each_package_says_what_belongs_there() -> None:
    headings = ("May import:", "Does not hold:")
    lacking = [
        (package, heading)
        for package in PACKAGES
        for heading in headings
        if heading not in docstring_of(SOURCE / package / "__init__.py")
    ]
    assert lacking == []


def test_each_module_says_what_it_is() -> None:
    assert [path for path in MODULES if not docstring_of(path)] == []


def test_every_file_that_the_walk_names_exists() -> None:
    walk = (ROOT / "docs" / "walk.md").read_text()
    named = set(re.findall(r"`([a-z_/]+\.py)`", walk))
    assert len(named) > 20
    missing = [name for name in named if not (SOURCE / name).exists()]
    assert not missing


def test_every_file_that_a_comment_or_docstring_names_exists() -> None:
    files = {path.name for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py")}
    named = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in MODULES
        for name in re.findall(r"(\w+\.py)\b", path.read_text())
    }
    assert len(named) > 50
    assert not {(path, name) for path, name in named if name not in files}


def test_every_package_is_in_the_description_of_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    top = {name.partition("/")[0] for name in PACKAGES}
    inner = {name.rpartition("/")[2] for name in PACKAGES if name.startswith("kube/apiserver/")}
    missing = [name for name in sorted(top | inner) if not re.search(rf"(^|[`/ ]){name}\b", text, re.M)]
    assert not missing


def options_of(command: click.Command) -> set[str]:
    own = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(options_of, inner))


# Of kubectl, etcd and `make bench`; every command has --help.
FLAGS_OF_OTHERS = {"--help", "--server-side", "--quota-backend-bytes", "--max-request-bytes", "--only"}
FLAGS_OF_OTHERS |= {"--auto-compaction-mode"}  # etcd
FLAGS_OF_OTHERS |= {"--cases", "--list", "--number", "--override"}  # `make bench`
FLAGS_OF_OTHERS |= {"--no-deps", "--no-build-isolation", "--set"}  # pip, Helm
FLAGS_OF_OTHERS |= {"--debug"}  # of `certwright` itself


def test_every_flag_that_the_documentation_names_exists() -> None:
    context = click.Context(program)
    commands = [program.get_command(context, name) for section in COMMANDS.values() for name in section]
    known = FLAGS_OF_OTHERS.union(
        *(options_of(command) for command in (program, *commands) if command is not None)
    )
    # Those in docs/howto/ have the flags of many other programs: see tests/howto.
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "howto"]
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *docs]
    unknown = [
        f"{page.name}: {flag}"
        for page in pages
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])", page.read_text())
        if flag not in known
    ]
    assert not unknown


def test_every_make_target_that_the_documentation_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.M))
    assert {"run", "test"} <= named <= targets


def test_the_contract_on_steps_names_every_step() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    listed = contracts["importlinter:contract:steps"]["modules"].split()
    headed = [
        "certwright." + p.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
        for p in (SOURCE / "controllers").rglob("*.py")
        if re.search(r"^Wakes on:", docstring_of(p), re.M)
    ]
    assert sorted(headed) == sorted(listed)


def test_each_step_has_its_four_lines() -> None:
    for path in (SOURCE / "controllers").rglob("*.py"):
        text = docstring_of(path)
        if "Wakes on:" in text:
            for heading in ("Wakes on:", "Reads:", "Writes:", "Next:"):
                assert re.search(rf"^{heading}", text, re.M), f"{path.name} lacks {heading}"


def test_nothing_that_is_published_names_an_index_or_a_path_of_one_machine() -> None:
    for path in [*(ROOT / "requirements").iterdir(), ROOT / "Makefile", ROOT / "pyproject.toml"]:
        assert not re.search(r"https?://|/root/|/work/", path.read_text()), path.name


MAX_LATE_IMPORTS = 12
TABLES_OF_MODULES = {
    "cli/lazy.py",
    "cli/main.py",
    "issuers/table.py",
    "kube/apiserver/cel/overloads.py",
}
"""What loads modules by name: a table each."""


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "certwright"


def test_functions_import_nothing_of_ours_unless_it_costs_what_a_user_feels() -> None:
    late = {
        path.relative_to(SOURCE).as_posix(): module.late_imports for path, module in all_modules().items()
    }
    assert sum(map(len, late.values())) <= MAX_LATE_IMPORTS
    unexplained = [
        f"{name}:{line}"
        for name, lines in late.items()
        for line in lines
        if "  # " not in (SOURCE / name).read_text().splitlines()[line - 1]
    ]
    assert not unexplained, "a late import has its reason beside it: what loading it costs"


def test_no_module_imports_itself_through_others() -> None:
    names = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in MODULES}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {
        name: {
            imported if imported in modules else imported.rpartition(".")[0]
            for imported in all_modules()[path].imported
        }
        & modules.keys() - {name}
        for name, path in modules.items()
    }
    assert sum(map(len, graph.values())) > 2_000
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("package", SERVER_PACKAGES)
def test_packages_of_the_server_import_what_their_docstrings_say(package: str) -> None:
    text = docstring_of(SERVER / package / "__init__.py").partition("May import:")[2].partition("\n")[0]
    allowed = {name for name in SERVER_PACKAGES if re.search(rf"\b{name}\b", text)}
    if text.endswith("and below"):
        layers = server_layers()
        allowed |= set().union(*layers[1 + min(n for n, layer in enumerate(layers) if layer & allowed) :])
    pattern = re.compile(r"from certwright\.kube\.apiserver\.(\w+)")
    imported = {
        name for path in (SERVER / package).rglob("*.py") for name in pattern.findall(path.read_text())
    }
    assert imported & set(SERVER_PACKAGES) <= allowed | {package}


def server_layers() -> list[set[str]]:
    """The packages of the API server, from the highest layer to the lowest."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    lines = contracts["importlinter:contract:apiserver-layers"]["layers"].split("\n")
    return [set(line.split(" | ")) for line in lines if line]


def test_modules_are_loaded_by_name_in_tables_only() -> None:
    users = {path.relative_to(SOURCE).as_posix() for path in MODULES if "import_module(" in path.read_text()}
    # Libraries without types for mypy.
    untyped = {"acme/solvers/dns01/child/lexicon.py", "kube/util/decoders.py"}
    assert users - untyped <= TABLES_OF_MODULES


def test_importing_the_command_line_does_not_load_the_server() -> None:
    cli = importlib.import_module("certwright.cli.main")
    tree = ast.parse(Path(cli.__file__ or "").read_text())
    top = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    names = " ".join(ast.unparse(n) for n in top)
    for heavy in ("certwright.app", "aiohttp", "rich", "cryptography", "uvloop"):
        assert heavy not in names


PERSON_WORDS = re.compile(r"\b(somebody|nobody|whoever|anybody|told|tells|hears|anew)\b", re.IGNORECASE)
STORY_WORDS = re.compile(
    PERSON_WORDS.pattern[:-3] + r"|tell|hear|held|let go|meanwhile|all the same|of its own|so many)\b",
    re.IGNORECASE,
)


COMMENT = re.compile(r"^[^\"'\n]*?#(.*)$", re.M)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_in(kind: str) -> str:
    """All docstrings and comments, all other strings, or the words of all identifiers."""
    modules = all_modules().values()
    if kind == "identifiers":
        return " ".join(word for module in modules for word in WORD.findall(" ".join(module.names)))
    if kind == "strings":
        return "\n".join(text for module in modules for text in module.strings)
    docstrings = [text for module in modules for text in module.docstrings]
    return "\n".join([*docstrings, *(text for path in MODULES for text in COMMENT.findall(path.read_text()))])


@pytest.mark.parametrize("kind", ["docstrings and comments", "strings", "identifiers"])
def test_docstrings_messages_and_identifiers_use_the_terms_of_the_field(kind: str) -> None:
    text = words_in(kind)
    words = len(text.split())
    assert words > 10_000
    assert len(PERSON_WORDS.findall(text)) <= 2 * words / 10_000
    assert len(STORY_WORDS.findall(text)) <= 1.5 * words / 1_000


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / "docs").rglob("*.md"),
]


def test_the_documentation_uses_the_terms_of_the_field() -> None:
    # Not in code blocks: they quote output.
    prose = " ".join(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M) for page in PAGES)
    words = len(prose.split())
    assert len(PERSON_WORDS.findall(prose)) <= 2 * words / 10_000
    assert len(STORY_WORDS.findall(prose)) <= 1.5 * words / 1_000


def test_every_thread_of_our_own_is_on_the_page_of_processes() -> None:
    page = (ROOT / "docs" / "processes.md").read_text()
    makers = re.compile(r"(?<![\w.])(?:threading\.)?(?:Threads?|SideLoop|SideListener|ThreadPoolExecutor)\(")
    owners = [path for path in MODULES if makers.search(path.read_text())]
    named = re.compile(r'(?:name=f?|thread_name_prefix=|Side(?:Loop|Listener)\()"([\w-]+)')
    names = {name for path in owners for name in named.findall(path.read_text())}
    assert len(names) >= 5
    assert not [name for name in sorted(names) if name not in page]


def test_what_runs_is_pinned_for_make_test_too() -> None:
    pinned = re.compile(r"^([a-z0-9-]+==\S+)", re.M)
    names = ("runtime", "test")
    runtime, test = (pinned.findall((ROOT / "requirements" / f"{name}.lock").read_text()) for name in names)
    assert len(runtime) > 20
    assert {*runtime} <= {*test}, "`make lock` pins both"
