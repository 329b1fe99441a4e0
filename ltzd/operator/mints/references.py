"""Compares the references that LTZ has used with those that the database has assigned."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from ltzd.chain.contracts import ltz
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.second_opinions import Question, compare_with_others
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.policy import Stopped
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.wallet_history import (
    REFERENCES_A_WORD,
    first_free_word,
    first_unknown_reference,
)
from ltzd.values import Address, Hash32

log = structlog.get_logger()

REFERENCES = "references"
"""Nodes show different used references after the same block."""
_WORDS_AT_ONCE = 32
"""Lanes take whole words, so that a word above an unused one may be used."""
_MOST_WORDS = 2**22
"""A billion references: LTZ has not used so many, whatever a node claims."""


async def first_free_seq(view: ChainView, contract: Address, next_seq: int = 0) -> int:
    """The first word of references above all that LTZ has used.

    Looks from the counter `next_seq` on; returns that if nothing above is used. A new database
    begins at 0. If only one of several nodes shows references as used, other nodes are asked, since
    a lying node could claim so without end. Raises NodeUnavailable.
    """
    begin = next_seq // REFERENCES_A_WORD
    free, is_any_used = -(-next_seq // REFERENCES_A_WORD) * REFERENCES_A_WORD, False
    for index in range(begin, begin + _MOST_WORDS, _WORDS_AT_ONCE):
        words = await _prevailing_words(view, contract, index)
        if not any(words.values()):
            return free if is_any_used else next_seq
        is_any_used |= first_unknown_reference(words, next_seq) is not None
        free = max(free, first_free_word(words))
    raise NodeUnavailable("The node shows more used references of LTZ than there can be")


@dataclass(frozen=True, slots=True)
class _Words:
    """Words of LTZ's bitmap, by index, after the block with this hash."""

    bits: Mapping[int, int]
    block_hash: Hash32


async def _prevailing_words(view: ChainView, contract: Address, first: int) -> Mapping[int, int]:
    """Words of the bitmap from `first` on; other nodes are asked if any reference is used."""

    async def ask(other: Node) -> _Words:
        theirs = await ChainView.newest(other)
        return _Words(await _words(theirs, contract, first), theirs.head.hash)

    own = _Words(await _words(view, contract, first), view.head.hash)
    if not any(own.bits.values()):
        return own.bits
    question = Question(ask, _fewest_used, _differ, REFERENCES)
    return (await compare_with_others(view.node, own, question)).answer.bits


def _fewest_used(words: _Words) -> int:
    return -sum(bits.bit_count() for bits in words.bits.values())


def _differ(first: _Words, second: _Words) -> bool:
    return first.block_hash == second.block_hash and first.bits != second.bits


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


@dataclass(frozen=True, slots=True)
class _Claim:
    """The lowest unknown reference that a node shows after the block with this hash, or None."""

    reference: int | None
    block_hash: Hash32


async def check_references(
    view: ChainView, contract: Address, next_seq: int, held: LaneReferences
) -> None:
    """Raises Stopped if LTZ has used a reference that the database has not given out.

    `next_seq` is the database's counter. `held` are the references that the lane may still give
    out, below the counter. A single node of several that claims so may lie, and stops nothing: if
    the node is right, LTZ refuses or skips the reference. Raises NodeUnavailable, also while no
    other node confirms the claim.
    """

    async def claim_at(view: ChainView) -> _Claim:
        reference = await _first_unknown(view, contract, next_seq, held)
        return _Claim(reference, view.head.hash)

    async def ask(other: Node) -> _Claim:
        return await claim_at(await ChainView.newest(other))

    own = await claim_at(view)
    if own.reference is None:
        return
    compared = await compare_with_others(
        view.node, own, Question(ask, _leniency, _contradict, REFERENCES)
    )
    unknown = compared.answer.reference
    if unknown is None:
        log.error("lane.references_disputed", claimed=own.reference)
        return
    if not compared.is_confirmed:
        raise NodeUnavailable("No other node confirms the used references of LTZ")
    raise Stopped(
        f"LTZ has minted reference {unknown}, which the database has not assigned: the "
        "database is an old copy, or another database mints. `ltzd restore check` compares "
        "the two and says what to do"
    )


def _leniency(claim: _Claim) -> float:
    return math.inf if claim.reference is None else claim.reference


def _contradict(first: _Claim, second: _Claim) -> bool:
    return first.block_hash == second.block_hash and first.reference != second.reference


async def _first_unknown(
    view: ChainView, contract: Address, next_seq: int, held: LaneReferences
) -> int | None:
    words = await _words(view, contract, next_seq // REFERENCES_A_WORD)
    taken = await first_taken(view, contract, held)
    return first_unknown_reference(words, next_seq) if taken is None else taken


async def _words(view: ChainView, contract: Address, first: int) -> dict[int, int]:
    indexes = range(first, first + _WORDS_AT_ONCE)
    return dict(zip(indexes, await _read(view, contract, indexes), strict=True))


async def _read(view: ChainView, contract: Address, indexes: Sequence[int]) -> list[int]:
    try:
        answers = await view.views([(contract, ltz.ref_word_call(index)) for index in indexes])
    except RpcError as error:
        raise NodeUnavailable(f"refWord: {error.message}") from error
    return [int.from_bytes(answer, "big") for answer in answers]
