"""A wallet whose key is on no server: a person's command sends each transaction, once.

There is no lane and no database. A transaction is not sent twice, because nothing is sent while an
earlier one is pending, and because an unknown outcome is reported with its hash and not retried.
Of several nodes none is believed alone: they must agree before anything is signed, each gets the
transaction, and each must show the same outcome.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ltzd.chain.contracts import reverts
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Revert
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.chain.signing import SignedTransaction, Signer, UnsignedTransaction
from ltzd.concurrency.clock import loop_time
from ltzd.errors import Misconfigured, NodeUnavailable, OutcomeUnknown, Refused, Unavailable
from ltzd.rules.nodes.publications import PublishOutcome, merged
from ltzd.rules.operator.fees import GWEI, FeePolicy, fees_for, price_among
from ltzd.values import Address, Hash32, address_of, bytes_of, checksummed, hash_of, hex_of

_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0


class ConfirmedTransaction(msgspec.Struct, frozen=True):
    """A transaction that succeeded; `logs` are the node's."""

    hash: Hash32
    block_number: int
    logs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _ShownOutcome:
    """A transaction's outcome as one node shows it. Clients write logs in different ways."""

    block_number: int
    block_hash: Hash32
    succeeded: bool
    log_keys: Sequence[tuple[object, ...]]
    logs: list[dict[str, Any]] = field(compare=False)

    def __str__(self) -> str:
        return f"{'succeeded' if self.succeeded else 'reverted'} in block {self.block_number}"


class ColdWallet:
    """Sends transactions of one key. `timeout_seconds` bounds the wait for a block."""

    def __init__(
        self,
        nodes: AgreeingNodes,
        signer: Signer,
        fees: FeePolicy | None = None,
        timeout_seconds: float = 120.0,
    ) -> None:
        self._nodes = nodes
        self._signer = signer
        self._fees = fees or FeePolicy()
        self._timeout_seconds = timeout_seconds

    async def send(
        self, to: Address, data: bytes, on_signed: Callable[[Hash32], None]
    ) -> ConfirmedTransaction:
        """Simulate, sign, publish and wait for the block.

        Calls `on_signed` with the hash before the transaction is published. Raises Refused for a
        call that would revert (`details["revert"]` is the error's name) or did revert,
        NodeUnavailable if nodes contradict each other before anything is sent, and OutcomeUnknown
        if the transaction may still be mined.
        """
        (mined,) = await self.send_all([(to, data)], on_signed)
        return mined

    async def send_all(
        self, calls: Sequence[tuple[Address, bytes]], on_signed: Callable[[Hash32], None]
    ) -> list[ConfirmedTransaction]:
        """As `send` for calls that do not depend on each other, in order, without waits between."""
        nonce = await self._free_nonce()
        for to, data in calls:
            await simulate(self._nodes, to, data, self._signer.address)
        chain_id = await self._nodes.agreed("the chain id", lambda rpc: Node(rpc).chain_id())
        signed = [
            await self._sign(chain_id, nonce + index, to, data)
            for index, (to, data) in enumerate(calls)
        ]
        for transaction in signed:
            on_signed(transaction.hash)
            await self._publish(transaction)
        return [await self._wait_until_mined(transaction.hash) for transaction in signed]

    async def wait_until_idle(self) -> None:
        """Wait until this wallet has no pending transaction. Raises Refused after the timeout."""
        deadline = self._deadline()
        while True:
            try:
                await self._free_nonce()
                return
            except Refused:
                if loop_time() > deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _free_nonce(self) -> int:
        """Raises Refused while an earlier transaction is pending: it may be this very call."""
        wallet = self._signer.address
        mined = await self._nodes.agreed(
            f"the nonce of {checksummed(wallet)}", lambda rpc: Node(rpc).nonce(wallet)
        )
        pending = await self._nodes.each(lambda rpc: Node(rpc).nonce(wallet, "pending"))
        if max(pending.values()) > mined:
            raise Refused(
                f"A transaction of {checksummed(wallet)} with nonce {mined} is not mined yet, so "
                "nothing was sent; wait for its outcome before you repeat the command."
            )
        return mined

    async def _sign(self, chain_id: int, nonce: int, to: Address, data: bytes) -> SignedTransaction:
        prices = await self._nodes.each(lambda rpc: Node(rpc).current_gas_price())
        fees = fees_for(price_among(list(prices.values()), self._fees), self._fees)
        if fees is None:
            raise Unavailable(
                f"Gas costs more than {self._fees.cap // GWEI} gwei now, so nothing was sent; "
                "try again later."
            )
        return self._signer.sign(
            UnsignedTransaction.with_fees(
                fees,
                chain_id=chain_id,
                nonce=nonce,
                gas_limit=await self._gas_limit(to, data),
                to=to,
                data=data,
            )
        )

    async def _gas_limit(self, to: Address, data: bytes) -> int:
        """A quarter more than the call needs now: the state may have changed when it is mined."""
        wallet = self._signer.address
        estimates = await self._nodes.each(lambda rpc: Node(rpc).estimate_gas(to, data, wallet))
        needed = [each for each in estimates.values() if isinstance(each, int)]
        if not needed:
            refusal = next(each for each in estimates.values() if isinstance(each, Revert))
            raise _refusal(refusal)
        return max(needed) * 5 // 4

    async def _publish(self, signed: SignedTransaction) -> None:
        """Send the transaction to every node; one that takes it is enough."""

        async def publish(rpc: RpcClient) -> tuple[PublishOutcome, str]:
            try:
                return await Node(rpc).publish(signed.raw)
            except NodeUnavailable:
                return PublishOutcome.UNKNOWN, ""

        texts = dict((await self._nodes.each(publish)).values())
        outcome = merged(list(texts))
        wallet = checksummed(self._signer.address)
        match outcome:
            case PublishOutcome.ACCEPTED | PublishOutcome.UNKNOWN:
                return  # Without an answer the bytes may have arrived; the receipt will show.
            case PublishOutcome.UNAFFORDABLE:
                raise Misconfigured(
                    f"{wallet} cannot pay for the gas, so nothing was sent; fund it."
                )
            case PublishOutcome.NONCE_TOO_LOW:
                raise Refused(
                    f"Another transaction of {wallet} was mined meanwhile, so this one was not "
                    "sent; look at that one before you repeat the command."
                )
        raise Misconfigured(f"The node refuses the transaction: {texts[outcome]}")

    async def _wait_until_mined(self, transaction: Hash32) -> ConfirmedTransaction:
        """Wait until all nodes show the same outcome."""
        deadline, pause = self._deadline(), _POLL_SECONDS
        outcomes: Mapping[str, _ShownOutcome | None] = {}
        while loop_time() < deadline:
            outcomes = await self._nodes.each(lambda rpc: _outcome(rpc, transaction))
            outcome, *others = outcomes.values()
            if outcome is not None and all(other == outcome for other in others):
                if not outcome.succeeded:
                    raise Refused(
                        f"Transaction {hex_of(transaction)} was mined in block "
                        f"{outcome.block_number}, but reverted: it changed nothing."
                    )
                return ConfirmedTransaction(transaction, outcome.block_number, outcome.logs)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)
        if any(outcomes.values()):
            shown = "; ".join(f"{name}: {each or 'not mined'}" for name, each in outcomes.items())
            raise OutcomeUnknown(
                f"After {self._timeout_seconds:g} s the nodes still contradict each other about "
                f"transaction {hex_of(transaction)} ({shown}): look for it in an explorer before "
                "you repeat the command, and remove a node that lies from node.urls."
            )
        raise OutcomeUnknown(
            f"Whether transaction {hex_of(transaction)} is mined is not known after "
            f"{self._timeout_seconds:g} s, and it may be mined later: look for it in an explorer "
            "or with eth_getTransactionReceipt before you repeat the command."
        )

    def _deadline(self) -> float:
        return loop_time() + self._timeout_seconds


