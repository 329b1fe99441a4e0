"""An ordinary user for a test run by root, with a Python that this user may read.

Root's own Python and this project may be in folders that no other user may enter; then they are
linked file by file into a folder of the test.
"""

import os
import pwd
import shutil
import sys
import sysconfig
from pathlib import Path

import ltzd
from tests.support.instances.instance import OsUser

_NOT_NEEDED = ("test", "site-packages", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip")


def an_ordinary_user(folder: Path) -> OsUser:
    """The user `nobody`, who can write only to folders given to it."""
    nobody = pwd.getpwnam("nobody")
    place = folder / "python"
    place.mkdir()
    packages = place / "packages"
    _link(Path(sysconfig.get_path("purelib")), packages, "__editable__*")
    _link(Path(ltzd.__file__).parent, packages / "ltzd")
    return OsUser(
        nobody.pw_uid,
        nobody.pw_gid,
        _python(place),
        {
            "PYTHONPATH": str(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(place / "lib"),
            "HOME": str(folder / "nowhere"),
        },
    )


def _python(place: Path) -> str:
    """The interpreter below the virtual environment, or its links if it lies in a closed folder."""
    program = Path(sys.executable).resolve()
    if all(step.stat().st_mode & 0o001 for step in (program, *program.parents)):
        return str(program)
    (place / "bin").mkdir()
    linked = place / "bin" / program.name
    _link_or_copy(str(program), str(linked))
    library = Path(sysconfig.get_path("stdlib"))
    _link(library, place / "lib" / library.name, *_NOT_NEEDED, "config-*")
    for shared in library.parent.glob("libpython*"):
        _link_or_copy(str(shared.resolve()), str(place / "lib" / shared.name))
    return str(linked)


def _link(source: Path, target: Path, *but: str) -> None:
    ignore = shutil.ignore_patterns(*but)
    shutil.copytree(source, target, ignore=ignore, copy_function=_link_or_copy, dirs_exist_ok=True)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
