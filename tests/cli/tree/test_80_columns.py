"""On a terminal of 80 columns every list shows ids, states and amounts whole."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path
from uuid import uuid4

import pytest
from rich.console import Console
from rich.table import Column, Table

from ltzd.cli.books import views as books_views
from ltzd.cli.books.views import BrandFigures, Report
from ltzd.cli.tables import fitted, needed_width
from ltzd.rules.books import Figures
from ltzd.rules.brands.configuration import Brand
from ltzd.store.books.figures import ALL_TIME
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import address_of

WIDTH = 80
DEMO = Brand(
    id="0x" + "aa" * 20,
    name="A brand with a name that is long",
    domains=("a-long-domain.example", "another-long-domain.example"),
    webhook_url="https://a.example/hooks",
)


async def on_a_terminal(*arguments: object) -> str:
    """The output of a command on a terminal of 80 columns."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ltzd", *map(str, arguments)),
        stdin=there,
        stdout=there,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"TERM": "dumb"},
    )
    os.close(there)
    output = await asyncio.to_thread(_read_all, here)
    assert await process.wait() == 0
    os.close(here)
    return output.replace("\r\n", "\n")


def _read_all(descriptor: int) -> str:
    content = b""
    try:
        while chunk := os.read(descriptor, 65_536):
            content += chunk
    except OSError:  # Linux tells the end of a terminal so
        pass
    return content.decode()


def shown(page: object, width: int = WIDTH) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(page)
    return captured.get()


async def test_lists_of_a_real_database_keep_their_ids(db: Connection, data_dir: Path) -> None:
    await brands.apply(db, DEMO, Sealer.from_file(data_dir / "master.key"))
    webhook, subject = uuid4(), uuid4()
    await db.execute(
        """
        INSERT INTO webhooks (id, brand_id, kind, subject, revoked, state, attempts, next_at,
                              last_error)
        VALUES ($1, $2, 'ltz_distributed', $3, false, 'pending', 12, now(), 'it answered 410')
        """,
        *(webhook, DEMO.address, subject),
    )

    webhooks = await on_a_terminal("webhooks", "list", "--data-dir", data_dir)
    listed = await on_a_terminal("brand", "list", "--data-dir", data_dir)

    assert max(map(len, (webhooks + listed).splitlines())) <= WIDTH
    for text in (f"msg_{webhook.hex}", str(subject), DEMO.id, "ltz_distributed", "pending", "12"):
        assert text in webhooks
    for text in (DEMO.id, "active"):
        assert text in listed


def test_the_figures_of_the_books_fit() -> None:
    figures = Figures(
        answered=1_234_567, answered_ltz=123_456_789, minted=1_234_567, minted_ltz=123_456_789
    )
    brand = BrandFigures(address_of(DEMO.id), DEMO.name, figures)
    report = Report(ALL_TIME, (brand,), (), None, ())

    text = shown(fitted(books_views.table(report), WIDTH))

    assert max(map(len, text.splitlines())) <= WIDTH
    assert DEMO.id in text
    assert "123,456,789 LTZ" in text
    assert "…" not in text


def a_table(*columns: Column) -> Table:
    table = Table(*columns, box=None, padding=(0, 2, 0, 0))
    table.add_row("a" * 42, "word " * 10, "")
    table.add_row("b" * 42, "w" * 60, "remark")
    return table


@pytest.mark.parametrize(("width", "is_table"), [(80, True), (59, False)])
def test_a_table_becomes_blocks_only_where_it_does_not_fit(width: int, is_table: bool) -> None:
    table = a_table(Column("id", no_wrap=True), Column("text", overflow="fold"), Column(""))

    assert needed_width(table) == 42 + 2 + 8 + 2 + 6
    page = fitted(table, width)
    text = shown(page, width)

    assert (page is table) == is_table
    assert max(map(len, text.splitlines())) <= width
    assert text.count("a" * 42) == text.count("b" * 42) == 1
    assert "".join(text.split()).count("w") >= 60
    assert "remark" in text
    assert "…" not in text
