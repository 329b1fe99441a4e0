"""A wallet whose key is on no server: a person's command sends each transaction, once.

There is no lane and no database. A transaction is not sent twice, because nothing is sent while an
earlier one is pending, and because an unknown outcome is reported with its hash and not retried.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ltzd.chain.contracts import reverts
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.chain.signing import SignedTransaction, Signer, UnsignedTransaction
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import Misconfigured, NodeUnavailable, OutcomeUnknown, Refused, Unavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.rules.operator.fees import GWEI, FeePolicy, fees_for
from ltzd.values import Address, Hash32, checksummed, hex_of

_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConfirmedTransaction:
    """A transaction that succeeded; `logs` are the node's."""

    hash: Hash32
    block_number: int
    logs: list[dict[str, Any]]


class ColdWallet:
    """Sends transactions of one key. `timeout_seconds` bounds the wait for a block."""

    def __init__(
        self,
        rpc: RpcClient,
        signer: Signer,
        fees: FeePolicy | None = None,
        timeout_seconds: float = 120.0,
        clock: Clock = loop_time,
    ) -> None:
        self._clock = clock
        self._rpc = rpc
        self._node = Node(rpc)
        self._signer = signer
        self._fees = fees or FeePolicy()
        self._timeout_seconds = timeout_seconds

    async def send(
        self, to: Address, data: bytes, on_signed: Callable[[Hash32], None]
    ) -> ConfirmedTransaction:
        """Simulates, signs, publishes and waits for the block.

        Calls `on_signed` with the hash before the transaction is published. Raises Refused for a
        call that would revert (`details["revert"]` is the error's name) or did revert, and
        OutcomeUnknown if the transaction may still be mined.
        """
        (mined,) = await self.send_all([(to, data)], on_signed)
        return mined

    async def send_all(
        self, calls: Sequence[tuple[Address, bytes]], on_signed: Callable[[Hash32], None]
    ) -> list[ConfirmedTransaction]:
        """As `send` for calls that do not depend on each other, in order, without waits between."""
        nonce = await self._free_nonce()
        for to, data in calls:
            await simulate(self._node, to, data, self._signer.address)
        signed = [
            await self._sign(nonce + index, to, data) for index, (to, data) in enumerate(calls)
        ]
        for transaction in signed:
            on_signed(transaction.hash)
            await self._publish(transaction)
        return [await self._wait_until_mined(transaction.hash) for transaction in signed]

    async def wait_until_idle(self) -> None:
        """Waits until this wallet has no pending transaction. Raises Refused after the timeout."""
        deadline = self._deadline()
        while True:
            try:
                await self._free_nonce()
                return
            except Refused:
                if self._clock() > deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _free_nonce(self) -> int:
        """Raises Refused while an earlier transaction is pending: it may be this very call."""
        wallet = self._signer.address
        mined = await self._node.nonce(wallet)
        if await self._node.nonce(wallet, "pending") > mined:
            raise Refused(
                f"A transaction of {checksummed(wallet)} with nonce {mined} is not mined yet, so "
                "nothing was sent; wait for its outcome before you repeat the command."
            )
        return mined

    async def _sign(self, nonce: int, to: Address, data: bytes) -> SignedTransaction:
        head, _ = await self._node.head_and_final()
        fees = fees_for(await self._node.gas_price(head), self._fees)
        if fees is None:
            raise Unavailable(
                f"Gas costs more than {self._fees.cap // GWEI} gwei now, so nothing was sent; "
                "try again later."
            )
        return self._signer.sign(
            UnsignedTransaction(
                chain_id=await self._node.chain_id(),
                nonce=nonce,
                max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
                max_fee_per_gas=fees.max_fee_per_gas,
                gas_limit=await self._gas_limit(to, data),
                to=to,
                value=0,
                data=data,
                is_legacy=fees.is_legacy,
            )
        )

    async def _gas_limit(self, to: Address, data: bytes) -> int:
        """A quarter more than the call needs now: the state may have changed when it is mined."""
        call = {"from": hex_of(self._signer.address), "to": hex_of(to), "data": hex_of(data)}
        try:
            needed = int(await self._rpc.call("eth_estimateGas", call), 16)
        except RpcError as error:
            raise _refusal(error.data, error.message) from error
        except (TypeError, ValueError) as error:
            raise NodeUnavailable("The node's estimate of gas is malformed") from error
        return needed * 5 // 4

    async def _publish(self, signed: SignedTransaction) -> None:
        try:
            outcome, text = await self._node.publish(signed.raw)
        except NodeUnavailable:
            return  # The bytes may have arrived; the receipt will show.
        wallet = checksummed(self._signer.address)
        match outcome:
            case PublishOutcome.ACCEPTED:
                return
            case PublishOutcome.UNAFFORDABLE:
                raise Misconfigured(
                    f"{wallet} cannot pay for the gas, so nothing was sent; fund it."
                )
            case PublishOutcome.NONCE_TOO_LOW:
                raise Refused(
                    f"Another transaction of {wallet} was mined meanwhile, so this one was not "
                    "sent; look at that one before you repeat the command."
                )
        raise Misconfigured(f"The node refuses the transaction: {text}")

    async def _wait_until_mined(self, transaction: Hash32) -> ConfirmedTransaction:
        deadline, pause = self._deadline(), _POLL_SECONDS
        while self._clock() < deadline:
            try:
                (receipt,) = await self._node.receipts([transaction])
                if receipt is not None and not receipt.succeeded:
                    raise Refused(
                        f"Transaction {hex_of(transaction)} was mined in block "
                        f"{receipt.block_number}, but reverted: it changed nothing."
                    )
                if receipt is not None:
                    return ConfirmedTransaction(
                        transaction, receipt.block_number, await self._logs(transaction)
                    )
            except NodeUnavailable:
                pass
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)
        raise OutcomeUnknown(
            f"Whether transaction {hex_of(transaction)} is mined is not known after "
            f"{self._timeout_seconds:g} s, and it may be mined later: look for it in an explorer "
            "or with eth_getTransactionReceipt before you repeat the command."
        )

    async def _logs(self, transaction: Hash32) -> list[dict[str, Any]]:
        try:
            receipt = await self._rpc.call("eth_getTransactionReceipt", hex_of(transaction))
            return list(receipt["logs"])
        except (RpcError, KeyError, TypeError) as error:
            raise NodeUnavailable("The node's receipt is malformed") from error

    def _deadline(self) -> float:
        return self._clock() + self._timeout_seconds


async def simulate(node: Node, to: Address, data: bytes, sender: Address) -> None:
    """Raises Refused with the contract's reason if the call would revert."""
    (revert,) = await node.simulate(to, [data], sender)
    if revert is not None:
        raise _refusal(revert.data, revert.text)


def _refusal(data: bytes | None, text: str) -> Refused | NodeUnavailable:
    if data is None:
        return NodeUnavailable(f"The node cannot try the call out: {text}")
    return Refused(
        f"The contract would refuse it, so nothing was sent: {reverts.describe(data)}",
        revert=reverts.error_name(data),
    )
