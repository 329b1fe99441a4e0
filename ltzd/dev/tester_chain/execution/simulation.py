"""Blocks that are executed on top of a block and kept nowhere, for eth_simulateV1.

Nonces and signatures are not checked. A call without fees pays none.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ltzd.dev.tester_chain.errors import JsonRpcError
from ltzd.dev.tester_chain.execution.block import Header, MinedBlock
from ltzd.dev.tester_chain.execution.block_builder import (
    BlockFiller,
    BlockPlan,
    UnrunnableError,
    new_header,
)
from ltzd.dev.tester_chain.execution.overrides import Overrides
from ltzd.dev.tester_chain.execution.state import EvmState, Execution
from ltzd.dev.tester_chain.execution.transaction import TransactionFields, without_signature
from ltzd.values import Address

_BLOCK_SECONDS: Final = 12
_INTRINSIC_GAS: Final = -38013
_FUNDS: Final = -38014
_BLOCK_GAS: Final = -38015
_NUMBERS: Final = -38020
_TIMES: Final = -38021
_VM_ERROR: Final = -32015


class SimulatedCall(msgspec.Struct, frozen=True):
    """`fields.gas` is 0 if the caller names none: the call then gets what the block has left."""

    fields: TransactionFields
    sender: Address
    nonce: int | None


class PlannedBlock(msgspec.Struct, frozen=True):
    overrides: Overrides
    calls: Sequence[SimulatedCall]


class SimulatedBlock(msgspec.Struct, frozen=True):
    block: MinedBlock
    executions: tuple[Execution, ...]


def simulate(
    parent: MinedBlock,
    planned: Sequence[PlannedBlock],
    state_for: Callable[[Header, MinedBlock], EvmState],
    database: Any,
) -> list[SimulatedBlock]:
    """`state_for` gives states in `database`, a layer that ends with the simulation.

    Raises JsonRpcError if a call or a block could not be in a chain.
    """
    simulated: list[SimulatedBlock] = []
    for plan in planned:
        header = plan.overrides.changed(_header_after(parent))
        _check_header(parent, header)
        executed = _execute(plan, header, parent, state_for(header, parent))
        executed.block.database = database
        simulated.append(executed)
        parent = executed.block
    return simulated


def _execute(
    plan: PlannedBlock, header: Header, parent: MinedBlock, state: EvmState
) -> SimulatedBlock:
    plan.overrides.apply(state)
    filler = BlockFiller(state, header)
    executions = []
    for call in plan.calls:
        left = header.gas_limit - filler.gas_used
        nonce = state.nonce(call.sender) if call.nonce is None else call.nonce
        fields = replace(call.fields, nonce=nonce, gas=call.fields.gas or left)
        _check_call(state, fields, call.sender, left)
        try:
            executions.append(filler.include(without_signature(fields, call.sender)))
        except UnrunnableError as error:
            raise JsonRpcError(_VM_ERROR, f"{error.__cause__}") from error
    state.persist()
    return SimulatedBlock(filler.sealed(parent), tuple(executions))


def _header_after(parent: MinedBlock) -> Header:
    gas_limit, coinbase = int(parent.header.gas_limit), Address(parent.header.coinbase)
    return new_header(
        BlockPlan(parent, parent.timestamp + _BLOCK_SECONDS, 0, coinbase, gas_limit, ())
    )


def _check_header(parent: MinedBlock, header: Header) -> None:
    if header.block_number != parent.number + 1:
        raise JsonRpcError(
            _NUMBERS, f"block numbers must be in order: {header.block_number} after {parent.number}"
        )
    if header.timestamp <= parent.timestamp:
        raise JsonRpcError(
            _TIMES,
            f"block timestamps must be in order: {header.timestamp} <= {parent.timestamp}",
        )


def _check_call(state: EvmState, fields: TransactionFields, sender: Address, left: int) -> None:
    if fields.gas > left:
        raise JsonRpcError(_BLOCK_GAS, f"block gas limit reached: {fields.gas} > {left}")
    if fields.gas < fields.min_gas_limit:
        raise JsonRpcError(
            _INTRINSIC_GAS,
            f"intrinsic gas too low: have {fields.gas}, want {fields.min_gas_limit}",
        )
    if state.balance(sender) < fields.cost:
        raise JsonRpcError(
            _FUNDS,
            "insufficient funds for gas * price + value: "
            f"have {state.balance(sender)} want {fields.cost}",
        )
