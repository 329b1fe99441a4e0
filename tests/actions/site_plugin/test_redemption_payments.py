"""Attacks on the payment of a perk redeemed at a site, on real rows and contracts.

The attacker controls the wallet and has read the redemption's reference in the mempool.
"""

from uuid import UUID

import pytest

from ltzd.chain.contracts import contract_abi, perk_nft
from ltzd.deliveries.redemption_recheck import RedemptionRecheck
from ltzd.errors import RedemptionRefused, Unavailable
from ltzd.rules.brands.configuration import Perk
from ltzd.store.database import transaction
from ltzd.store.indexer.rebuild import reconciling
from ltzd.store.site_plugin.members import Member
from ltzd.values import LTZ, hex_of
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.relays.lanes import a_plan, a_relay, row_states, write
from tests.support.rows.core import a_wallet, value
from tests.support.sites.redemptions import Sites, code_of
from tests.support.waiting import until


async def begun(sites: Sites, member: Member, perk: Perk) -> UUID:
    """An open redemption that no relay wallet has sent; its reference on chain holds its id."""
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(member, perk)
    redemption: UUID = await value(
        sites.pool, "SELECT id FROM site_redemptions ORDER BY created_at DESC LIMIT 1"
    )
    return redemption


async def bought(sites: Sites, member: Member, bait: Perk, redemption: UUID) -> None:
    """The wallet buys something else with the redemption's reference, and that is indexed."""
    deployed, reference = sites.deployed, redemption.bytes + bytes(16)
    if bait.collection_id is None:
        order = (member.wallet, bait.item_id, 1, 0, reference)
        await deployed.send(deployed.relay, "PointsSale", "buyFor", *order)
        facts = "SELECT EXISTS (SELECT FROM purchases WHERE reference = $1)"
    else:
        claim = (member.wallet, bait.collection_id, 0, 0, reference)
        await deployed.send(deployed.relay, "PerkNFT", "claimFor", *claim)
        facts = "SELECT EXISTS (SELECT FROM perk_claims WHERE reference = $1)"
    await until(lambda: value(sites.pool, facts, reference))


@pytest.mark.parametrize("bait", ["item", "collection"])
async def test_a_free_claim_with_a_priced_redemptions_reference_does_not_pay_it(
    sites: Sites, bait: str
) -> None:
    wanted, ann = await sites.collection(30), await sites.member(100)
    free = await (sites.item(0) if bait == "item" else sites.collection())
    await bought(sites, ann, free, await begun(sites, ann, wanted))
    async with sites.relaying():
        await sites.redeem(ann, wanted)
    assert (await sites.has(ann, wanted), await sites.balance(ann)) == (1, 70)


async def test_a_free_purchase_with_a_priced_redemptions_reference_gets_no_code(
    sites: Sites,
) -> None:
    """PointsSale accepts a reference once, so the priced item can no longer be bought with it."""
    wanted, ann, free = await sites.item(30), await sites.member(100), await sites.item(0)
    await bought(sites, ann, free, await begun(sites, ann, wanted))
    async with sites.relaying():
        with pytest.raises(RedemptionRefused):
            await sites.redeem(ann, wanted)
        assert await sites.states() == ["failed"]
        await sites.redeem(ann, wanted)
    assert (await sites.has(ann, wanted), await sites.balance(ann)) == (1, 70)


async def test_the_row_of_a_redemption_names_the_transaction_that_paid_it(sites: Sites) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    async with sites.relaying():
        await sites.redeem(ann, perk)
    paid = await value(sites.pool, "SELECT paid_transaction_hash FROM site_redemptions")
    relayed = await value(sites.pool, "SELECT mined_attempt FROM transactions")
    assert paid == relayed is not None


