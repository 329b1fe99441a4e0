"""The references that one mint lane may assign, decided without I/O.

LTZ keeps one bit for each seq, 256 to a word. A lane takes whole words from the counter that all
lanes of a chain share, so that lanes never contend for a reference. A lane may hold the rest of one
word and a following word at the same time, so a batch may span two words.
"""

from typing import Self

import msgspec

from ltzd.rules.operator.wallet_history import REFERENCES_A_WORD


class LaneReferences(msgspec.Struct, frozen=True):
    """The lane's seqs from `next_seq` to before `end_seq`, then the word at `following_seq`.

    `end_seq` is the end of a word. A lane without references has `next_seq` equal to `end_seq`.
    """

    next_seq: int = 0
    end_seq: int = 0
    following_seq: int | None = None

    @property
    def count(self) -> int:
        """How many references the lane may still give out."""
        following = 0 if self.following_seq is None else REFERENCES_A_WORD
        return self.end_seq - self.next_seq + following

    def with_word(self, first: int) -> Self:
        """Add the word that begins at `first`. The lane must hold no following word."""
        if self.following_seq is not None:
            raise ValueError("A lane holds two words at most")
        if self.next_seq == self.end_seq:
            return type(self)(first, first + REFERENCES_A_WORD)
        return type(self)(self.next_seq, self.end_seq, first)

    def take(self, count: int) -> tuple[list[int], Self]:
        """The next `count` seqs, and the references left. Raises ValueError if there are fewer."""
        if count > self.count:
            raise ValueError(f"The lane has {self.count} references, not {count}")
        rest = self.end_seq - self.next_seq
        first = self.following_seq
        if count < rest or first is None:
            after = self.next_seq + count
            left = type(self)(after, self.end_seq, first)
            return list(range(self.next_seq, after)), left
        after = first + count - rest
        left = type(self)(after, first + REFERENCES_A_WORD)
        return [*range(self.next_seq, self.end_seq), *range(first, after)], left

    def unused_in(self, word: int) -> int:
        """A bit for each seq of this word of the bitmap that the lane has not given out."""
        bits = 0
        if self.next_seq < self.end_seq and (self.end_seq - 1) // REFERENCES_A_WORD == word:
            bits = (1 << REFERENCES_A_WORD) - (1 << (self.next_seq % REFERENCES_A_WORD))
        if self.following_seq is not None and self.following_seq // REFERENCES_A_WORD == word:
            bits = (1 << REFERENCES_A_WORD) - 1
        return bits

    def words(self) -> list[int]:
        """The words of the bitmap in which the lane may still give out references."""
        words = [(self.end_seq - 1) // REFERENCES_A_WORD] if self.next_seq < self.end_seq else []
        if self.following_seq is not None:
            words.append(self.following_seq // REFERENCES_A_WORD)
        return words
