"""Blocks that a test mines at a base fee of its choice, and what a lane's metrics show of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.chain.tester import GWEI
from tests.support.instances.instance import Instance
from tests.support.waiting import until


async def mine_at(instance: Instance, base_fee: int) -> None:
    """Mines a block with this base fee; an empty block lowers the next base fee by an eighth.

    Returns once the lane knows the next base fee, also of blocks that its own mints make meanwhile.
    """
    await instance.rpc("anvil_setNextBlockBaseFeePerGas", hex(base_fee))
    await instance.rpc("evm_mine")

    async def the_lane_knows_the_next_fee() -> bool:
        history = await instance.rpc("eth_feeHistory", "0x1", "latest", [])
        next_fee = int(history["baseFeePerGas"][-1], 16)
        return await _shown(instance, 'base_fee_wei{kind="mint"}') == [next_fee]

    await until(the_lane_knows_the_next_fee, 60.0)


@asynccontextmanager
async def mined_by_hand(instance: Instance) -> AsyncIterator[None]:
    await instance.rpc("evm_setAutomine", False)
    try:
        yield
    finally:
        await instance.rpc("evm_setAutomine", True)
        await mine_at(instance, GWEI)


async def lane_shows(instance: Instance, gauge: str, wanted: float) -> None:
    async def shows_it() -> bool:
        return await _shown(instance, gauge) == [wanted]

    await until(shows_it, 60.0)


async def _shown(instance: Instance, gauge: str) -> list[float]:
    url = f"http://127.0.0.1:{instance.admin_port}/metrics"
    async with instance.http.get(url) as reply:
        shown = await reply.text()
    lines = [line for line in shown.splitlines() if line.startswith(f"ltzd_operator_{gauge} ")]
    return [float(line.split()[-1]) for line in lines]
