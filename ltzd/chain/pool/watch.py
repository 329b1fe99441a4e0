"""Follows each node's head, and finds the nodes that are dead, hung, behind, foreign or lying.

Each node is checked by a task of its own, so that a node that hangs delays no other check. A node
whose circuit is open is checked once after each of its growing pauses.
"""

import asyncio
import contextlib

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.pool.member import WATCH, Member
from ltzd.chain.pool.pool import NodePool
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.disagreement import dissenters
from ltzd.values import Hash32

HEAD_WITHOUT_BLOCKS = "head_without_blocks"
"""A node claims a head far above the others' and cannot show the block below it."""
BLOCK_HASH = "block_hash"
"""Nodes show different blocks at a height where they have long agreed on one."""


_STRAGGLER_SECONDS = 1.0


class NodeWatch:
    """`run` watches until it is cancelled; `check` checks one node once."""

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._policy = pool.policy

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for member in self._pool.members:
                group.create_task(self._watch(member))
            if len(self._pool.members) > 1:
                group.create_task(self._compare_often())

    async def check_all(self) -> None:
        """Check every node once, so that the first requests find the best one.

        Returns a second after the first node has proven its chain, or once every check would have
        been given up: a hung node must not delay the start.
        """
        checks = {asyncio.create_task(self.check(member)) for member in self._pool.members}
        try:
            pending = checks
            while pending and not any(member.is_verified for member in self._pool.members):
                done, pending = await asyncio.wait(
                    pending,
                    timeout=self._policy.pinned_timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
            if pending:
                await asyncio.wait(pending, timeout=_STRAGGLER_SECONDS)
        finally:
            for check in checks:
                check.cancel()

    async def _watch(self, member: Member) -> None:
        while True:
            await self.check(member)
            await self._pause(member)

    async def _pause(self, member: Member) -> None:
        """Wait until the next check is due: sooner if the circuit opens, or if no node is left."""
        member.check_due.clear()
        await asyncio.sleep(self._policy.shortest_pause)
        seconds = member.seconds_to_probe() if member.is_open else self._policy.watch_pause
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await member.check_due.wait()

    async def check(self, member: Member) -> None:
        """Verify the node's chain if that is due, and read its head. Raises nothing."""
        # The only node may be as slow as its requests' own timeout allows.
        has_peers = len(self._pool.members) > 1
        try:
            async with asyncio.timeout(self._policy.pinned_timeout if has_peers else None):
                if self._is_proof_due(member) and not await self._pool.verify(member):
                    return
                node = Node(member.clients[WATCH])
                head = await member.measured(node.block("latest"))
                if head is None or not await self._check_lead(member, node, head):
                    return
                # A head that falls may be another chain's.
                if self._has_fallen(member, head) and not await self._pool.verify(member):
                    return
                member.observe_head(head)
        except TimeoutError:
            member.failed("timeout", "The node accepts requests and does not answer")
        except NodeUnavailable:
            pass  # The member has counted it.

    def _is_proof_due(self, member: Member) -> bool:
        proven_at = member.verified_at
        if not member.is_verified or proven_at is None:
            return True
        return self._pool.clock() - proven_at >= self._policy.verify_pause

    def _has_fallen(self, member: Member, head: Header) -> bool:
        before = member.head
        return before is not None and head.number < before.number - self._pool.tolerance_blocks

    async def _check_lead(self, member: Member, node: Node, head: Header) -> bool:
        """Distrust a node that cannot show the block below a head far above all others.

        Return whether the head counts: a node that invents heights would make honest nodes look
        behind.
        """
        others = [each for each in self._pool.members if each is not member and each.head]
        highest = max((each.head.number for each in others if each.head), default=None)
        tolerance = self._pool.tolerance_blocks
        if highest is None or head.number <= highest + tolerance:
            return True
        below = await member.measured(node.block(head.number - 1))
        if below is not None and below.hash == head.parent_hash:
            return True
        newer = await member.measured(node.block("latest"))
        if newer is not None and newer.hash == head.hash:
            member.distrust(HEAD_WITHOUT_BLOCKS)
        return False

    # Comparison of blocks

    async def _compare_often(self) -> None:
        while True:
            await asyncio.sleep(self._policy.compare_pause)
            await self.compare()

    async def compare(self) -> None:
        """Compare the nodes' blocks at one height below the head; dissenters are distrusted.

        Nodes that disagree without a majority are all reported and stay in use: nobody can tell
        which of them is right, and each remains a witness against the others.
        """
        depth = max(self._policy.compare_depth, 2 * self._pool.tolerance_blocks)
        height = self._pool.credible_height - depth
        members = [member for member in self._pool.members if self._pool.is_usable(member)]
        if height <= 0 or len(members) < 2:
            return
        hashes = await asyncio.gather(*(self._hash_at(member, height) for member in members))
        known = [
            (member, hash_)
            for member, hash_ in zip(members, hashes, strict=True)
            if hash_ is not None
        ]
        wrong = dissenters([hash_ for _, hash_ in known])
        for position in wrong:
            member, shown = known[position]
            # A reorg may have been under way between the answers: ask once more.
            if await self._hash_at(member, height) != shown:
                continue
            if len(wrong) < len(known):
                member.distrust(BLOCK_HASH)
            else:
                member.contest(BLOCK_HASH)

    async def _hash_at(self, member: Member, height: int) -> Hash32 | None:
        try:
            async with asyncio.timeout(self._policy.pinned_timeout):
                header = await member.measured(Node(member.clients[WATCH]).block(height))
                return header.hash if header else None
        except (TimeoutError, NodeUnavailable, RpcError):
            return None
