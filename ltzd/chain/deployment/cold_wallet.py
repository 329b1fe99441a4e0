"""A wallet whose key lies on no server: each transaction goes out at a person's word, once.

There is no lane and no database behind it. What keeps a transaction from going out twice is that
nothing is sent while an earlier one waits, and that an unknown outcome is told with its hash
instead of tried again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ltzd.chain.contracts import reverts
from ltzd.chain.node.node import Node
from ltzd.chain.node.publish_outcomes import PublishOutcome
from ltzd.chain.node.rpc import Rpc, RpcError
from ltzd.chain.signing import SignedTransaction, Signer, UnsignedTransaction
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import Misconfigured, NodeUnavailable, OutcomeUnknown, Refused, Unavailable
from ltzd.rules.operator.fees import GWEI, FeePolicy, fees_for
from ltzd.values import Address, Hash32, checksummed, hex_of

_LOOK_AGAIN_SECONDS = 0.05
_LOOK_AGAIN_AT_MOST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MinedTransaction:
    """A transaction that succeeded; `logs` as the node tells them."""

    hash: Hash32
    block_number: int
    logs: list[dict[str, Any]]


class ColdWallet:
    """`patience_seconds` is how long a block is waited for."""

    def __init__(
        self,
        rpc: Rpc,
        signer: Signer,
        fees: FeePolicy | None = None,
        patience_seconds: float = 120.0,
        clock: Clock = loop_time,
    ) -> None:
        self._clock = clock
        self._rpc = rpc
        self._node = Node(rpc)
        self._signer = signer
        self._fees = fees or FeePolicy()
        self._patience_seconds = patience_seconds

    async def send(
        self, to: Address, data: bytes, told: Callable[[Hash32], None]
    ) -> MinedTransaction:
        """Simulate, sign, publish, wait for the block. `told` hears the hash before it goes out.

        Raises Refused for a call that would revert (`details["revert"]` is the error's name) or
        did; OutcomeUnknown if it may be mined yet.
        """
        (mined,) = await self.send_all([(to, data)], told)
        return mined

    async def send_all(
        self, calls: Sequence[tuple[Address, bytes]], told: Callable[[Hash32], None]
    ) -> list[MinedTransaction]:
        """Calls that do not build on each other, in their order, without waiting in between."""
        nonce = await self._free_nonce()
        for to, data in calls:
            await simulate(self._node, to, data, self._signer.address)
        signed = [
            await self._signed(nonce + place, to, data) for place, (to, data) in enumerate(calls)
        ]
        for each in signed:
            told(each.hash)
            await self._publish(each)
        return [await self._mined(each.hash) for each in signed]

    async def wait_until_idle(self) -> None:
        """Wait until nothing of this wallet's is under way."""
        deadline = self._deadline()
        while True:
            try:
                await self._free_nonce()
                return
            except Refused:
                if self._clock() > deadline:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _free_nonce(self) -> int:
        """Raises Refused while an earlier transaction waits: it may be this very call."""
        wallet = self._signer.address
        mined = await self._node.nonce(wallet)
        if await self._node.nonce(wallet, "pending") > mined:
            raise Refused(
                f"A transaction of {checksummed(wallet)} with nonce {mined} is not mined yet, so "
                "nothing was sent; see what becomes of it before you repeat the command."
            )
        return mined

    async def _signed(self, nonce: int, to: Address, data: bytes) -> SignedTransaction:
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
            )
        )

    async def _gas_limit(self, to: Address, data: bytes) -> int:
        """A quarter more than it needs now: what it finds may differ by then."""
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
            return  # it may have arrived: its receipt will tell
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
        raise Misconfigured(f"The node does not take the transaction: {text}")

    async def _mined(self, transaction: Hash32) -> MinedTransaction:
        deadline, pause = self._deadline(), _LOOK_AGAIN_SECONDS
        while self._clock() < deadline:
            try:
                (receipt,) = await self._node.receipts([transaction])
                if receipt is not None and not receipt.succeeded:
                    raise Refused(
                        f"Transaction {hex_of(transaction)} was mined in block "
                        f"{receipt.block_number}, but reverted: it changed nothing."
                    )
                if receipt is not None:
                    return MinedTransaction(
                        transaction, receipt.block_number, await self._logs(transaction)
                    )
            except NodeUnavailable:
                pass
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_AGAIN_AT_MOST_SECONDS)
        raise OutcomeUnknown(
            f"Whether transaction {hex_of(transaction)} is mined is not known after "
            f"{self._patience_seconds:g} s, and it may be mined later: look for it in an explorer "
            "or with eth_getTransactionReceipt before you repeat the command."
        )

    async def _logs(self, transaction: Hash32) -> list[dict[str, Any]]:
        try:
            receipt = await self._rpc.call("eth_getTransactionReceipt", hex_of(transaction))
            return list(receipt["logs"])
        except (RpcError, KeyError, TypeError) as error:
            raise NodeUnavailable("The node's receipt is malformed") from error

    def _deadline(self) -> float:
        return self._clock() + self._patience_seconds


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
