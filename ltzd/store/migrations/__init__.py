"""The schema as numbered revisions of plain SQL that only move forward.

`NNNN_*.sql` holds a revision's statements and `versions/rNNNN_*.py` its place in alembic's chain;
`upgrades` runs those that a database lacks. Begin with the newest `.sql` file.
"""

from pathlib import Path

_VERSIONS = Path(__file__).parent / "versions"


def known_revisions() -> list[str]:
    """Every revision of this program, oldest first, read from the files' names."""
    return sorted(path.name[1:5] for path in _VERSIONS.glob("r[0-9][0-9][0-9][0-9]_*.py"))
