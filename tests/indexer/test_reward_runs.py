"""Several rewards of a wallet in one mint, in LTZ of this version and of the version before it.

This version's LTZ transfers the sum of a wallet's rewards once. The former one transfers each
reward, wherever it stands in the batch. The index, the rewards and the books are the same.
"""

from collections import Counter
from uuid import UUID

import pytest

from ltzd.chain.contracts import artifacts, ltz
from ltzd.chain.contracts.runtime_code import build_of, matches_source
from ltzd.dev.services.chain import Kind
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator.mints.batch import encode_mint
from ltzd.store.database import Pool, session
from ltzd.store.indexer import mint_facts
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, bytes_of
from tests.support.chain.contracts import Party, deployed_contracts
from tests.support.rows.books import reconcile
from tests.support.rows.core import queue_reward
from tests.support.rows.followers import a_follower

ANN, BOB = Party().address, Party().address
QUEUE = [(ANN, 1), (BOB, 2), (ANN, 4), (BOB, 8), (ANN, 16)]


async def queue(pool: Pool) -> list[QueuedReward]:
    """Queued rewards with the seqs 0 to 4, as if they had been signed."""
    rewards = []
    async with session(pool) as connection:
        for seq, (wallet, amount) in enumerate(QUEUE):
            reward = await queue_reward(connection, wallet, amount)
            await connection.execute("UPDATE rewards SET seq = $2 WHERE id = $1", reward, seq)
            rewards.append(QueuedReward(reward, 1, wallet, amount, seq))
    return rewards


@pytest.mark.parametrize("kind", ["tester", "anvil"])
@pytest.mark.parametrize("is_former", [False, True], ids=["this_build", "former_build"])
async def test_rewards_of_one_wallet_are_minted_indexed_and_balanced_one_by_one(
    pool: Pool, database_url: str, kind: Kind, is_former: bool
) -> None:
    build = artifacts.former_bytecodes("LTZ")[-1] if is_former else None
    async with deployed_contracts(kind, build) as deployed:
        at = deployed.at["LTZ"]
        code = await deployed.node.code(at)
        assert matches_source("LTZ", code, deployed.chain_id, at, at)
        assert build_of(code) == "LTZ"
        follower = await a_follower(
            pool, database_url, deployed, IndexerPolicy(head_blocks=1_000, follows_deep_reorgs=True)
        )
        await follower.begin_term()
        batch = await queue(pool)
        data = encode_mint(batch, [reward.seq or 0 for reward in batch])
        receipt = await deployed.publish(await deployed.sign(deployed.minter, at, data))
        assert receipt["status"] == "0x1"
        await follower.step()

        topics = Counter(bytes_of(log["topics"][0]) for log in receipt["logs"])
        assert topics[ltz.REWARD_MINTED_TOPIC] == len(QUEUE)
        assert topics[ltz.TRANSFER_TOPIC] == (len(QUEUE) if is_former else 2)
    async with session(pool) as connection:
        assert await mint_facts.balance(connection, ANN) == 21 * LTZ
        assert await mint_facts.balance(connection, BOB) == 10 * LTZ
        minted: list[UUID] = [
            row["id"]
            for row in await connection.fetch(
                "SELECT id FROM rewards WHERE mint_transaction_hash = $1",
                bytes_of(receipt["transactionHash"]),
            )
        ]
        assert set(minted) == {reward.id for reward in batch}
        kinds = {each.kind for each in await reconcile(connection, 10)}
    assert not kinds & {"mints_and_transfers_differ", "balance_and_transfers_differ"}
