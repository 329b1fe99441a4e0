"""The schema as numbered revisions of plain SQL that only move forward.

`NNNN_*.sql` holds a revision's statements and `versions/rNNNN_*.py` its place in alembic's chain;
`upgrades` runs those that a database lacks. Begin with the newest `.sql` file.
"""

import ast
from pathlib import Path

_VERSIONS = Path(__file__).parent / "versions"


def known_revisions() -> list[str]:
    """Every revision of this program, oldest first, read from the files' names."""
    return sorted(path.name[1:5] for path in _VERSIONS.glob("r[0-9][0-9][0-9][0-9]_*.py"))


def describe_revision(revision: str) -> str:
    """The sentence that the revision's module begins with."""
    (path,) = _VERSIONS.glob(f"r{revision}_*.py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
