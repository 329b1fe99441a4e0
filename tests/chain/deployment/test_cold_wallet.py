"""A cold wallet's transaction is published once, and its outcome is never guessed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts import contract_abi, offers
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.cold_wallet import ColdWallet
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc, RpcCall
from ltzd.errors import Misconfigured, NodeUnavailable, OutcomeUnknown, Refused, Unavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.values import Address, Hash32, hex_of
from tests.support.chain.contracts import Contracts, Party, deployed_contracts


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def contracts() -> AsyncIterator[Contracts]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


def a_wallet(contracts: Contracts, timeout_seconds: float = 10.0) -> ColdWallet:
    nodes = AgreeingNodes.of_one(contracts.rpc)
    return ColdWallet(nodes, contracts.registrar.signer, timeout_seconds=timeout_seconds)


def not_told(transaction: Hash32) -> None:
    pytest.fail(f"{hex_of(transaction)} was told")


def an_approval(contracts: Contracts, business: Party | None = None) -> tuple[Address, bytes]:
    data = offers.set_business((business or Party()).address, approved=True)
    return contracts.at["BusinessEscrow"], data


async def nonce(contracts: Contracts, at: str = "latest") -> int:
    return await contracts.node.nonce(contracts.registrar.address, at)


async def test_the_hash_is_printed_before_the_transaction_is_mined_and_the_block_after(
    contracts: Contracts,
) -> None:
    signed: list[Hash32] = []

    mined = await a_wallet(contracts).send(*an_approval(contracts), signed.append)

    assert signed == [mined.hash]
    receipt = await contracts.rpc.call("eth_getTransactionReceipt", hex_of(mined.hash))
    assert int(receipt["blockNumber"], 16) == mined.block_number
    assert mined.logs == receipt["logs"]


async def test_a_transaction_that_would_revert_is_not_sent(contracts: Contracts) -> None:
    before = await nonce(contracts)
    call = (contracts.at["BusinessEscrow"], offers.set_business(Address(bytes(20)), approved=True))

    with pytest.raises(Refused, match=r"nothing was sent: BadBusiness\(business: 0x0{40}\)") as no:
        await a_wallet(contracts).send(*call, not_told)

    assert no.value.details == {"revert": "BadBusiness"}
    assert await nonce(contracts, "pending") == before


async def test_nothing_is_sent_while_an_earlier_transaction_waits(contracts: Contracts) -> None:
    before = await nonce(contracts)
    business = Party()
    await contracts.rpc.call("evm_setAutomine", False)
    try:
        signed: list[Hash32] = []
        with pytest.raises(OutcomeUnknown) as unknown:
            await a_wallet(contracts, 0.2).send(*an_approval(contracts, business), signed.append)
        assert hex_of(signed[0]) in unknown.value.message

        with pytest.raises(Refused, match=f"nonce {before} is not mined yet, so nothing was sent"):
            await a_wallet(contracts).send(*an_approval(contracts, business), not_told)
        with pytest.raises(Refused, match="not mined yet"):
            await a_wallet(contracts, 0.1).wait_until_idle()
        assert await nonce(contracts, "pending") == before + 1
        waiting = asyncio.create_task(a_wallet(contracts).wait_until_idle())
        await contracts.rpc.call("evm_mine")
        await waiting
    finally:
        await contracts.rpc.call("evm_setAutomine", True)

    assert await contracts.view("BusinessEscrow", "isBusiness", business.address)
    assert await nonce(contracts) == before + 1


async def test_after_a_lost_answer_the_receipt_is_awaited(
    contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, before = Node.publish, await nonce(contracts)

    async def publish_and_lose_the_answer(self: Node, raw: bytes) -> tuple[PublishOutcome, str]:
        await publish(self, raw)
        raise NodeUnavailable("lost")

    monkeypatch.setattr(Node, "publish", publish_and_lose_the_answer)

    mined = await a_wallet(contracts).send(*an_approval(contracts), lambda _: None)

    assert mined.block_number > 0
    assert await nonce(contracts) == before + 1


async def test_a_publication_that_never_arrived_is_unknown_and_not_repeated(
    contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = []

    async def lose(_: Node, raw: bytes) -> tuple[PublishOutcome, str]:
        published.append(raw)
        raise NodeUnavailable("lost")

    monkeypatch.setattr(Node, "publish", lose)

    with pytest.raises(OutcomeUnknown, match="before you repeat the command"):
        await a_wallet(contracts, 0.2).send(*an_approval(contracts), lambda _: None)

    assert len(published) == 1


async def test_a_transaction_that_reverts_after_its_simulation_is_reported_as_reverted(
    contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another account is faster: the call succeeded in its simulation."""
    publish = Node.publish
    role = (contract_abi.role_id("REGISTRAR"), contracts.registrar.address)

    async def too_late(self: Node, raw: bytes) -> tuple[PublishOutcome, str]:
        await contracts.send(contracts.admin, "BusinessEscrow", "revokeRole", *role)
        return await publish(self, raw)

    monkeypatch.setattr(Node, "publish", too_late)
    try:
        with pytest.raises(Refused, match=r"was mined in block \d+, but reverted"):
            await a_wallet(contracts).send(*an_approval(contracts), lambda _: None)
    finally:
        await contracts.send(contracts.admin, "BusinessEscrow", "grantRole", *role)


