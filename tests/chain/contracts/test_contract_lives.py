"""Each contract's life on both dev chains: shipped bytecode, real keys, users without gas.

Forge's tests cover the contracts' behaviour in every corner. These tests show that ltzd's encoding
and names of reverts, and the nodes of dev mode, agree with it.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts import contract_abi
from ltzd.chain.contracts.reverts import describe, error_name
from ltzd.dev.services.chain import Kind
from ltzd.values import LTZ, ZERO_ADDRESS, checksummed, hex_of
from tests.support.chain.contracts import HOUR, Contracts, Party, a_reference, deployed_contracts

DAY = 24 * HOUR
LOCKED, RELEASED, REFUNDED, SPLIT = 1, 2, 3, 4


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["tester", "anvil"])
async def contracts(request: pytest.FixtureRequest) -> AsyncIterator[Contracts]:
    kind: Kind = request.param
    async with deployed_contracts(kind) as deployed:
        yield deployed


async def a_user(contracts: Contracts, ltz: int = 0) -> Party:
    """Returns a user with LTZ and without native currency for gas."""
    user = Party()
    if ltz:
        await contracts.mint(user, ltz)
    return user


# PerkNFT


@dataclass(frozen=True)
class Collection:
    id: int
    price: int
    payout: Party


async def a_collection(contracts: Contracts, ltz: int = 0, **changes: Any) -> Collection:
    payout = Party()
    arguments: dict[str, Any] = {
        "brand": Party().address,
        "payout": payout.address,
        "price": ltz * LTZ,
        "max_supply": 0,
        "max_per_user": 2,
        "charges": 3,
        "active": True,
        "requires_sig": False,
    } | changes
    receipt = await contracts.send(
        contracts.registrar,
        "PerkNFT",
        "createCollection",
        tuple(arguments.values()),
        "https://perks.example/",
    )
    created = contracts.event("PerkNFT", receipt, "CollectionCreated")
    return Collection(created["collectionId"], arguments["price"], payout)


async def claim(contracts: Contracts, user: Party, of: Collection, claims: int = 0) -> int:
    """Claims by relay, with the permit in the same transaction; returns the token's id."""
    permit = contract_abi.encode_call(
        "PerkNFT", "permitLTZ", *await contracts.permit(user, "PerkNFT", of.price)
    )
    ask = contract_abi.encode_call(
        "PerkNFT", "claimFor", user.address, of.id, of.price, claims, a_reference()
    )
    receipt = await contracts.send(contracts.relay, "PerkNFT", "multicall", [permit, ask])
    claimed = contracts.event("PerkNFT", receipt, "Claimed")
    assert (claimed["user"], claimed["price"], claimed["claims"]) == (
        user.address,
        of.price,
        claims + 1,
    )
    return int(claimed["tokenId"])


async def claim_signed(
    contracts: Contracts, user: Party, of: Collection, seconds: int = HOUR
) -> tuple[object, ...]:
    """Arguments of `claimWithSig` for a first claim."""
    reference, deadline = a_reference(), await contracts.now() + seconds
    signature = contracts.signature(
        user,
        "PerkNFT",
        "Claim",
        {
            "user": checksummed(user.address),
            "collectionId": of.id,
            "maxPrice": of.price,
            "expectedClaims": 0,
            "ref": reference,
            "deadline": deadline,
        },
    )
    return (user.address, of.id, of.price, 0, reference, deadline, signature)


