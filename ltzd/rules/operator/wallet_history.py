"""Whether a database knows all that a wallet and LTZ have done on chain, decided without I/O.

A database that lacks its last commits would assign used nonces and references again.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ltzd.rules.nodes.disagreement import prevailing

REFERENCES_A_WORD = 256
"""LTZ keeps a bit for each reference's seq, in words of this many bits."""


class WalletHistory(msgspec.Struct, frozen=True):
    """One node's view of a wallet, beginning with the node's `name`.

    `used` nonces are mined as of block `head`. `pending` is the nonce after those that the node
    would mine next; it equals `used` if the node tells no pending ones. `pooled` are the nonces in
    its pool, also behind a gap; empty if the node does not show its pool.
    """

    name: str
    head: int
    used: int
    pending: int
    pooled: tuple[int, ...] = ()


def agrees_on_used(histories: Sequence[WalletHistory]) -> bool:
    return len({history.used for history in histories}) == 1


def contradict_each_other(histories: Sequence[WalletHistory]) -> bool:
    """Whether a node shows more used nonces than another one whose head is not below its own."""
    return any(
        history.used > other.used and history.head <= other.head
        for history in histories
        for other in histories
    )


def next_free(histories: Iterable[WalletHistory], stored: Iterable[int] = ()) -> int:
    """The first nonce that no block, no pool, and no transaction in `stored` has taken.

    `stored` are the nonces of the database's transactions in flight, which will be published.
    """
    views = list(histories)
    nonce = max(max(history.used, history.pending) for history in views)
    taken = {nonce for history in views for nonce in history.pooled} | set(stored)
    while nonce in taken:
        nonce += 1
    return nonce


def behind_gap(histories: Iterable[WalletHistory], free: int) -> list[int]:
    """The nonces in the pools that wait for the nonce `free`, in order."""
    return sorted({nonce for history in histories for nonce in history.pooled if nonce > free})


def prevailing_used(histories: Iterable[WalletHistory]) -> int:
    """The number of used nonces that counts: the middle one of three, of two the lower one."""
    return prevailing([history.used for history in histories], lambda used: -used)


def ahead_of(histories: Iterable[WalletHistory], next_nonce: int) -> list[WalletHistory]:
    """The nodes that show the wallet's nonce `next_nonce`, or a later one, as taken."""
    return [
        history
        for history in histories
        if max(history.used, history.pending) > next_nonce
        or any(nonce >= next_nonce for nonce in history.pooled)
    ]


def are_outvoted(ahead: Sequence[WalletHistory], histories: Sequence[WalletHistory]) -> bool:
    """Whether the nodes that are `ahead` of the database are fewer than the others.

    Transactions go to two nodes at once and spread. So one node of three lies if it alone shows
    some of them.
    """
    return 2 * len(ahead) < len(histories)


def is_outvoted_on_next(histories: Sequence[WalletHistory]) -> bool:
    """Whether most nodes show the last nonce before `next_free` as free, whatever their heads."""
    last_taken = next_free(histories) - 1
    return are_outvoted(ahead_of(histories, last_taken), histories)


def first_unknown_reference(words: Mapping[int, int], next_seq: int) -> int | None:
    """The lowest used reference at or above `next_seq`, or None if there is none.

    `words` are words of LTZ's bitmap by index.
    """
    for index in sorted(words):
        first = index * REFERENCES_A_WORD
        bits = words[index] >> max(0, next_seq - first) << max(0, next_seq - first)
        if bits:
            return first + (bits & -bits).bit_length() - 1
    return None


def first_free_word(words: Mapping[int, int]) -> int:
    """The seq with which the first word above every used one begins."""
    used = [index for index, bits in words.items() if bits]
    return (max(used) + 1) * REFERENCES_A_WORD if used else 0
