"""Gas limits of relays on a real chain whose state changes after the simulation."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from ltzd.actions.relayer.simulation import RelaySimulator, SimulatedAt
from ltzd.chain.contracts import contract_abi
from ltzd.rules.operator.fees import FeePolicy
from ltzd.rules.relayer.calls import RelayPlan
from ltzd.values import LTZ
from tests.support.chain.contracts import HOUR, Contracts, Party, a_reference, deployed_contracts

Call = tuple[str, bytes]
"""A contract, and the data of a call of it."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def contracts() -> AsyncIterator[Contracts]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


async def a_purchase(contracts: Contracts, user: Party, payee: Party) -> Call:
    """Of an item that this user has bought before, with a reference that counts up."""
    reference = a_reference()[:31]
    item = (payee.address, 4 * LTZ, 10, 0, 0, True, False)
    of_item = (1, user.address, item, bytes(32))
    await contracts.send(contracts.registrar, "PointsSale", "setItem", *of_item)
    await contracts.send(user, "LTZ", "approve", contracts.at["PointsSale"], 8 * LTZ)

    def order(last: bytes) -> tuple[object, ...]:
        return user.address, 1, 1, 4 * LTZ, reference + last

    await contracts.send(contracts.relay, "PointsSale", "buyFor", *order(b"\x01"))
    return "PointsSale", contract_abi.encode_call("PointsSale", "buyFor", *order(b"\x02"))


async def a_release(contracts: Contracts, user: Party, payee: Party) -> Call:
    deal, at = a_reference(), await contracts.now()
    await contracts.send(contracts.registrar, "BusinessEscrow", "setBusiness", payee.address, True)
    await contracts.send(user, "LTZ", "approve", contracts.at["BusinessEscrow"], 4 * LTZ)
    lock = (payee.address, 4 * LTZ, at + 2 * HOUR, deal)
    await contracts.send(user, "BusinessEscrow", "lock", *lock)
    message = {"dealId": deal, "deadline": at + HOUR}
    signature = contracts.signature(user, "BusinessEscrow", "Release", message)
    release = (deal, at + HOUR, signature)
    return "BusinessEscrow", contract_abi.encode_call("BusinessEscrow", "releaseWithSig", *release)


@pytest.mark.parametrize("made", [a_purchase, a_release])
async def test_a_call_passes_although_its_payee_spends_all_it_holds_before_it_is_mined(
    contracts: Contracts, made: Callable[[Contracts, Party, Party], Awaitable[Call]]
) -> None:
    """The payee's balance is a new storage slot then."""
    user, payee = Party(), Party()
    for party in (user, payee):
        await contracts.mint(party, 20)
        await contracts.give_gas_money(party)
    contract, data = await made(contracts, user, payee)
    plan = RelayPlan(contracts.at[contract], data, user.address, contract, False)
    gas_limit = await RelaySimulator(contracts.node, FeePolicy()).gas_limit(
        plan, contracts.relay.address, None, SimulatedAt(contracts.node)
    )

    everything = await contracts.balance(payee)
    await contracts.send(payee, "LTZ", "transfer", Party().address, everything)
    raw = await contracts.sign(contracts.relay, plan.to, data, gas_limit)
    receipt = await contracts.publish(raw)

    assert receipt["status"] == "0x1", (gas_limit, int(receipt["gasUsed"], 16))
    assert await contracts.balance(payee) == 4 * LTZ
