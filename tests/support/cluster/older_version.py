"""The source tree of an older version of ltzd, from the repository's history."""

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
OLDER = "14647c20369f90f0508b52b98b831d510f99091b"
"""The last commit whose schema has revision 0027, and whose processes drain before they end."""
_UNKNOWN_CONVERSIONS = (
    Path("ltzd/store/background_migrations.py"),
    (
        "in await list_pending(connection):",
        'in [m for m in await list_pending(connection) if m.name.partition(" ")[0] in STEPS]:',
    ),
)
"""Its indexers end themselves at a conversion that they do not know, as docs/operations.md says.
With this they live on, as indexers of this version do."""


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
    path, (before, after) = _UNKNOWN_CONVERSIONS
    source = (folder / path).read_text()
    assert source.count(before) == 1
    (folder / path).write_text(source.replace(before, after))
    (folder / "contracts").symlink_to(REPOSITORY / "contracts")  # for its anvil
    return folder
