"""The audit of the lock files and their bills of materials."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAFE: dict[str, Any] = {"name": "aiohttp", "version": "3.14.0", "vulns": []}
VULNERABLE = SAFE | {"vulns": [{"id": "PYSEC-1", "aliases": [], "fix_versions": ["3.14.1"]}]}
UNKNOWN = {"name": "aiohttp", "skip_reason": "Dependency not found on PyPI"}
LEAKS = {"via": ["other", {"title": "Leaks", "url": "https://advisories.example/GHSA-1"}]}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder that comes first on PATH, with databases that know no vulnerability."""
    answers(tmp_path, "pip-audit", {"dependencies": [SAFE]})
    answers(tmp_path, "npm", {"vulnerabilities": {}})
    return tmp_path


def answers(folder: Path, program: str, answer: object) -> None:
    path = folder / program
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    path.chmod(0o700)


def audit(programs: Path) -> "subprocess.CompletedProcess[str]":
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [ROOT / "scripts" / "audit"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_locks_without_a_known_vulnerability_pass(programs: Path) -> None:
    done = audit(programs)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"audit: \d+ lock files compared, no known vulnerability\n", done.stdout)


def test_a_vulnerable_package_of_python_fails_the_audit(programs: Path) -> None:
    answers(programs, "pip-audit", {"dependencies": [UNKNOWN, VULNERABLE]})
    done = audit(programs)
    assert done.returncode == 1
    assert "requirements.lock: aiohttp 3.14.0: PYSEC-1, fixed in 3.14.1" in done.stderr


def test_a_vulnerable_package_of_npm_fails_the_audit(programs: Path) -> None:
    answers(programs, "npm", {"vulnerabilities": {"solc": LEAKS}})
    done = audit(programs)
    assert done.returncode == 1
    assert "contracts: solc: Leaks (https://advisories.example/GHSA-1)" in done.stderr


@pytest.mark.parametrize("answer", [{"dependencies": [UNKNOWN]}, {"message": "no"}, "no"])
def test_databases_out_of_reach_are_named_and_fail_nothing(programs: Path, answer: object) -> None:
    for program in ("pip-audit", "npm"):
        answers(programs, program, answer)
    done = audit(programs)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("audit: NOT COMPARED: ") for line in lines)


def test_the_bills_of_materials_list_what_the_locks_pin() -> None:
    environment = ROOT / "scripts" / "with-environment"
    done = subprocess.run(
        [environment, "deploy", ROOT / "scripts" / "sbom"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lock = (ROOT / "requirements-run.lock").read_text()
    pins = re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^ ;\\]+)", lock, re.MULTILINE)
    assert listed("run") == {(name.lower(), version) for name, version in pins}
    packages = json.loads((ROOT / "contracts" / "package-lock.json").read_text())["packages"]
    locked = {key.rpartition("node_modules/")[2]: each["version"] for key, each in packages.items()}
    assert listed("contracts").issubset(locked.items())
    assert ("solc", locked["solc"]) in listed("contracts")


def listed(name: str) -> set[tuple[str, str]]:
    bill = json.loads((ROOT / "dist" / "sbom" / f"{name}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    return {
        ("/".join(filter(None, (each.get("group"), each["name"]))).lower(), each["version"])
        for each in bill["components"]
    }
