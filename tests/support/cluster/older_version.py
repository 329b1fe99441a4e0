"""The source tree of an older version of ltzd, from the repository's history."""

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
OLDER = "14647c20369f90f0508b52b98b831d510f99091b"
"""The last commit whose schema has revision 0027, and whose processes drain before they end."""


def older_checkout(folder: Path) -> Path:
    """Unpacks OLDER's package into the folder; skips the test in a clone without history."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed, so the older version cannot be read")
    archive = subprocess.run(
        (git, "-C", REPOSITORY, "archive", OLDER, "ltzd"),
        capture_output=True,
        check=False,
        timeout=60,
    )
    if archive.returncode:
        pytest.skip(f"This clone does not hold the older version's commit {OLDER}")
    subprocess.run(("tar", "-x", "-C", folder), input=archive.stdout, check=True, timeout=60)
    return folder
