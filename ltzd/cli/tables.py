"""Fits a table into a narrow terminal: rows become blocks of lines, so that no value is cut."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

_FOLDED_WIDTH = 8
"""The least columns in which folded text can be read."""


def fitted(page: RenderableType, width: int) -> RenderableType:
    """A table as it is if `width` columns hold it, else a block for each of its rows."""
    if not isinstance(page, Table) or not page.show_header or needed_width(page) <= width:
        return page
    return Group(*_blocks(page))


def needed_width(table: Table) -> int:
    """The columns in which nothing but folded text is broken."""
    padding = sum(table.padding[side] for side in (1, 3))
    return sum(_least_width(column) + padding for column in table.columns) - padding


def _least_width(column: Column) -> int:
    texts = [_text_of(each) for each in (column.header, *column.cells)]
    if column.no_wrap:
        return max(cell_len(line) for text in texts for line in text.splitlines() or [""])
    words = [cell_len(word) for text in texts for word in text.split()]
    if column.overflow == "fold":
        return min(max(words, default=0), max(column.min_width or 0, _FOLDED_WIDTH))
    if column.min_width is not None:
        return column.min_width
    return max(words, default=0) if all(map(_may_break, column.cells)) else _FOLDED_WIDTH


def _may_break(cell: RenderableType) -> bool:
    """False for text that is cut where its column is too narrow (`cut_text`)."""
    return not (isinstance(cell, Text) and cell.no_wrap)


def _text_of(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _blocks(table: Table) -> Iterator[RenderableType]:
    titles = [_text_of(column.header) for column in table.columns]
    name_width = max(map(cell_len, titles))
    for number, row in enumerate(zip(*(column.cells for column in table.columns), strict=True)):
        if number:
            yield ""
        block = Table.grid(
            Column(no_wrap=True, width=name_width), Column(overflow="fold"), padding=(0, 2, 0, 0)
        )
        for title, cell in zip(titles, row, strict=True):
            if title or _text_of(cell):
                block.add_row(title, cell)
        yield block
