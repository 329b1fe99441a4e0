"""The data of a mint: a wallet's rewards side by side, each with its own reference and amount."""

from uuid import UUID

from eth_abi.abi import decode
from hypothesis import given
from hypothesis import strategies as st

from ltzd.operator.mints.batch import encode_mint
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, reward_reference
from tests.support.rows.core import a_wallet


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 10**6)), min_size=2, max_size=100))
def test_a_wallets_rewards_stand_together_and_none_is_changed(
    drawn: list[tuple[int, int]],
) -> None:
    batch = [
        QueuedReward(UUID(int=at), 1, a_wallet(wallet), amount, None)
        for at, (wallet, amount) in enumerate(drawn)
    ]
    seqs = list(range(7, 7 + len(batch)))

    (rows,) = decode(["(address,uint96,bytes32)[]"], encode_mint(batch, seqs)[4:])

    wallets = [row[0] for row in rows]
    runs = [wallet for at, wallet in enumerate(wallets) if wallets[at - 1 : at] != [wallet]]
    assert len(runs) == len(set(wallets))
    assert sorted((amount, reference) for _, amount, reference in rows) == sorted(
        (reward.ltz * LTZ, reward_reference(reward.id, reward.kind, seq))
        for reward, seq in zip(batch, seqs, strict=True)
    )
    owners = {
        reward_reference(reward.id, reward.kind, seq): reward.wallet
        for reward, seq in zip(batch, seqs, strict=True)
    }
    assert all(owners[reference] == bytes.fromhex(to[2:]) for to, _, reference in rows)
