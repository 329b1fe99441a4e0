"""The nodes of one chain as one: who is asked first, and the state of each node."""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Self

from msgspec.structs import replace

from ltzd.chain.node.client import node_names
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.node import Node
from ltzd.chain.node.opening import open_rpc
from ltzd.chain.pool.chain_check import ChainMismatch, ExpectedChain, check_chain
from ltzd.chain.pool.clients import PoolClient
from ltzd.chain.pool.member import WATCH, Member
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.report import NodeReport, Unfit
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.choice import credible_height, is_behind, ranking
from ltzd.rules.nodes.disagreement import dissenters

CODE = "code"
"""Nodes show different code of LTZ."""
ROLES = ("http", "operator", "indexer", "deliveries", WATCH)


class NodePool:
    """Owns the clients of all nodes; use it as an async context manager.

    Before `expect`, every node may be asked; after it only nodes that have proven to belong to the
    expected chain.
    """

    def __init__(
        self,
        urls: Sequence[str],
        policy: NodePoolPolicy | None = None,
        clock: Clock = loop_time,
    ) -> None:
        self.policy = policy or NodePoolPolicy()
        self.clock = clock
        self._urls = list(urls)
        self._stack = AsyncExitStack()
        self._in_use: dict[str, int] = {}
        self._expected: ExpectedChain | None = None
        self.members: list[Member] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for name, url in zip(node_names(self._urls), self._urls, strict=True):
                has_peers = len(self._urls) > 1
                policy = self.policy.rpc_policy(has_peers=has_peers)
                limits = NodeLimits(name, clock=self.clock)
                clients = {
                    role: await stack.enter_async_context(open_rpc(url, policy, limits))
                    for role in ROLES
                }
                member = Member(name, clients, self.policy, self.clock, has_peers=has_peers)
                self.members.append(member)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def client(self, role: str) -> PoolClient:
        """The client of a role; each role has connections of its own to every node."""
        return PoolClient(self, role)

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """Name and client of each node, also of those that may not be used."""
        for member in self.members:
            yield member.name, Node(member.clients[WATCH])

    # Choice

    def ranked(self, role: str) -> list[Member]:
        """The nodes that may be asked, the best first. Raises NodeUnavailable if there is none."""
        members = [member for member in self.members if self._may_be_asked(member)]
        if len(members) > 1:
            members = self._sorted(role, members)
        if members:
            self._in_use[role] = id(members[0])
        else:
            for member in self.members:
                member.check_due.set()
            faults = ", ".join(f"{member.name} ({_reason(member)})" for member in self.members)
            raise NodeUnavailable(f"No node can be used: {faults}", kind="none_usable")
        return members

    def _sorted(self, role: str, members: Sequence[Member]) -> list[Member]:
        used = self._in_use.get(role)
        in_use = next((i for i, member in enumerate(members) if id(member) == used), None)
        observations = [member.observation() for member in members]
        policy = replace(self.policy.choice, tolerance_blocks=self.tolerance_blocks)
        return [members[position] for position in ranking(observations, in_use, policy)]

    def _preferred(self) -> Iterator[Member]:
        """The node that the next request of each role would ask first.

        Not the node of the last request: a process without requests would show a dead one.
        """
        members = [member for member in self.members if self._may_be_asked(member)]
        for role in self._in_use or ROLES[:1]:
            yield from self._sorted(role, members)[:1]

    def use(self, role: str, member: Member) -> None:
        """Make the node the one in use, which `ranked` leaves only for a better one."""
        self._in_use[role] = id(member)

    def _may_be_asked(self, member: Member) -> bool:
        if self._expected is None:
            return not member.is_excluded
        return member.is_verified

    def witnesses(self, member: Member, min_height: int) -> list[Member]:
        """The other nodes that may confirm this node, from `min_height` on, the best first."""
        others = [
            each for each in self.members if each is not member and self._may_confirm(each, member)
        ]
        return sorted(
            (each for each in others if each.head is not None and each.head.number >= min_height),
            key=lambda each: each.latency or 0.0,
        )

    def is_alone(self, member: Member) -> bool:
        """Whether no other node can be a witness, now or in a moment."""
        return not any(
            self._may_witness(each) or self._may_confirm(each, member)
            for each in self.members
            if each is not member
        )

    def _may_confirm(self, other: Member, member: Member) -> bool:
        """Whether `other` is usable, or as distrusted as `member`.

        Nodes that contradict each other are all distrusted. Then none of them may count as alone,
        or its word would be taken.
        """
        if self.is_usable(other):
            return True
        is_equal = member.is_distrusted and other.is_distrusted and self._may_be_asked(other)
        return is_equal and not other.is_open and not self._is_behind(other)

    def _may_witness(self, member: Member) -> bool:
        """Whether the node is usable, or has failed so lately that it may be back at once.

        A liar must not be believed because the other node is away for a moment.
        """
        if member.is_excluded or member.is_distrusted:
            return False
        answered_at = member.answered_at
        is_recent = (
            answered_at is not None and self.clock() - answered_at < self.policy.witness_seconds
        )
        return self.is_usable(member) or (member.is_open and is_recent)

    def is_usable(self, member: Member) -> bool:
        """Whether nothing speaks against asking the node first."""
        return (
            self._may_be_asked(member)
            and not member.is_open
            and not member.is_distrusted
            and not self._is_behind(member)
        )

    @property
    def credible_height(self) -> int:
        """The chain's height as far as the nodes can be believed; 0 before any answer."""
        heights = [
            member.head.number
            for member in self.members
            if member.head is not None and self._may_be_asked(member) and not member.is_distrusted
        ]
        return credible_height(heights, self.tolerance_blocks)

    def seconds_ahead(self, wall_clock: Clock = time.time) -> float | None:
        """How far the usable nodes' newest blocks are ahead of this machine's clock.

        The lower median of the nodes, so that no single one of three decides it. Below zero if the
        blocks are older. Returns None if no usable node has shown a block.
        """
        times = [
            member.head.timestamp
            for member in self.members
            if member.head is not None and self.is_usable(member)
        ]
        return statistics.median_low(times) - wall_clock() if times else None

    @property
    def tolerance_blocks(self) -> int:
        """How far a node's head may be below the others' without being behind.

        Nodes are checked one after the other, and a fast chain moves on meanwhile. No single one
        of three nodes decides it, or invented heights would hide every lag.
        """
        measured = [member.block_seconds for member in self.members if member.block_seconds]
        blocks = (
            math.ceil(self.policy.tolerance_seconds / statistics.median_low(measured))
            if measured
            else 0
        )
        most = self.policy.most_tolerance_blocks
        return max(self.policy.choice.tolerance_blocks, min(blocks, most))

    def _is_behind(self, member: Member) -> bool:
        height = member.head.number if member.head else None
        return is_behind(height, self.credible_height, self.tolerance_blocks)

    # The chain

    def expect(self, expected: ExpectedChain) -> None:
        """From now on only nodes of this chain are asked."""
        self._expected = expected

    async def verify(self, member: Member) -> bool:
        """Check the node's chain; returns whether it belongs. Raises NodeUnavailable."""
        expected = self._expected
        if expected is None:
            return True
        answer = await member.measured(check_chain(Node(member.clients[WATCH]), expected))
        if isinstance(answer, ChainMismatch):
            member.code_hash = None
            member.rejected(answer.verdict, answer.detail)
            return False
        member.code_hash = answer
        if member not in self._outvoted_on_code():
            member.verified()
        return member.is_verified

    def _outvoted_on_code(self) -> list[Member]:
        """Leave out, and return, the nodes with other code of LTZ than a majority shows.

        Without a majority all are reported and stay in use: a forger must not be the only one left.
        The next check verifies a node that was left out again, since the other nodes may have been
        the wrong ones.
        """
        known = [member for member in self.members if member.code_hash is not None]
        wrong = [known[at] for at in dissenters([member.code_hash for member in known])]
        if len(wrong) == len(known):
            for member in wrong:
                member.contest(CODE)
            return []
        for member in wrong:
            member.rejected(Unfit.NO_CONTRACT, "its code of LTZ is not the other nodes'")
        return wrong

    # Reports

    def reports(self) -> list[NodeReport]:
        """The state of each node, in the order of the settings."""
        now = self.clock()
        preferred = {id(member) for member in self._preferred()}
        return [
            NodeReport(
                name=member.name,
                is_usable=self.is_usable(member),
                is_preferred=id(member) in preferred or len(self.members) == 1,
                reason=self._reason(member),
                height=member.head.number if member.head else None,
                latency_seconds=member.latency,
                seconds_since_answer=(
                    None if member.answered_at is None else now - member.answered_at
                ),
                in_flight=member.in_flight,
                errors=dict(member.errors),
                detail=member.detail,
            )
            for member in self.members
        ]

    def _reason(self, member: Member) -> Unfit | None:
        reason = member.reason
        if reason is None and self._is_behind(member):
            return Unfit.BEHIND
        return reason


def _reason(member: Member) -> str:
    return (member.reason or Unfit.UNVERIFIED).value
