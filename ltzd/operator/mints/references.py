"""Compares the references that LTZ has used with those that the database has given out."""

from collections.abc import Sequence

from ltzd.chain.contracts import ltz
from ltzd.chain.node.rpc import RpcError
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

_WORDS_AT_ONCE = 32
"""Lanes take whole words, so that a word above an unused one may be used."""


async def first_free_seq(view: ChainView, contract: Address, next_seq: int = 0) -> int:
    """The first word of references above all that LTZ has used.

    Looks from the counter `next_seq` on; returns that if nothing above is used. A new database
    begins at 0. Raises NodeUnavailable.
    """
    first = -(-next_seq // REFERENCES_A_WORD)
    words: dict[int, int] = {}
    while not words or any(list(words.values())[-_WORDS_AT_ONCE:]):
        words |= await _words(view, contract, next_seq // REFERENCES_A_WORD + len(words))
    if first_unknown_reference(words, next_seq) is None:
        return next_seq
    return max(first * REFERENCES_A_WORD, first_free_word(words))


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
    out, below the counter. Raises NodeUnavailable.
    """
    words = await _words(view, contract, next_seq // REFERENCES_A_WORD)
    unknown = await first_taken(view, contract, held)
    if unknown is None:
        unknown = first_unknown_reference(words, next_seq)
    if unknown is not None:
        raise Stopped(
            f"LTZ has minted reference {unknown}, which the database has not given out: the "
            "database is an old copy, or another database mints. `ltzd restore check` compares "
            "the two and says what to do"
        )


async def _words(view: ChainView, contract: Address, first: int) -> dict[int, int]:
    indexes = range(first, first + _WORDS_AT_ONCE)
    return dict(zip(indexes, await _read(view, contract, indexes), strict=True))


async def _read(view: ChainView, contract: Address, indexes: Sequence[int]) -> list[int]:
    try:
        answers = await view.views([(contract, ltz.ref_word_call(index)) for index in indexes])
    except RpcError as error:
        raise NodeUnavailable(f"refWord: {error.message}") from error
    return [int.from_bytes(answer, "big") for answer in answers]
