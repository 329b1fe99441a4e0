"""`ltzd dev` as a whole: one command, one event in, LTZ on a chain, the indexed truth out."""

from uuid import UUID, uuid4

from tests.support.books import (
    LTZ,
    balances_on_chain,
    indexed_balances,
    mint_logs,
)
from tests.support.instance import Instance


def somebody() -> str:
    """An e-mail address that no other event has."""
    return f"{uuid4().hex}@shop.example"


async def test_an_event_becomes_minted_ltz_that_the_index_and_the_chain_agree_on(
    instance: Instance,
) -> None:
    answer = await instance.post_event(somebody())
    assert (answer.status, answer.body["status"]) == (200, "published"), answer.body
    assert answer.hash is not None

    (mint,) = await mint_logs(instance.rpc, answer.hash)
    assert mint.reference == UUID(answer.event_id).bytes + b"\x01" + bytes(7) + mint.reference[24:]
    assert (mint.amount, answer.body["rewardAmount"]) == (100 * LTZ, 100)
    wallet = answer.body["walletAddress"].lower()
    assert mint.recipient == wallet

    event = await instance.minted(answer.event_id)
    assert (event["transactionHash"], event["walletAddress"]) == (
        answer.hash,
        answer.body["walletAddress"],
    )
    assert (await instance.rpc.receipt(answer.hash))["blockNumber"] == hex(event["blockNumber"])
    assert (await indexed_balances(instance))[wallet] == 100 * LTZ
    assert await balances_on_chain(instance, [wallet]) == {wallet: 100 * LTZ}
    seq = await instance.ask("SELECT seq FROM rewards WHERE id = $1", UUID(answer.event_id))
    assert seq == mint.seq


async def test_an_event_is_published_first_and_minted_with_its_block(instance: Instance) -> None:
    await instance.rpc("evm_setAutomine", False)
    try:
        answer = await instance.post_event(somebody())
        assert answer.status == 200, answer.body
        before = await instance.event(answer.event_id)
        assert (before["status"], before["blockNumber"]) == ("published", None)
        assert before["transactionHash"] == answer.hash
        await instance.rpc("evm_mine")
    finally:
        await instance.rpc("evm_setAutomine", True)
    after = await instance.minted(answer.event_id)
    assert after["status"] == "minted"
    assert after["blockNumber"] is not None


async def test_the_explorer_shows_the_mint_of_an_event(instance: Instance) -> None:
    answer = await instance.post_event(somebody())
    page = f"{instance.door['explorerUrl']}/tx/{answer.hash}"
    async with instance.http.get(page) as reply:
        assert reply.status == 200
        assert str(answer.hash) in await reply.text()