async def test_a_perk_is_claimed_with_a_permit_in_one_transaction_and_redeemed_to_zero(
    contracts: Contracts,
) -> None:
    user, heir = await a_user(contracts, ltz=10), Party()
    coffee = await a_collection(contracts, ltz=4)

    token = await claim(contracts, user, coffee)

    assert token == coffee.id << 32 | 1
    assert await contracts.view("PerkNFT", "ownerOf", token) == user.address
    assert await contracts.view("PerkNFT", "tokenURI", token) == f"https://perks.example/{token}"
    assert await contracts.balance(user) == 6 * LTZ
    assert await contracts.balance(coffee.payout) == 4 * LTZ
    assert await contracts.view("LTZ", "allowance", user.address, contracts.at["PerkNFT"]) == 0

    redemption = (token, user.address, 2, 3, a_reference())
    receipt = await contracts.send(contracts.relay, "PerkNFT", "redeemCharge", *redemption)
    assert contracts.event("PerkNFT", receipt, "ChargeRedeemed")["remaining"] == 1
    again = await contracts.refusal(contracts.relay, "PerkNFT", "redeemCharge", *redemption)
    assert again == "ChargesMismatch"

    await contracts.give_gas_money(user)
    await contracts.send(user, "PerkNFT", "transferFrom", user.address, heir.address, token)
    for_the_old = (token, user.address, 1, 1, a_reference())
    assert (
        await contracts.refusal(contracts.relay, "PerkNFT", "redeemCharge", *for_the_old)
        == "HolderChanged"
    )
    for_the_heir = (token, heir.address, 1, 1, a_reference())
    await contracts.send(contracts.relay, "PerkNFT", "redeemCharge", *for_the_heir)
    assert await contracts.view("PerkNFT", "chargesOf", token) == (0, 3)
    spent = (token, heir.address, 1, 0, a_reference())
    assert (
        await contracts.refusal(contracts.relay, "PerkNFT", "redeemCharge", *spent)
        == "InsufficientCharges"
    )


async def test_a_perk_given_away_still_counts_as_claimed(contracts: Contracts) -> None:
    user = await a_user(contracts)
    free = await a_collection(contracts, max_per_user=1)
    token = await claim(contracts, user, free)
    await contracts.give_gas_money(user)
    await contracts.send(user, "PerkNFT", "transferFrom", user.address, Party().address, token)

    again = (user.address, free.id, 0, 1, a_reference())

    assert await contracts.view("PerkNFT", "claimsOf", user.address, free.id) == 1
    assert (
        await contracts.reason(contracts.relay, "PerkNFT", "claimFor", *again)
        == f"ClaimLimitReached(collectionId: {free.id}, currentClaims: 1, maxPerUser: 1)"
    )


async def test_a_permit_that_another_account_published_first_does_not_break_the_claim(
    contracts: Contracts,
) -> None:
    user, stranger = await a_user(contracts, ltz=5), Party()
    coffee = await a_collection(contracts, ltz=5)
    owner, value, deadline, v, r, s = await contracts.permit(user, "PerkNFT", 5 * LTZ)
    await contracts.give_gas_money(stranger)
    spender = contracts.at["PerkNFT"]
    await contracts.send(stranger, "LTZ", "permit", owner, spender, value, deadline, v, r, s)
    late = ("permit", owner, spender, value, deadline, v, r, s)
    assert await contracts.refusal(stranger, "LTZ", *late) == "ERC2612InvalidSigner"

    calls = [
        contract_abi.encode_call("PerkNFT", "permitLTZ", owner, value, deadline, v, r, s),
        contract_abi.encode_call(
            "PerkNFT", "claimFor", user.address, coffee.id, 5 * LTZ, 0, a_reference()
        ),
    ]
    receipt = await contracts.send(contracts.relay, "PerkNFT", "multicall", calls)

    assert contracts.event("PerkNFT", receipt, "Claimed")["price"] == 5 * LTZ
    assert await contracts.balance(user) == 0


