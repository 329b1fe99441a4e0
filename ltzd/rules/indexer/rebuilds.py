"""When the fresh tables of a rebuild may take the place of the live ones, decided without I/O."""

import msgspec


class IndexHeight(msgspec.Struct, frozen=True):
    """How far an index has come: its cursor, the node's head when it last moved, and finality.

    A stopped index writes nothing until a person, or a rebuild, clears it.
    """

    cursor_number: int
    head_number: int
    final_number: int
    is_stopped: bool


def may_swap(fresh: IndexHeight, live: IndexHeight) -> bool:
    """Whether readers would still see after the swap all that they have seen before.

    The fresh tables must have reached the head, and what the live index holds. A live index that is
    stopped may be ahead on a chain that no longer exists, so its height does not count.
    """
    if fresh.is_stopped or fresh.cursor_number < fresh.head_number:
        return False
    return live.is_stopped or fresh.cursor_number >= live.cursor_number


def final_after_swap(fresh: IndexHeight, live: IndexHeight) -> int:
    """The final block from the swap on.

    Where nodes do not report finality, the fresh blocks were seen too recently to be final. The
    final block of a live index that is not stopped stays final.
    """
    if live.is_stopped:
        return fresh.final_number
    return max(fresh.final_number, min(live.final_number, fresh.cursor_number))
