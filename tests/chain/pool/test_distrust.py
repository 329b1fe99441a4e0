"""How long a node that contradicts itself or others is asked last."""

from structlog.testing import capture_logs

from ltzd.chain.pool.member import Member
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.report import Unfit
from tests.support.chain.node_fleet import FleetNode, a_fleet

POLICY = NodePoolPolicy(distrust_first=30.0, distrust_longest=100.0)


def test_each_contradiction_doubles_the_time_and_a_long_trust_forgives_them() -> None:
    now = 1_000.0
    member = Member("node", {}, POLICY, lambda: now, has_peers=True)
    for seconds in (30.0, 60.0, 100.0, 100.0):
        member.distrust("logs")
        now += seconds - 1.0
        assert member.is_distrusted
        now += 1.0
        assert not member.is_distrusted
    now += POLICY.distrust_longest + 1.0
    member.distrust("logs")
    now += POLICY.distrust_first
    assert not member.is_distrusted


async def test_of_distrusted_nodes_the_one_that_contradicted_last_is_asked_last() -> None:
    """A node may be distrusted for what it did an hour ago, while the other one lies now."""
    async with a_fleet(FleetNode("first"), FleetNode("second"), policy=POLICY) as fleet:
        pool, (first, second) = fleet.pool, fleet.pool.members
        first.distrust("logs")
        second.distrust("logs")
        assert pool.ranked("operator") == [first, second]
        for _ in range(2):
            first.distrust("malformed_answer")
            assert pool.ranked("operator") == [second, first]
            second.distrust("malformed_answer")
            assert pool.ranked("operator") == [first, second]


def test_a_contest_that_lasts_is_logged_once_and_is_over_after_three_comparisons() -> None:
    now = 1_000.0
    member = Member("node", {}, POLICY, lambda: now, has_peers=True)
    member.verified()
    with capture_logs() as logs:
        for _ in range(100):
            member.contest("balance")
            now += 1.0
        reasons = [member.reason]
        now += 3 * POLICY.compare_pause
        reasons.append(member.reason)
        member.contest("balance")
    assert reasons == [Unfit.DISAGREES, None]
    assert [entry["event"] for entry in logs] == ["node.contested"] * 2
