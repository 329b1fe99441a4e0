"""Runs a revision's SQL file, statement by statement, in alembic's transaction."""

import re
from pathlib import Path

from alembic import op

_COMMENT = re.compile(r"--[^\n]*")
_END = re.compile(r";[ \t]*$", re.MULTILINE)


def statements(sql: str) -> list[str]:
    """The statements of a file in which every statement ends a line and no text holds `--`."""
    return [part.strip() for part in _END.split(_COMMENT.sub("", sql)) if part.strip()]


def run(name: str) -> None:
    sql = (Path(__file__).parent / name).read_text(encoding="utf-8")
    for statement in statements(sql):
        op.get_bind().exec_driver_sql(statement)