async def test_a_callers_relay_under_a_redemptions_idempotency_key_does_not_pay_it(
    sites: Sites,
) -> None:
    """/relay lets callers choose their keys; the redemption's own relay was never written."""
    wanted, ann, free = (
        await sites.collection(30),
        await sites.member(100),
        await sites.collection(),
    )
    redemption = await begun(sites, ann, wanted)
    assert free.collection_id is not None
    call = perk_nft.claim_for_call(ann.wallet, free.collection_id, 0, 0, bytes(32))
    plan = a_plan(call, ann.wallet, claim=(free.collection_id, 0))
    planted = a_relay(plan, key=f"site redemption {redemption}")
    async with sites.relaying():
        await write(sites.pool, planted)

        async def is_mined() -> bool:
            return await row_states(sites.pool) == ["mined"]

        await until(is_mined)
        with pytest.raises(RedemptionRefused):
            await sites.redeem(ann, wanted)
        assert await sites.states() == ["failed"]
    assert await sites.balance(ann) == 100


async def test_a_code_left_unpaid_by_a_reorg_is_pending_and_finally_reversed(
    sites: Sites, deployed: Deployed
) -> None:
    """In the new branch the brand closes the collection before the claim."""
    perk, ann = await sites.collection(30), await sites.member(100)
    recheck = RedemptionRecheck(sites.pool, sites.wakeups)
    update = (perk.collection_id, 30 * LTZ, 0, 0, False)
    closing = await deployed.sign(
        deployed.registrar,
        deployed.at["PerkNFT"],
        contract_abi.encode_call("PerkNFT", "updateCollection", *update),
    )
    async with sites.relaying():
        redeemed = await sites.redeem(ann, perk)
        assert not redeemed.is_pending
        await deployed.rpc.call("anvil_reorg", 1, [[hex_of(closing), 0]])
        await until(lambda: value(sites.pool, "SELECT payment_lost_at FROM site_redemptions"))
        assert (await sites.redeem(ann, perk)).is_pending, "nothing pays for the code now"

        async def is_reverted() -> bool:
            await deployed.rpc.call("anvil_mine", hex(10))
            await recheck.recheck()
            return await sites.states() == ["reversed"]

        await until(is_reverted)
        with pytest.raises(RedemptionRefused, match="no longer offered"):
            await sites.redeem(ann, perk)
    assert (await sites.has(ann, perk), await sites.balance(ann)) == (0, 100)


async def test_a_code_whose_payment_a_reorg_moves_to_another_block_stays_valid(
    sites: Sites, deployed: Deployed
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    recheck = RedemptionRecheck(sites.pool, sites.wakeups)
    async with sites.relaying():
        redeemed = await sites.redeem(ann, perk)
        await deployed.rpc.call("anvil_reorg", 1, [])
        await until(lambda: value(sites.pool, "SELECT payment_lost_at FROM site_redemptions"))

        async def is_paid_again() -> bool:
            await recheck.recheck()
            redeemed = await sites.redeem(ann, perk)
            return not redeemed.is_pending

        await until(is_paid_again)
        again = await sites.redeem(ann, perk)
    assert again.redemption.confirmation_code == redeemed.redemption.confirmation_code
    assert (await sites.has(ann, perk), await sites.balance(ann)) == (1, 70)


async def test_members_redeem_again_after_perk_nft_was_replaced(
    sites: Sites, deployed: Deployed
) -> None:
    """The rebuild for the new contract leaves no fact of the old one."""
    perk, ann = await sites.collection(30), await sites.member(100)
    recheck = RedemptionRecheck(sites.pool, sites.wakeups)
    async with sites.relaying():
        first = await sites.redeem(ann, perk)
        await sites.minutes_pass(60)
        indexed = [deployed.at["LTZ"], a_wallet(0x7777)]
        await value(sites.pool, "UPDATE chains SET contracts = $1 RETURNING 1", indexed)
        async with transaction(sites.pool) as connection:
            await connection.execute("DELETE FROM perk_claims")
            above: int | None = -1
            while above is not None:
                above = await reconciling.mark_lost_payments(connection, above)
        await recheck.recheck()
        again = await sites.redeem(ann, perk)
    assert code_of(again) != code_of(first)
    assert [state for state in await sites.states() if state != "failed"] == ["done", "done"]
