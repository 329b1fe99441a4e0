"""Commands of the runbooks do what the pages say, for the user and beside the processes of ltzd."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from ltzd.store import database

PAGES = sorted((Path(__file__).parents[2] / "docs" / "runbooks").glob("*.md"))
_COMMAND = re.compile(r"^    (\S.*)$", re.MULTILINE)
_STATEMENT = re.compile(r"""psql "\$DATABASE_URL" -\w+ (['"])(.+?)\1""")
_QUERY = re.compile(r"^    (SELECT .+?);$|`(SELECT [^`]+ FROM [^`]+)`", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [command for page in PAGES for command in _COMMAND.findall(page.read_text())]


async def test_statements_on_the_url_of_ltzd_need_no_other_user(
    database_url: str,
) -> None:
    """ltzd's user owns its database and is nothing else (docs/deploy/production.md)."""
    statements = [text for each in commands() for _, text in _STATEMENT.findall(each)]
    assert len(statements) >= 4
    parts = urlsplit(database_url)
    at = parts.netloc.rpartition("@")[2]
    plain_url = parts._replace(netloc=f"plain:plain@{at}").geturl()
    owner = await database.connect(database_url, "test")
    try:
        await owner.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
        connection = await database.connect(plain_url, "test")
        try:
            for statement in statements:
                await connection.fetch(statement)
        finally:
            await connection.close()
    finally:
        await owner.execute("DROP ROLE IF EXISTS plain")
        await owner.close()


async def test_queries_are_of_tables_and_columns_that_exist(database_url: str) -> None:
    pages = "\n".join(page.read_text() for page in PAGES)
    pages = pages.replace(r"\x…", r"\x00").replace("(PID)", "(1)")
    queries = [indented or inline for indented, inline in _QUERY.findall(pages)]
    assert len(queries) >= 7
    connection = await database.connect(database_url, "test")
    try:
        for query in queries:
            await connection.prepare(query)
    finally:
        await connection.close()


def test_a_process_that_a_person_starts_takes_no_port_of_another() -> None:
    """The units give each process an admin port, which the settings file does not tell."""
    starts = [command for command in commands() if "ltzd run " in command]
    assert starts
    for command in starts:
        assert command.startswith("LTZD_ADMIN__PORT=0 ltzd run ")
