"""The gas price of the next block, in wei per gas, and the base fees of past blocks."""

from collections.abc import Sequence
from typing import Any

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.rpc import RpcCall, RpcError
from ltzd.chain.node.typed_calls.requests import NodeRequests
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.fees import GasPrice

_GAS_PRICE_CALLS: Sequence[RpcCall] = (
    ("eth_feeHistory", ("0x1", "latest", [])),
    ("eth_maxPriorityFeePerGas", ()),
)


class GasPriceCalls(NodeRequests):
    async def gas_price(self, head: Header) -> GasPrice:
        """The gas price of the block after `head`.

        If the node has no fee history, `head`'s base fee is used: the next one differs from it by
        an eighth at most. If the node suggests no tip, the tip is the excess of its gas price over
        the base fee.
        """
        if head.base_fee is None:
            return await self._price_without_base_fee()
        history, tip = await self._rpc.batch(_GAS_PRICE_CALLS)
        return await self._price(head.base_fee, history, tip)

    async def current_gas_price(self) -> GasPrice:
        """As `gas_price` for the newest block, in one batch with it."""
        head, history, tip = await self._rpc.batch(
            [("eth_getBlockByNumber", ("latest", False)), *_GAS_PRICE_CALLS]
        )
        header = typed.newest_header_of(head)
        if header.base_fee is None:
            return await self._price_without_base_fee()
        return await self._price(header.base_fee, history, tip)

    async def base_fees(self, head: Header, count: int) -> list[int]:
        """The base fees of `count` blocks up to `head`, the oldest first, and then the next one's.

        A node may answer with fewer blocks. Raises NodeUnavailable.
        """
        answer = await self._ask("eth_feeHistory", hex(count), hex(head.number), [])
        try:
            fees = [typed.quantity(fee) for fee in answer["baseFeePerGas"][-count - 1 :]]
        except (KeyError, TypeError, ValueError) as error:
            raise NodeUnavailable(
                "The node's fee history is malformed", kind="malformed"
            ) from error
        if len(fees) < 2:
            raise NodeUnavailable("The node's fee history is empty", kind="malformed")
        return fees

    async def _price(self, last_base_fee: int, history: Any, tip: Any) -> GasPrice:
        base_fee = (
            last_base_fee if isinstance(history, RpcError) else typed.next_base_fee_of(history)
        )
        if not isinstance(tip, RpcError):
            return GasPrice(base_fee, typed.number_of(tip))
        gas_price = typed.number_of(await self._ask("eth_gasPrice"))
        return GasPrice(base_fee, max(0, gas_price - base_fee))

    async def _price_without_base_fee(self) -> GasPrice:
        return GasPrice(0, typed.number_of(await self._ask("eth_gasPrice")), is_legacy=True)
