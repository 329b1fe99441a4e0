"""A plugin that runs the tests' databases on this machine's PostgreSQL (`make campaign-postgres`).

The embedded one is the newest, and its letters are those of no language. Most servers in production
are older, and sort and fold letters as a language does. Here the language is Turkish, whose small I
has no dot; POSTGRES_LOCALE may name another of ICU's. PostgreSQL 14 has no ICU for databases.
POSTGRES_BIN is the folder of PostgreSQL's programs.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ltzd.dev.services import postgres

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path("/usr/bin")]
_BIN = Path(os.environ.get("POSTGRES_BIN") or _INSTALLED[-1])
_LOCALE = os.environ.get("POSTGRES_LOCALE") or "tr-TR"
_FIRST_WITH_ICU = 15


def pytest_configure() -> None:
    major = _major()
    postgres.MAJOR = str(major)
    postgres._program = lambda name: str(_BIN / name)
    initdb = postgres._initdb
    locale = ["--locale=C.UTF-8"]
    if major >= _FIRST_WITH_ICU:
        locale += ["--locale-provider=icu", f"--icu-locale={_LOCALE}"]
    postgres._initdb = lambda data_dir, unfinished: [
        *(each for each in initdb(data_dir, unfinished) if "locale" not in each),
        *locale,
    ]


def _major() -> int:
    try:
        version = subprocess.run([_BIN / "postgres", "--version"], capture_output=True, check=True)
    except OSError as error:
        raise pytest.UsageError(
            f"There is no PostgreSQL in {_BIN}: name it in POSTGRES_BIN"
        ) from error
    return int(version.stdout.split()[2].split(b".")[0])