async def test_a_claim_signed_by_the_user_can_be_sent_by_any_account_once(
    contracts: Contracts,
) -> None:
    user, stranger = await a_user(contracts, ltz=8), Party()
    coffee = await a_collection(contracts, ltz=4, requires_sig=True)
    await contracts.give_gas_money(stranger)
    by_word = (user.address, coffee.id, coffee.price, 0, a_reference())
    assert (
        await contracts.refusal(contracts.relay, "PerkNFT", "claimFor", *by_word)
        == "SignatureRequired"
    )
    await contracts.send(
        stranger, "PerkNFT", "permitLTZ", *await contracts.permit(user, "PerkNFT", 8 * LTZ)
    )
    signed = await claim_signed(contracts, user, coffee)
    for_another = (stranger.address, *signed[1:])
    assert (
        await contracts.refusal(stranger, "PerkNFT", "claimWithSig", *for_another)
        == "InvalidSignature"
    )

    await contracts.send(stranger, "PerkNFT", "claimWithSig", *signed)

    assert await contracts.balance(user) == 4 * LTZ
    assert await contracts.refusal(stranger, "PerkNFT", "claimWithSig", *signed) == (
        "ClaimCountMismatch"
    )


async def test_a_signed_claim_ends_with_its_deadline(contracts: Contracts) -> None:
    user = await a_user(contracts)
    free = await a_collection(contracts)
    signed = await claim_signed(contracts, user, free, seconds=60)

    await contracts.let_pass(61)

    assert (
        await contracts.refusal(contracts.relay, "PerkNFT", "claimWithSig", *signed)
        == "SignatureExpired"
    )


# PointsSale


async def an_item(contracts: Contracts, id_: int, **changes: Any) -> Party:
    """Creates an item: price 5 LTZ, stock 10, 3 a purchase. Returns who is paid."""
    payout = Party()
    item: dict[str, Any] = {
        "payout": payout.address,
        "price": 5 * LTZ,
        "stock": 10,
        "sold": 0,
        "max_per_order": 3,
        "active": True,
        "burns": False,
    } | changes
    arguments = (id_, Party().address, tuple(item.values()), bytes(32))
    await contracts.send(contracts.registrar, "PointsSale", "setItem", *arguments)
    return payout


async def allow(contracts: Contracts, user: Party, contract: str, ltz: int) -> None:
    permit = await contracts.permit(user, contract, ltz * LTZ)
    await contracts.send(contracts.relay, contract, "permitLTZ", *permit)


async def test_an_item_is_bought_once_per_reference_and_pays_its_payout(
    contracts: Contracts,
) -> None:
    user = await a_user(contracts, ltz=20)
    payout = await an_item(contracts, 1)
    await allow(contracts, user, "PointsSale", 20)
    order = (user.address, 1, 2, 10 * LTZ, a_reference())

    receipt = await contracts.send(contracts.relay, "PointsSale", "buyFor", *order)

    bought = contracts.event("PointsSale", receipt, "Purchased")
    assert (bought["buyer"], bought["quantity"], bought["paid"]) == (user.address, 2, 10 * LTZ)
    assert (await contracts.balance(user), await contracts.balance(payout)) == (10 * LTZ, 10 * LTZ)
    assert await contracts.refusal(contracts.relay, "PointsSale", "buyFor", *order) == (
        "OrderAlreadyPlaced"
    )
    too_dear = (user.address, 1, 2, 10 * LTZ - 1, a_reference())
    assert await contracts.refusal(contracts.relay, "PointsSale", "buyFor", *too_dear) == (
        "TotalAboveMax"
    )
    item, _ = await contracts.view("PointsSale", "item", 1)
    assert (item[2], item[3]) == (10, 2)


async def test_the_price_of_a_burning_item_is_burned(contracts: Contracts) -> None:
    user = await a_user(contracts, ltz=5)
    payout = await an_item(contracts, 2, burns=True)
    await allow(contracts, user, "PointsSale", 5)
    before = await contracts.view("LTZ", "totalSupply")

    order = (user.address, 2, 1, 5 * LTZ, a_reference())
    receipt = await contracts.send(contracts.relay, "PointsSale", "buyFor", *order)

    burned = contracts.event("LTZ", receipt, "Transfer")
    assert (burned["from"], burned["to"], burned["value"]) == (
        user.address,
        ZERO_ADDRESS,
        5 * LTZ,
    )
    assert await contracts.view("LTZ", "totalSupply") == before - 5 * LTZ
    assert await contracts.balance(payout) == 0


