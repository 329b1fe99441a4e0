"""The nonce with which a term begins, by what the nodes show of the wallet."""

import pytest

from ltzd.chain.signing import UnsignedTransaction
from ltzd.operator.policy import Stopped
from ltzd.operator.wallet_nonces import used_nonces
from ltzd.rules.operator.fees import GWEI
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.chain.fake_pool import a_fake_pool
from tests.support.rows.core import MINTER


async def test_a_foreign_transaction_that_only_waits_in_the_pool_stops_the_lane() -> None:
    node = FakeNode()
    node.mine()
    signed = MINTER.sign(
        UnsignedTransaction(CHAIN_ID, 0, GWEI, 2 * GWEI, 30_000, LTZ_AT, 0, b"foreign", False)
    )
    node.publish_elsewhere(signed.raw)

    with pytest.raises(Stopped, match="has signed 1 nonces on chain, the database knows 0"):
        await used_nonces(node.node, MINTER.address, 0, "mint")
    assert await used_nonces(node.node, MINTER.address, 1, "mint") == 0


@pytest.mark.parametrize("liars", [[0], [1], [0, 1]])
async def test_two_nodes_stop_the_lane_by_a_high_nonce_only_together(liars: list[int]) -> None:
    first = FakeNode()
    first.mine()
    nodes = [first, first.sibling()]
    async with a_fake_pool(*nodes) as pool:
        for position in liars:
            nodes[position].false_nonce = 5
        if len(liars) == 1:
            assert await used_nonces(pool.node(), MINTER.address, 3, "mint") == 0
        else:
            with pytest.raises(Stopped, match="has used 5 nonces on chain"):
                await used_nonces(pool.node(), MINTER.address, 3, "mint")
