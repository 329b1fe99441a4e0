"""After every step the index equals a model of the chain at the cursor's block.

Random blocks with the logs of all contracts, reorgs of 1 to 64 blocks, nodes that lag, double and
omit, restarts, processes that die in the middle of a step, rebuilds, and two indexers on one
database.
"""

from typing import Any

from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from tests.support.index_model.campaign import CAMPAIGN, EXAMPLES
from tests.support.index_model.chain import ModelChain
from tests.support.index_model.index import FAR, NEAR, ModelIndex
from tests.support.index_model.node import LogFaultsNode
from tests.support.index_model.tables import differences

happenings = st.lists(
    st.one_of(
        st.tuples(st.just("mine"), st.integers(1, 12)),
        st.tuples(st.just("mine"), st.integers(60, 90)),
        st.tuples(st.just("reorg"), st.integers(1, 64)),
        st.tuples(st.sampled_from(["lag", "double", "omit", "empty"]), st.integers(0, 6)),
        st.tuples(st.just("steps"), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("die"), st.integers(1, 40)),
        st.tuples(st.just("other"), st.integers(0, 1)),
        *([st.tuples(st.just("rebuild"), st.integers(0, 90))] if CAMPAIGN else []),
    ),
    max_size=20,
)
"""Rebuilds take half a second each: `make test` has one example of them."""

REBUILDS = [
    ("mine", 40),
    ("steps", 4),
    ("reorg", 3),
    ("rebuild", 20),
    ("mine", 3),
    ("steps", 2),
    ("double", 1),
    ("reorg", 4),
    ("other", 1),
    ("rebuild", 0),
    ("reorg", 2),
    ("die", 12),
]


@example(REBUILDS, 22, FAR, 4)
@given(happenings, st.integers(0, 2**32), st.sampled_from([NEAR, FAR]), st.sampled_from([4, 64]))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_the_index_equals_the_model_after_every_step(
    pool: Pool,
    database_url: str,
    happened: list[tuple[str, int]],
    seed: int,
    policy: IndexerPolicy,
    final_depth: int,
) -> None:
    node = LogFaultsNode()
    node.final_depth = final_depth
    index = ModelIndex(pool, database_url, ModelChain(node, seed), policy)
    note(f"{happened} seed={seed} final_depth={final_depth} {policy}")
    await index.start()
    for what, count in happened:
        await index.happen(what, count)
    node.lag = node.omitted_contracts = node.empty_answers = 0
    index.chain.mine()
    await index.catch_up()


async def test_the_comparison_finds_a_changed_row(pool: Pool, database_url: str) -> None:
    """The oracle can fail: each changed table is named."""
    chain = ModelChain(LogFaultsNode(), seed=7)
    index = ModelIndex(pool, database_url, chain, NEAR)
    await index.start()
    chain.mine(80, most_operations=8)
    await index.catch_up()
    changes: dict[str, str] = {
        "balances": "UPDATE balances SET amount = amount + 1 WHERE amount > 0",
        "rewards": "UPDATE rewards SET mint_block_number = 1 WHERE mint_block_hash IS NOT NULL",
        "tokens": "UPDATE tokens SET holder = '\\x0000000000000000000000000000000000000009'",
        "items": "UPDATE items SET sold = sold + 1",
        "deals": "UPDATE deals SET state = 'split'",
        "collections": "UPDATE collections SET minted = minted + 1",
        "facts": "DELETE FROM purchases",
        "stray": "UPDATE transfers SET block_hash = sha256(block_hash)",
    }
    differing: dict[str, Any] = {}
    for name, sql in changes.items():
        async with session(pool) as connection, connection.transaction():
            await connection.execute(sql)
        differing = await differences(pool, chain.states)
        assert name in differing
    assert set(differing) >= set(changes)
