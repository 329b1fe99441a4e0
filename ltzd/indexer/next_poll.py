"""When the follower asks its node for the head again, and up to which height it asks for blocks.

A head that a node announces ends the wait, but while announcements lead to no block, a node that
repeats them causes no more polls than polling does.
"""

import asyncio

from ltzd.chain.node.answers.typed import Header
from ltzd.indexer.heads import HeadAnnouncements, NoAnnouncements
from ltzd.indexer.policy import IndexerPolicy
from ltzd.rules.indexer.block_times import BlockTimes, poll_seconds
from ltzd.store.indexer.chains import Cursor


class NextPoll:
    def __init__(self, policy: IndexerPolicy) -> None:
        self.heads: HeadAnnouncements = NoAnnouncements()
        self._policy = policy
        self._block_times = BlockTimes()
        self._announced = 0
        self._is_fruitless = False
        """Whether the last announcement has led to no block yet."""
        self._retry_seconds = policy.retry_seconds
        self._expected = 0
        """A height that the next poll reads up to: announced, or seen in the last poll."""

    async def wait(self, cursor: Cursor | None) -> None:
        """Wait until a node announces a head, or the next poll is due.

        An announced head that the node in use lacks is polled for soon, with growing pauses.
        """
        policy = self._policy
        if self._is_fruitless:
            await asyncio.sleep(self._retry_seconds)
            may_retry = self._retry_seconds < policy.poll_seconds
            self._retry_seconds = min(2 * self._retry_seconds, policy.poll_seconds)
            if may_retry and cursor is not None and self._announced > cursor.number:
                self._expected = self._announced
                return
        block_time = self._block_times.seconds()
        seconds = poll_seconds(block_time, policy.poll_seconds, policy.slowest_poll_seconds)
        announced = await self.heads.wait(seconds)
        self._is_fruitless = announced is not None
        self._announced = self._expected = announced or 0

    def expect(self, height: int) -> None:
        """Let the next poll read blocks up to this height."""
        self._expected = height

    def take_expected(self, cursor: Cursor) -> int:
        """The height up to which this poll reads blocks; 0 for none, or if that is too far."""
        expected, self._expected = self._expected, 0
        return expected if expected <= cursor.number + self._policy.head_blocks else 0

    def observe(self, head: Header, now: float) -> None:
        """Record a head that a poll has read at this time of the clock."""
        self._block_times = self._block_times.with_head(head.number, head.timestamp, now)
        self.heads.observe(head)

    def end_retries(self) -> None:
        """Blocks were read: what nodes announced was true."""
        self._is_fruitless, self._retry_seconds = False, self._policy.retry_seconds
