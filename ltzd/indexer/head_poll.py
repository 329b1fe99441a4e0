"""Polls a node for its head, its `finalized`, and the blocks above the cursor if they are expected.

If a higher head was announced, one request reads the head, these blocks and their logs.
"""

from collections.abc import Sequence

import msgspec

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.indexer.contracts import IndexedContract, NodeLog
from ltzd.indexer.reading import addresses
from ltzd.rules.indexer.reorgs import CursorVerdict, compare
from ltzd.store.indexer.chains import Cursor


class HeadPoll(msgspec.Struct, frozen=True):
    """`final` is the node's `finalized`.

    `headers` and `logs` are of the blocks right above the cursor; both are empty if no blocks were
    requested, if the node lacks the first of them, or if the node refuses so many at once.
    """

    head: Header
    final: int | None
    verdict: CursorVerdict
    headers: Sequence[Header | None] = ()
    logs: Sequence[NodeLog] = ()


async def poll_head(
    node: Node, cursor: Cursor, contracts: Sequence[IndexedContract], expected: int
) -> HeadPoll:
    """Poll a node; reads the blocks up to height `expected`, too, if that is above the cursor."""
    headers: Sequence[Header | None] = ()
    logs: Sequence[NodeLog] = ()
    if expected > cursor.number:
        head, final, headers, logs = await node.head_and_next(
            cursor.number + 1, expected, *addresses(contracts)
        )
        if not headers or headers[0] is None:
            headers, logs = (), ()
    else:
        head, final = await node.head_and_final()
    after = headers[0] if headers else None
    if head.number == cursor.number:
        at_cursor = head.hash
    elif head.number == cursor.number + 1:
        at_cursor = head.parent_hash
    elif after is not None:
        at_cursor = after.parent_hash
    elif head.number > cursor.number and (header := await node.block(cursor.number)):
        at_cursor = header.hash
    else:
        at_cursor = None
    verdict = compare(cursor.number, cursor.hash, head.number, at_cursor)
    return HeadPoll(head, final, verdict, headers, logs)
