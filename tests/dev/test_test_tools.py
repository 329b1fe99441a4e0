"""The external programs of the tests: their installation by `make test`, and their absence."""

import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import tools

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test-tools"
ALWAYS = ("sh", "dirname", "timeout", "cat")
APT = """#!/bin/sh
echo "$*" >>"$LOG"
echo noise
echo noise >&2
[ "$1" = update ] && : >"$LOG.updated"
[ -f "$LOG.updated" ]
"""


class Machine:
    """A PATH with these programs only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ALWAYS:
            program = shutil.which(name)
            assert program is not None
            (folder / name).symlink_to(program)

    @property
    def apt_log(self) -> list[str]:
        return (self._folder / "log").read_text().splitlines()

    def add(self, name: str, text: str = "#!/bin/sh\n") -> None:
        path = self._folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self) -> tuple[int, str, str]:
        environment = {"PATH": str(self._folder), "LOG": str(self._folder / "log")}
        done = subprocess.run(
            [SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=10
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_where_everything_is_nothing_is_done_or_said(machine: Machine) -> None:
    machine.add("php")
    machine.add("chromium-browser")
    assert machine.run() == (0, "", "")


@pytest.mark.parametrize("user", ["0", "1000"])
def test_where_it_may_not_install_it_says_so_in_a_line(machine: Machine, user: str) -> None:
    machine.add("php")
    machine.add("id", f"#!/bin/sh\necho {user}\n")
    if user != "0":
        machine.add("apt-get", APT)
    code, out, err = machine.run()
    assert (code, out) == (0, "")
    assert err.startswith("ltzd: chromium could not be installed, so the tests that need it are")
    assert err.count("\n") == 1


def test_root_installs_what_is_missing_and_only_that(machine: Machine) -> None:
    machine.add("chromium")
    machine.add("id", "#!/bin/sh\necho 0\n")
    machine.add("apt-get", APT)
    assert machine.run() == (0, "Installing php-cli for the tests (once) …\n", "")
    # The first look finds nothing: the lists of a bare machine are empty.
    commands = [line.partition(" ")[0] for line in machine.apt_log]
    assert commands == ["install", "update", "install"]
    assert machine.apt_log[-1].endswith(" php-cli")


@pytest.mark.parametrize("find", [tools.chromium_path, tools.php_path])
def test_a_test_without_its_program_is_skipped_and_says_what_to_install(
    find: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=r"apt-get install (chromium|php-cli)"):
        find()