async def test_a_purchase_signed_by_the_buyer_can_be_sent_by_any_account_once(
    contracts: Contracts,
) -> None:
    user, stranger = await a_user(contracts, ltz=10), Party()
    await an_item(contracts, 3)
    await allow(contracts, user, "PointsSale", 10)
    await contracts.give_gas_money(stranger)
    reference, deadline = a_reference(), await contracts.now() + HOUR
    message = {
        "buyer": checksummed(user.address),
        "itemId": 3,
        "quantity": 1,
        "maxTotal": 5 * LTZ,
        "ref": reference,
        "deadline": deadline,
    }
    signature = contracts.signature(user, "PointsSale", "Buy", message)
    order = (user.address, 3, 1, 5 * LTZ, reference, deadline, signature)
    twice_as_many = (user.address, 3, 2, 10 * LTZ, reference, deadline, signature)
    assert await contracts.refusal(stranger, "PointsSale", "buyWithSig", *twice_as_many) == (
        "InvalidSignature"
    )

    await contracts.send(stranger, "PointsSale", "buyWithSig", *order)

    assert await contracts.balance(user) == 5 * LTZ
    assert await contracts.refusal(stranger, "PointsSale", "buyWithSig", *order) == (
        "OrderAlreadyPlaced"
    )


# BusinessEscrow


@dataclass(frozen=True)
class Deal:
    id: bytes
    user: Party
    business: Party

    async def status(self, contracts: Contracts) -> int:
        return int((await contracts.view("BusinessEscrow", "deal", self.id))[4])

    async def paid(self, contracts: Contracts) -> tuple[int, int]:
        """Returns the balances of user and business, in LTZ."""
        user, business = await contracts.balance(self.user), await contracts.balance(self.business)
        return user // LTZ, business // LTZ


async def a_deal(contracts: Contracts) -> Deal:
    """Locks all 10 LTZ of a user for a day, by relay and permit."""
    user, business, id_ = await a_user(contracts, ltz=10), Party(), a_reference()
    await contracts.send(
        contracts.registrar, "BusinessEscrow", "setBusiness", business.address, True
    )
    permit = await contracts.permit(user, "BusinessEscrow", 10 * LTZ)
    until_when = await contracts.now() + DAY
    lock = (user.address, business.address, 10 * LTZ, until_when, id_)
    calls = [
        contract_abi.encode_call("BusinessEscrow", "permitLTZ", *permit),
        contract_abi.encode_call("BusinessEscrow", "lockFor", *lock),
    ]
    await contracts.send(contracts.relay, "BusinessEscrow", "multicall", calls)
    deal = Deal(id_, user, business)
    assert await deal.paid(contracts) == (0, 0)
    assert await deal.status(contracts) == LOCKED
    return deal


async def test_any_account_can_return_an_expired_deal_to_its_user(contracts: Contracts) -> None:
    deal, stranger = await a_deal(contracts), Party()
    await contracts.give_gas_money(stranger)
    await contracts.let_pass(DAY - HOUR)
    assert await contracts.refusal(stranger, "BusinessEscrow", "reclaim", deal.id) == "TooEarly"

    await contracts.let_pass(HOUR)
    await contracts.send(stranger, "BusinessEscrow", "reclaim", deal.id)

    assert await deal.paid(contracts) == (10, 0)
    assert await deal.status(contracts) == REFUNDED
    assert await contracts.refusal(stranger, "BusinessEscrow", "reclaim", deal.id) == "NotLocked"