async def simulate(nodes: AgreeingNodes, to: Address, data: bytes, sender: Address) -> None:
    """Raises Refused with the contract's reason if the call would revert."""

    async def revert_at(rpc: RpcClient) -> Revert | None:
        (revert,) = await Node(rpc).simulate(to, [data], sender)
        return revert

    revert = await nodes.agreed("whether the contract would refuse the call", revert_at)
    if revert is not None:
        raise _refusal(revert)


async def _outcome(rpc: RpcClient, transaction: Hash32) -> _ShownOutcome | None:
    """Return None as long as the node shows no outcome, and while it does not answer."""
    try:
        answer = await rpc.call("eth_getTransactionReceipt", hex_of(transaction))
        receipt = typed.receipt_of(answer, transaction)
        if receipt is None:
            return None
        logs = list(answer["logs"])
        return _ShownOutcome(
            receipt.block_number, receipt.block_hash, receipt.succeeded, _keys(logs), logs
        )
    except (NodeUnavailable, RpcError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _keys(logs: Sequence[dict[str, Any]]) -> Sequence[tuple[object, ...]]:
    """Contract, topics and data of each log. Raises as `_outcome` catches."""
    return [
        (address_of(log["address"]), *map(hash_of, log["topics"]), bytes_of(log["data"]))
        for log in logs
    ]


def _refusal(revert: Revert) -> Refused | NodeUnavailable:
    if revert.data is None:
        return NodeUnavailable(f"The node cannot try the call out: {revert.text}")
    return Refused(
        f"The contract would refuse it, so nothing was sent: {reverts.describe(revert.data)}",
        revert=reverts.error_name(revert.data),
    )
