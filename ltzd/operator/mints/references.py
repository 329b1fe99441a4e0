"""Compares the references that LTZ has used with those that the database has assigned."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import structlog

from ltzd.chain.contracts import ltz
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.second_opinions import Compared, compare_views
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import Stopped
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.wallet_history import (
    REFERENCES_A_WORD,
    first_free_word,
    first_unknown_reference,
)
from ltzd.values import Address

log = structlog.get_logger()

REFERENCES = "references"
"""Nodes show different used references after the same block."""
_WORDS_AT_ONCE = 32
"""Lanes take whole words, so that a word above an unused one may be used."""
_MOST_WORDS = 2**22
"""A billion references: LTZ has not used so many, whatever a node claims."""


async def first_free_seq(view: ChainView, contract: Address) -> int:
    """The first seq of the word above all references that LTZ has used; 0 if it has used none.

    If only one of several nodes shows references as used, other nodes are
    asked, since a lying node could claim so without end. Raises NodeUnavailable.
    """
    return await first_free_seq_by(partial(_prevailing_words, view, contract), 0)


async def first_free_seq_by(
    read_words: Callable[[int], Awaitable[Mapping[int, int]]], next_seq: int
) -> int:
    """As `first_free_seq`, from `next_seq` on; returns `next_seq` if nothing above is used.

    `read_words` reads some words of the bitmap, from an index on.
    """
    begin = next_seq // REFERENCES_A_WORD
    free, is_any_used = -(-next_seq // REFERENCES_A_WORD) * REFERENCES_A_WORD, False
    for index in range(begin, begin + _MOST_WORDS, _WORDS_AT_ONCE):
        words = await read_words(index)
        if not any(words.values()):
            return free if is_any_used else next_seq
        is_any_used |= first_unknown_reference(words, next_seq) is not None
        free = max(free, first_free_word(words))
    raise NodeUnavailable("The node shows more used references of LTZ than there can be")


async def _prevailing_words(view: ChainView, contract: Address, first: int) -> Mapping[int, int]:
    """Words of the bitmap from `first` on; other nodes are asked if any reference is used."""

    async def read(view: ChainView) -> Mapping[int, int]:
        return await words_from(view, contract, first)

    own = await read(view)
    if not any(own.values()):
        return own
    return (await compare_views(view, own, read, _fewest_used, REFERENCES)).answer


def _fewest_used(words: Mapping[int, int]) -> int:
    return -sum(bits.bit_count() for bits in words.values())


async def first_taken(view: ChainView, contract: Address, held: LaneReferences) -> int | None:
    """The lowest used reference among those that a lane may still give out; or None.

    Raises NodeUnavailable.
    """
    indexes = held.words()
    if not indexes:
        return None
    used = zip(indexes, await _read(view, contract, indexes), strict=True)
    taken = {index: bits & held.unused_in(index) for index, bits in used}
    return first_unknown_reference(taken, 0)


async def check_references(
    view: ChainView, contract: Address, next_seq: int, held: LaneReferences
) -> None:
    """Raises Stopped if LTZ has used a reference that the database has not given out.

    `next_seq` is the database's counter. `held` are the references that the lane may still give
    out, below the counter. A single node of several that claims so may lie, and stops nothing: if
    the node is right, LTZ refuses or skips the reference. Raises NodeUnavailable, also while no
    other node confirms the claim.
    """

    async def read(view: ChainView) -> int | None:
        return await _first_unknown(view, contract, next_seq, held)

    own = await read(view)
    if own is None:
        return
    compared: Compared[int | None] = await compare_views(view, own, read, _leniency, REFERENCES)
    unknown = compared.answer
    if unknown is None:
        log.error("lane.references_disputed", claimed=own)
        return
    if not compared.is_confirmed:
        raise NodeUnavailable("No other node confirms the used references of LTZ")
    raise Stopped(
        f"LTZ has minted reference {unknown}, which the database has not assigned: the "
        "database is an old copy, or another database mints. `ltzd restore check` compares "
        "the two and says what to do"
    )


def _leniency(reference: int | None) -> float:
    return math.inf if reference is None else reference


async def _first_unknown(
    view: ChainView, contract: Address, next_seq: int, held: LaneReferences
) -> int | None:
    """The lowest used reference that the database has not given out, or None."""
    words = await words_from(view, contract, next_seq // REFERENCES_A_WORD)
    taken = await first_taken(view, contract, held)
    return first_unknown_reference(words, next_seq) if taken is None else taken


async def words_from(view: ChainView, contract: Address, first: int) -> dict[int, int]:
    """Some words of the bitmap by index, from the index `first` on. Raises NodeUnavailable."""
    indexes = range(first, first + _WORDS_AT_ONCE)
    return dict(zip(indexes, await _read(view, contract, indexes), strict=True))


async def _read(view: ChainView, contract: Address, indexes: Sequence[int]) -> list[int]:
    try:
        answers = await view.views([(contract, ltz.ref_word_call(index)) for index in indexes])
    except RpcError as error:
        raise NodeUnavailable(f"refWord: {error.message}") from error
    return [int.from_bytes(answer, "big") for answer in answers]
