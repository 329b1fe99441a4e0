"""A pool among nodes that answer anything: hypothesis chooses heights, faults and their order."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ltzd.chain.node.rpc import RpcCall, RpcError
from ltzd.chain.node.traits import NodeTraits
from ltzd.chain.pool.chain_check import ExpectedChain
from ltzd.chain.pool.member import Member
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.pool import ROLES, NodePool
from ltzd.chain.pool.watch import NodeWatch
from ltzd.errors import NodeFaultKind, NodeUnavailable
from ltzd.rules.nodes.choice import credible_height
from ltzd.values import Hash32
from tests.support.chain.node_fleet import CHAIN_ID, LTZ, FleetNode, block_hash

KINDS: Sequence[NodeFaultKind] = (
    "refused_connection",
    "timeout",
    "http_status",
    "malformed",
    "oversized",
    "rate_limited",
    "busy",
    "behind",
    "other",
)
POLICY = NodePoolPolicy(hedge_after=0.01)


class AnyRpc:
    """Answers as `node` says, or fails with `fault`."""

    def __init__(self, node: FleetNode) -> None:
        self.node = node
        self.fault: NodeFaultKind | None = None
        self.errs = False
        self.traits = NodeTraits()

    async def call(self, method: str, *params: object) -> Any:
        if self.fault is not None:
            raise NodeUnavailable("as the test says", kind=self.fault)
        if self.errs and method == "who":
            raise RpcError(-32000, "as the test says")
        return self.node.result_of(method, list(params))

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        return [await self.call(method, *params) for method, params in calls]

    outcomes = batch
    batched_call = call


class PoolMachine(RuleBasedStateMachine):
    """Time is the test's own; every look at a node is one step."""

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.now = 0.0
        self.rpcs = [AnyRpc(FleetNode(str(number))) for number in range(count)]
        self.pool = NodePool(["http://node"] * count, POLICY, lambda: self.now)
        for rpc in self.rpcs:
            clients: dict[str, Any] = dict.fromkeys(ROLES, rpc)
            self.pool.members.append(
                Member(rpc.node.name, clients, POLICY, lambda: self.now, has_peers=count > 1)
            )
        self.pool.expect(ExpectedChain(CHAIN_ID, Hash32(bytes.fromhex(block_hash(0)[2:])), LTZ))
        self.watch = NodeWatch(self.pool)
        self.run(self.watch.check_all())

    def run(self, action: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(action)

    @rule(which=st.integers(0, 3), fault=st.none() | st.sampled_from(KINDS))
    def break_or_mend(self, which: int, fault: NodeFaultKind | None) -> None:
        self.rpcs[which % len(self.rpcs)].fault = fault

    @rule(which=st.integers(0, 3), height=st.integers(1, 1000))
    def move_head(self, which: int, height: int) -> None:
        self.rpcs[which % len(self.rpcs)].node.height = height

    @rule(which=st.integers(0, 3), chain_id=st.sampled_from((CHAIN_ID, CHAIN_ID, 1)))
    def change_chain(self, which: int, chain_id: int) -> None:
        self.rpcs[which % len(self.rpcs)].node.chain_id = chain_id

    @rule(which=st.integers(0, 3), errs=st.booleans())
    def answer_errors(self, which: int, errs: bool) -> None:
        self.rpcs[which % len(self.rpcs)].errs = errs

    @rule(which=st.integers(0, 3))
    def contradict(self, which: int) -> None:
        self.pool.members[which % len(self.pool.members)].distrust("nonce")

    @rule(seconds=st.floats(0, 120))
    def wait_and_check(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.watch.check_all())

    @rule()
    def ask(self) -> None:
        """A request is answered if any node that may be asked has an answer."""
        may_answer = [
            rpc
            for rpc, member in zip(self.rpcs, self.pool.members, strict=True)
            if member.is_verified and rpc.fault is None
        ]
        try:
            name = self.run(self.pool.client("http").call("who"))
        except NodeUnavailable:
            assert may_answer == []
        except RpcError:
            assert any(rpc.errs for rpc in may_answer)
        else:
            assert name in {rpc.node.name for rpc in may_answer}

    @invariant()
    def the_first_choice_is_usable_if_any_node_is(self) -> None:
        if not hasattr(self, "pool") or not any(map(self.pool.is_usable, self.pool.members)):
            return
        first = self.pool.ranked("http")[0]
        assert self.pool.is_usable(first)
        assert first.head is not None
        heights = [
            member.head.number
            for member in self.pool.members
            if member.head and member.is_verified and not member.is_distrusted
        ]
        tolerance = self.pool.tolerance_blocks
        assert first.head.number >= credible_height(heights, tolerance) - tolerance

    @invariant()
    def a_node_of_another_chain_is_never_asked(self) -> None:
        if not hasattr(self, "pool"):
            return
        excluded = [member for member in self.pool.members if member.is_excluded]
        try:
            ranked = self.pool.ranked("operator")
        except NodeUnavailable:
            ranked = []
        assert not set(map(id, excluded)) & set(map(id, ranked))

    @invariant()
    def every_report_has_a_reason_or_is_usable(self) -> None:
        if hasattr(self, "pool"):
            for report in self.pool.reports():
                assert report.is_usable or report.reason is not None


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyAnswers = PoolMachine.TestCase