async def test_only_the_user_or_the_settler_can_release_a_deal(contracts: Contracts) -> None:
    deal = await a_deal(contracts)
    for nobody in (contracts.relay, deal.business):
        refusal = await contracts.refusal(nobody, "BusinessEscrow", "release", deal.id)
        assert refusal == "NotAllowed"

    await contracts.give_gas_money(deal.user)
    await contracts.send(deal.user, "BusinessEscrow", "release", deal.id)

    assert await deal.paid(contracts) == (0, 10)
    assert await deal.status(contracts) == RELEASED
    other = await a_deal(contracts)
    await contracts.send(contracts.settler, "BusinessEscrow", "release", other.id)
    assert await other.paid(contracts) == (0, 10)


async def test_a_deal_is_refunded_by_its_business(contracts: Contracts) -> None:
    deal = await a_deal(contracts)
    assert await contracts.refusal(deal.user, "BusinessEscrow", "refund", deal.id) == "NotAllowed"

    await contracts.give_gas_money(deal.business)
    await contracts.send(deal.business, "BusinessEscrow", "refund", deal.id)

    assert await deal.paid(contracts) == (10, 0)
    assert await deal.status(contracts) == REFUNDED


async def test_an_arbiter_splits_a_deal(contracts: Contracts) -> None:
    deal = await a_deal(contracts)
    assert (
        await contracts.refusal(contracts.relay, "BusinessEscrow", "split", deal.id, 0)
        == "AccessControlUnauthorizedAccount"
    )

    await contracts.send(contracts.arbiter, "BusinessEscrow", "split", deal.id, 3 * LTZ)

    assert await deal.paid(contracts) == (7, 3)
    assert await deal.status(contracts) == SPLIT


@pytest.mark.parametrize(
    ("function", "kind", "paid"),
    [("releaseWithSig", "Release", (0, 10)), ("refundWithSig", "Refund", (10, 0))],
)
async def test_an_end_of_a_deal_signed_by_one_side_can_be_sent_by_any_account_once(
    contracts: Contracts, function: str, kind: str, paid: tuple[int, int]
) -> None:
    deal, stranger = await a_deal(contracts), Party()
    who, other = (deal.user, deal.business)[:: 1 if kind == "Release" else -1]
    await contracts.give_gas_money(stranger)
    deadline = await contracts.now() + HOUR

    def signed(by: Party) -> tuple[object, ...]:
        message = {"dealId": deal.id, "deadline": deadline}
        return (deal.id, deadline, contracts.signature(by, "BusinessEscrow", kind, message))

    wrong = await contracts.refusal(stranger, "BusinessEscrow", function, *signed(other))
    assert wrong == "InvalidSignature"

    await contracts.send(stranger, "BusinessEscrow", function, *signed(who))

    assert await deal.paid(contracts) == paid
    again = await contracts.refusal(stranger, "BusinessEscrow", function, *signed(who))
    assert again == "NotLocked"


# A stolen relay key