class ForgingRpc(Rpc):
    """Swallows transactions, and shows a receipt of each."""

    async def call(self, method: str, *params: object) -> Any:
        if method == "eth_sendRawTransaction":
            return "0x" + "00" * 32
        if method != "eth_getTransactionReceipt":
            return await super().call(method, *params)
        return {
            "transactionHash": params[0],
            "blockHash": "0x" + "77" * 32,
            "blockNumber": "0x7",
            "status": "0x1",
            "gasUsed": "0x5208",
            "logs": [],
        }


async def test_a_receipt_that_one_of_two_nodes_forges_is_no_outcome(contracts: Contracts) -> None:
    """The other node still gets the transaction."""
    before = await nonce(contracts)
    async with ForgingRpc(contracts.rpc.url) as liar:
        nodes = AgreeingNodes({"liar": liar, "other": contracts.rpc})
        wallet = ColdWallet(nodes, contracts.registrar.signer, timeout_seconds=0.2)

        with pytest.raises(OutcomeUnknown, match="liar: succeeded in block 7; other: succeeded in"):
            await wallet.send(*an_approval(contracts), lambda _: None)

    assert await nonce(contracts) == before + 1


class DearRpc(Rpc):
    """Names a tip just below the cap, which the operator would pay as a whole."""

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        answers = await super().batch(calls)
        methods = [method for method, _ in calls]
        return [
            hex(90 * GWEI) if method == "eth_maxPriorityFeePerGas" else answer
            for method, answer in zip(methods, answers, strict=True)
        ]


async def test_a_tip_that_one_of_two_nodes_invents_is_not_paid(contracts: Contracts) -> None:
    async with DearRpc(contracts.rpc.url) as liar:
        nodes = AgreeingNodes({"liar": liar, "other": contracts.rpc})
        wallet = ColdWallet(nodes, contracts.registrar.signer, timeout_seconds=10.0)
        mined = await wallet.send(*an_approval(contracts), lambda _: None)

    receipt = await contracts.rpc.call("eth_getTransactionReceipt", hex_of(mined.hash))
    assert int(receipt["effectiveGasPrice"], 16) < 10 * GWEI


async def test_calls_sent_together_keep_their_order(contracts: Contracts) -> None:
    businesses = [Party(), Party(), Party()]
    calls = [an_approval(contracts, business) for business in businesses]

    mined = await a_wallet(contracts).send_all(calls, lambda _: None)

    assert [transaction.block_number for transaction in mined] == sorted(
        transaction.block_number for transaction in mined
    )
    for business in businesses:
        assert await contracts.view("BusinessEscrow", "isBusiness", business.address)


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (PublishOutcome.UNAFFORDABLE, Misconfigured, "cannot pay for the gas, so nothing was sent"),
        (PublishOutcome.NONCE_TOO_LOW, Refused, "was mined meanwhile, so this one was not sent"),
        (PublishOutcome.REFUSED, Misconfigured, "refuses the transaction: no"),
    ],
)
async def test_a_nodes_refusal_is_reported_with_its_reason(
    contracts: Contracts,
    monkeypatch: pytest.MonkeyPatch,
    outcome: PublishOutcome,
    error: type[Exception],
    words: str,
) -> None:
    async def refuse(_: Node, __: bytes) -> tuple[PublishOutcome, str]:
        return outcome, "no"

    monkeypatch.setattr(Node, "publish", refuse)

    with pytest.raises(error, match=words):
        await a_wallet(contracts).send(*an_approval(contracts), lambda _: None)


async def test_above_the_fee_cap_nothing_is_sent(contracts: Contracts) -> None:
    nodes = AgreeingNodes.of_one(contracts.rpc)
    wallet = ColdWallet(nodes, contracts.registrar.signer, FeePolicy(cap=1), timeout_seconds=1)

    with pytest.raises(Unavailable, match="Gas costs more than 0 gwei now, so nothing was sent"):
        await wallet.send(*an_approval(contracts), not_told)
