"""Publication to two nodes at once: one that takes the bytes is enough, and neither is left out."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ltzd.chain.node.broadcast import Broadcast
from ltzd.chain.node.node import Node
from ltzd.chain.signing import UnsignedTransaction
from ltzd.concurrency import hedging
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.rules.operator.fees import GWEI
from ltzd.values import hex_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.chain.fake_pool import QUICK, a_fake_pool
from tests.support.chain.mint_world import true
from tests.support.chain.scripted_node import NEVER, a_server, result
from tests.support.rows.core import MINTER
from tests.support.waiting import until

ACCEPTED = PublishOutcome.ACCEPTED
FOR_GOOD = "oversized data"
REFUSALS = pytest.mark.parametrize(
    ("text", "confirmed"),
    [
        (FOR_GOOD, PublishOutcome.REFUSED_FOR_GOOD),
        ("rule 17", PublishOutcome.REFUSED_UNEXPLAINED),
    ],
    ids=["for good", "unexplained"],
)
"""A text, and its outcome once all nodes gave it."""
UNCONFIRMED = {
    PublishOutcome.REFUSED_FOR_GOOD: PublishOutcome.UNKNOWN,
    PublishOutcome.REFUSED_UNEXPLAINED: PublishOutcome.REFUSED,
}
"""The outcomes of the same texts while another usable node is away for a moment."""


def signed(count: int = 3) -> list[bytes]:
    return [
        MINTER.sign(
            UnsignedTransaction(CHAIN_ID, nonce, GWEI, 3 * GWEI, 60_000, LTZ_AT, 0, b"")
        ).raw
        for nonce in range(count)
    ]


def two_nodes() -> tuple[FakeNode, FakeNode]:
    first = FakeNode()
    first.mine()
    return first, first.sibling()


async def publish(first: FakeNode, second: FakeNode, raws: Sequence[bytes]) -> list[PublishOutcome]:
    async with a_fake_pool(first, second) as pool, Broadcast(pool.node()) as broadcast:
        return [outcome for outcome, _ in await broadcast.publish_all(raws)]


async def test_both_nodes_get_the_bytes() -> None:
    first, second = two_nodes()
    raws = signed()
    async with a_fake_pool(first, second) as pool, Broadcast(pool.node()) as broadcast:
        answers = await broadcast.publish_all(raws)
        await until(lambda: true(first.arrived == second.arrived == raws))
    assert [outcome for outcome, _ in answers] == [ACCEPTED] * 3
    assert first.together == second.together == [3]


@pytest.mark.parametrize("bad", [0, 1])
async def test_a_hung_node_delays_no_publication(bad: int) -> None:
    nodes = two_nodes()
    async with a_fake_pool(*nodes) as pool, Broadcast(pool.node()) as broadcast:
        nodes[bad].is_hung = True
        async with asyncio.timeout(1.5):  # Less than the patience with a hung node.
            answers = await broadcast.publish_all(signed())
    assert [outcome for outcome, _ in answers] == [ACCEPTED] * 3


@pytest.mark.parametrize("bad", [0, 1])
async def test_used_nonces_make_no_publication_wait_for_a_hung_node(bad: int) -> None:
    """A new term publishes all again, also what was mined a moment ago."""
    nodes = two_nodes()
    nodes[1 - bad].use_nonce(MINTER)
    endless = replace(QUICK, pinned_timeout=3600.0)
    async with (
        a_fake_pool(*nodes, policy=endless) as pool,
        Broadcast(pool.node()) as broadcast,
    ):
        nodes[bad].is_hung = True
        async with asyncio.timeout(20):
            answers = await broadcast.publish_all(signed())
    assert [outcome for outcome, _ in answers] == [
        PublishOutcome.NONCE_TOO_LOW,
        ACCEPTED,
        ACCEPTED,
    ]


async def test_a_used_nonce_waits_a_moment_for_a_node_that_accepts() -> None:
    first, second = two_nodes()
    first.refuses = lambda _sent: "nonce too low"
    assert await publish(first, second, signed()) == [ACCEPTED] * 3


async def test_only_a_lone_transaction_is_published_again_when_the_answer_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hedging, "LATE_SECONDS", 0.01)
    requests: list[Any] = []

    def hang_first(request: Any) -> object:
        requests.append(request)
        return NEVER if len(requests) == 1 else result(request, "0x" + "1" * 64)

    raws = signed()
    async with a_server(hang_first, timeout_seconds=1.0) as rpc, Broadcast(Node(rpc)) as broadcast:
        ((outcome, _),) = await broadcast.publish_all(raws[:1])
        assert outcome is ACCEPTED
        assert [each["params"] for each in requests] == [[hex_of(raws[0])]] * 2

    requests.clear()
    async with a_server(hang_first, timeout_seconds=0.1) as rpc, Broadcast(Node(rpc)) as broadcast:
        with pytest.raises(NodeUnavailable):
            await broadcast.publish_all(raws)
    assert len(requests) == 1


@pytest.mark.parametrize("bad", [0, 1])
async def test_a_node_that_refuses_for_good_is_outweighed_by_one_that_accepts(bad: int) -> None:
    nodes = two_nodes()
    nodes[bad].refuses = lambda _sent: FOR_GOOD
    assert await publish(*nodes, signed()) == [ACCEPTED] * 3


@pytest.mark.parametrize("bad", [0, 1])
async def test_a_refusal_for_good_counts_only_if_no_node_is_silent(bad: int) -> None:
    nodes = two_nodes()
    for node in nodes:
        node.refuses = lambda _sent: FOR_GOOD
    assert await publish(*nodes, signed()) == [PublishOutcome.REFUSED_FOR_GOOD] * 3
    nodes[bad].lost_requests = 100
    assert await publish(*nodes, signed()) == [PublishOutcome.UNKNOWN] * 3


@REFUSALS
async def test_two_liars_of_three_nodes_cannot_refuse_for_good(
    text: str, confirmed: PublishOutcome
) -> None:
    """The third node is asked only then."""
    nodes = [*two_nodes()]
    nodes.append(nodes[0].sibling())
    async with a_fake_pool(*nodes) as pool, Broadcast(pool.node()) as broadcast:
        raws = signed(1)
        assert [outcome for outcome, _ in await broadcast.publish_all(raws)] == [ACCEPTED]
        await until(lambda: true(sum(bool(node.together) for node in nodes) == 2))
        (honest,) = [node for node in nodes if not node.together]
        for node in nodes:
            if node is not honest:
                node.refuses = lambda _sent: text
        assert [outcome for outcome, _ in await broadcast.publish_all(signed(2))] == [ACCEPTED] * 2
        assert honest.together
        honest.refuses = lambda _sent: text
        answers = await broadcast.publish_all(signed(2)[1:])
        assert [outcome for outcome, _ in answers] == [confirmed]


async def test_each_transaction_needs_one_node_that_accepts_it() -> None:
    first, second = two_nodes()
    first.refuses = lambda sent: sent.nonce == 0
    second.refuses = lambda sent: sent.nonce == 2
    assert await publish(first, second, signed()) == [ACCEPTED] * 3


async def test_without_any_answer_nothing_is_known() -> None:
    first, second = two_nodes()
    first.lost_replies = second.lost_requests = 100
    with pytest.raises(NodeUnavailable):
        await publish(first, second, signed())


async def test_requests_that_go_on_are_bounded_and_end_with_the_broadcast() -> None:
    first, second = two_nodes()
    raws = signed(40)
    patient = replace(QUICK, pinned_timeout=60.0)
    async with a_fake_pool(first, second, policy=patient) as pool:
        second.is_hung = True
        async with Broadcast(pool.node(), kept=5) as broadcast:
            for raw in raws:
                assert await broadcast.publish_all([raw])
            # One look of the watch waits, too.
            await until(lambda: true(4 <= second.hanging <= 6))
        await until(lambda: true(second.hanging <= 1))
    assert first.arrived == raws


@REFUSALS
async def test_a_refusal_for_good_waits_for_a_node_that_is_away_for_a_moment(
    text: str, confirmed: PublishOutcome
) -> None:
    """The other node's circuit has just opened: a liar must not use the moment."""
    first, second = two_nodes()
    for node in (first, second):
        node.refuses = lambda _sent: text
    brief = replace(QUICK, witness_seconds=1.0)
    async with a_fake_pool(first, second, policy=brief) as pool:
        second.is_down = True
        await until(lambda: true(len(pool.node().publishers()) == 1))
        async with Broadcast(pool.node()) as broadcast:

            async def outcome() -> PublishOutcome:
                ((outcome, _),) = await broadcast.publish_all(signed(1))
                return outcome

            async def is_confirmed() -> bool:
                return await outcome() is confirmed

            assert await outcome() is UNCONFIRMED[confirmed]
            await until(is_confirmed)