async def test_the_relay_key_alone_can_neither_mint_nor_redirect_nor_take(
    contracts: Contracts,
) -> None:
    thief, deal = contracts.relay, await a_deal(contracts)
    user = await a_user(contracts, ltz=9)
    coffee = await a_collection(contracts, ltz=4)
    await an_item(contracts, 4)
    for contract in ("PerkNFT", "PointsSale", "BusinessEscrow"):
        await allow(contracts, user, contract, 3)
    theirs = thief.address
    item = (theirs, 1, 1, 0, 1, True, False)
    refused = "AccessControlUnauthorizedAccount"
    attempts: list[tuple[str, str, tuple[object, ...], str]] = [
        ("LTZ", "mintReward", (theirs, LTZ, a_reference()), refused),
        ("LTZ", "setMintLimit", (theirs, 10**30, 1), refused),
        ("LTZ", "transferFrom", (user.address, theirs, LTZ), "ERC20InsufficientAllowance"),
        ("PerkNFT", "setPayout", (coffee.id, theirs), refused),
        ("PerkNFT", "updateCollection", (coffee.id, 0, 0, 0, True), "NotBrand"),
        ("PointsSale", "setItem", (4, theirs, item, bytes(32)), refused),
        ("BusinessEscrow", "setBusiness", (theirs, True), refused),
        (
            "BusinessEscrow",
            "lockFor",
            (user.address, theirs, LTZ, await contracts.now() + DAY, a_reference()),
            "BusinessNotApproved",
        ),
        ("BusinessEscrow", "release", (deal.id,), "NotAllowed"),
        ("BusinessEscrow", "refund", (deal.id,), "NotAllowed"),
        ("BusinessEscrow", "split", (deal.id, 10 * LTZ), refused),
    ]
    for contract in ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"):
        for role in ("MINTER", "REGISTRAR", "SETTLER", "ARBITER", "DEFAULT_ADMIN"):
            grant = (contract_abi.role_id(role), theirs)
            named = "AccessControlEnforcedDefaultAdminRules" if role == "DEFAULT_ADMIN" else refused
            attempts.append((contract, "grantRole", grant, named))

    for contract, function, arguments, error in attempts:
        refusal = await contracts.refusal(thief, contract, function, *arguments)
        assert refusal == error, (contract, function)

    # The key can spend an allowance to a contract on a perk, an item or a deal of the same user.
    permit = await contracts.permit(user, "PointsSale", 5 * LTZ)
    calls = [
        contract_abi.encode_call("PointsSale", "permitLTZ", *permit),
        contract_abi.encode_call(
            "PointsSale", "buyFor", user.address, 4, 1, 5 * LTZ, a_reference()
        ),
    ]
    receipt = await contracts.send(thief, "PointsSale", "multicall", calls)
    assert contracts.event("PointsSale", receipt, "Purchased")["buyer"] == user.address
    assert await contracts.balance(thief) == 0


async def test_the_relay_key_takes_what_a_permit_allows_its_wallet_and_no_role_stops_that(
    contracts: Contracts,
) -> None:
    """A relayed `multicall([permit, transferFrom])` names the relay wallet as the spender."""
    user, wallet, thief = await a_user(contracts, ltz=9), Party(), Party()
    await contracts.give_gas_money(wallet)
    owner, *signed = await contracts.permit_of(user, wallet.address, 5 * LTZ)

    permit = contract_abi.encode_call("LTZ", "permit", owner, wallet.address, *signed)
    take = contract_abi.encode_call("LTZ", "transferFrom", owner, thief.address, 5 * LTZ)
    await contracts.send(wallet, "LTZ", "multicall", [permit, take])

    assert await contracts.balance(thief) == 5 * LTZ
    assert await contracts.view("LTZ", "allowance", owner, wallet.address) == 0


# Reverts


async def test_a_reverts_reason_is_decoded_by_name(contracts: Contracts) -> None:
    """The data of LTZ's error comes through PerkNFT, a multicall and the node's own wrapping."""
    user = await a_user(contracts, ltz=3)
    coffee = await a_collection(contracts, ltz=4)
    claim_for = (user.address, coffee.id, 4 * LTZ, 0, a_reference())
    ask = contract_abi.encode_call("PerkNFT", "claimFor", *claim_for)

    receipt = await contracts.try_to(contracts.relay, "PerkNFT", "multicall", [ask])
    data = await contracts.revert(contracts.relay, "PerkNFT", "multicall", [ask])

    assert receipt["status"] == "0x0"
    assert error_name(data) == "ERC20InsufficientAllowance"
    spender = hex_of(contracts.at["PerkNFT"])
    assert describe(data) == (
        f"ERC20InsufficientAllowance(spender: {spender}, allowance: 0, needed: {4 * LTZ})"
    )
    nobodys = await contracts.refusal(Party(), "PerkNFT", "claimFor", *claim_for)
    assert nobodys == "AccessControlUnauthorizedAccount"
