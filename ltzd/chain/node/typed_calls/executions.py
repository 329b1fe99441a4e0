"""Calls that a node executes without a transaction: views, simulations, estimates of gas."""

from collections.abc import Sequence

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Header, Revert
from ltzd.chain.node.block_refusals import refuses_hash
from ltzd.chain.node.rpc import RpcCall, RpcError
from ltzd.chain.node.typed_calls.requests import BlockRef, NodeRequests, block_parameter
from ltzd.values import Address, hex_of


class ExecutionCalls(NodeRequests):
    async def view(self, to: Address, data: bytes, at: BlockRef = "latest") -> bytes:
        """The result of a call after a block. Raises RpcError with the revert data."""
        (answer,) = await self.views([(to, data)], at)
        return answer

    async def views(
        self, calls: Sequence[tuple[Address, bytes]], at: BlockRef = "latest"
    ) -> list[bytes]:
        """The results of calls (to, data) after a block, in one batch.

        Raises RpcError for the first call that reverts.
        """
        answers = await self._read_all(at, _view_calls(calls))
        for answer in answers:
            if isinstance(answer, RpcError):
                raise answer
        return [typed.data_of(answer) for answer in answers]

    async def view_outcomes(
        self, calls: Sequence[tuple[Address, bytes]], at: BlockRef = "latest"
    ) -> list[bytes | Revert]:
        """As `views`, with a Revert in place of the result of a call that failed."""
        return [
            typed.revert_of(answer) if isinstance(answer, RpcError) else typed.data_of(answer)
            for answer in await self._read_all(at, _view_calls(calls))
        ]

    async def estimate_gas(
        self, to: Address, data: bytes, sender: Address, at: BlockRef | None = None
    ) -> int | Revert:
        """The gas that a call needs after a block, or how it would revert.

        Without `at` the node chooses the block: its newest one, or the pending one.
        """
        call = {"from": hex_of(sender), "to": hex_of(to), "data": hex_of(data)}
        if at is None:
            (answer,) = await self._outcomes([("eth_estimateGas", (call,))])
        else:
            (answer,) = await self._read_all(at, [("eth_estimateGas", (call,))])
            if isinstance(answer, RpcError) and refuses_hash(answer):
                # Some clients estimate after their newest block alone.
                (answer,) = await self._outcomes([("eth_estimateGas", (call,))])
        return (
            typed.revert_of(answer)
            if isinstance(answer, RpcError)
            else typed.number_of(answer, typed.LARGEST_COUNT)
        )

    async def simulate_call(
        self,
        to: Address,
        data: bytes,
        sender: Address,
        gas: int | None = None,
        at: BlockRef = "latest",
    ) -> Revert | None:
        """How a call with this gas limit would revert after a block; None if it would succeed."""
        call = {"from": hex_of(sender), "to": hex_of(to), "data": hex_of(data)}
        if gas is not None:
            call["gas"] = hex(gas)
        if isinstance(at, Header) and not self._rpc.traits.reads_by_hash:
            (answer,) = await self._read_by_height(at, [("eth_call", (call,))])
            return typed.failure_of(answer)
        try:
            typed.data_of(await self._rpc.batched_call("eth_call", call, block_parameter(at)))
        except RpcError as error:
            answer = error
            if isinstance(at, Header):
                (answer,) = await self._checked_reads(at, [("eth_call", (call,))], [error])
            return typed.failure_of(answer)
        return None

    async def simulate(
        self,
        to: Address,
        calls: Sequence[bytes],
        sender: Address,
        gas: Sequence[int] | None = None,
        at: BlockRef = "latest",
    ) -> list[Revert | None]:
        """How each call alone would revert after a block, or None for a call that would succeed.

        `gas` holds the gas limit of each call; by default the node chooses it.
        """
        requests = [
            {"from": hex_of(sender), "to": hex_of(to), "data": hex_of(data)} for data in calls
        ]
        for request, limit in zip(requests, gas or (), strict=gas is not None):
            request["gas"] = hex(limit)
        answers = await self._read_all(at, [("eth_call", (each,)) for each in requests])
        return [typed.failure_of(answer) for answer in answers]


def _view_calls(calls: Sequence[tuple[Address, bytes]]) -> list[RpcCall]:
    return [("eth_call", ({"to": hex_of(to), "data": hex_of(data)},)) for to, data in calls]
