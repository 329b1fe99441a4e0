"""The time from a block that moves an NFT until the cached constraint results are deleted.

Results are kept for wallets between which tokens go; a block is ordered from the node, and a second
connection reads the rows again and again until they are gone. A look reads the followed block in
the same snapshot, so a result that outlived the commit of its block would be seen.
"""

import asyncio
import random
import secrets
from array import array
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks import relay_calls
from benchmarks.harness import instance, load
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Plan, percentile_ms
from benchmarks.harness.sides import check, first_events
from benchmarks.relay_calls import FREE_COLLECTION, Calls
from ltzd.chain.contracts import contract_abi
from ltzd.chain.node.rpc import Rpc
from ltzd.store.database import Connection, connect
from ltzd.values import Address, hex_of

WALLETS = 5
_FUNDS = 10**20
_GAS = 200_000
_MOST_PAUSE_SECONDS = 0.25
_PATIENCE_SECONDS = 10.0

Held = dict[int, Address]


@dataclass(frozen=True, slots=True)
class Invalidated:
    """The time from the order to mine a block to the first read without results of its wallets.

    `outlived`: looks that found one though its block was committed.
    """

    p50_ms: float
    p99_ms: float
    blocks: int
    looks: int
    outlived: int

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


async def claim(ltzd: Instance) -> None:
    """Creates an indexed token for each of WALLETS users."""
    await first_events(ltzd, WALLETS)
    calls = Calls(ltzd, await relay_calls.logged_in(ltzd, WALLETS))
    plan = Plan(
        port=ltzd.port,
        requests=calls.claim_requests(WALLETS),
        clients=WALLETS,
        must_hold=relay_calls.CONFIRMED,
        own_addresses=True,
    )
    check(await load.measure(plan))


async def measure(ltzd: Instance, rpc: Rpc, database: Connection, blocks: int) -> Invalidated:
    rows = await database.fetch(
        "SELECT token_id, holder FROM tokens WHERE collection_id = $1", FREE_COLLECTION
    )
    held: Held = {int(row["token_id"]): Address(row["holder"]) for row in rows}
    reader = await connect(ltzd.dev_json["databaseUrl"], "benchmark's reader")
    try:
        async with _blocks_on_demand(rpc, held.values()):
            moves = _Moves(rpc, database, reader, ltzd.dev_json["contracts"]["PerkNFT"], held)
            return await moves.measured(blocks)
    finally:
        await reader.close()


@asynccontextmanager
async def _blocks_on_demand(rpc: Rpc, wallets: Collection[Address]) -> AsyncIterator[None]:
    """Within the context, anvil impersonates the wallets and mines only on request."""
    for wallet in wallets:
        await rpc.call("anvil_setBalance", hex_of(wallet), hex(_FUNDS))
        await rpc.call("anvil_impersonateAccount", hex_of(wallet))
    await rpc.call("evm_setIntervalMining", 0)
    try:
        yield
    finally:
        await rpc.call("evm_setIntervalMining", instance.BLOCK_SECONDS)


class _Moves:
    def __init__(
        self, rpc: Rpc, database: Connection, reader: Connection, perk_nft: str, held: Held
    ) -> None:
        self._rpc = rpc
        self._database = database
        self._reader = reader
        self._perk_nft = perk_nft
        self._held = held
        self._looks = 0
        self._outlived = 0

    async def measured(self, blocks: int) -> Invalidated:
        latencies = array("d")
        for _ in range(blocks):
            latencies.append(await self._block())
        ordered = sorted(latencies)
        return Invalidated(
            p50_ms=percentile_ms(ordered, 0.5),
            p99_ms=percentile_ms(ordered, 0.99),
            blocks=blocks,
            looks=self._looks,
            outlived=self._outlived,
        )

    async def _block(self) -> float:
        """Returns the seconds until no result of the wallets concerned is stored.

        The order is given at a random moment, since the indexer looks for blocks by the clock.
        """
        await self._keep_results()
        await self._send_transfers()
        number = 1 + int(await self._rpc.call("eth_blockNumber"), 16)
        await asyncio.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
        ordered_at = perf_counter()
        ordered = asyncio.create_task(self._rpc.call("evm_mine"))
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while await self._check_kept(number):
                pass
            seconds = perf_counter() - ordered_at
            await ordered
        return seconds

    async def _check_kept(self, number: int) -> bool:
        row = await self._reader.fetchrow(
            """
            SELECT (SELECT cursor_number FROM chains) AS followed,
                   EXISTS (SELECT FROM constraint_results
                            WHERE user_address = ANY($1::bytea[])) AS is_kept
            """,
            list(self._held.values()),
        )
        assert row is not None
        is_kept: bool = row["is_kept"]
        self._looks += 1
        self._outlived += is_kept and row["followed"] >= number
        return is_kept

    async def _keep_results(self) -> None:
        await self._database.execute(
            """
            INSERT INTO constraint_results (user_address, collection_id, position, brand_id, kind,
                                            api_url, ticket, outcome, evaluated_at, expires_at)
            SELECT wallet, 1, 0, $2, 'external_api', 'https://bench.example/', gen_random_uuid(),
                   true, now(), now() + interval '1 hour'
              FROM unnest($1::bytea[]) AS wallet
            """,
            list(self._held.values()),
            secrets.token_bytes(20),
        )

    async def _send_transfers(self) -> None:
        """Moves every token to the holder of the next one."""
        tokens, holders = list(self._held), list(self._held.values())
        nexts = [*holders[1:], holders[0]]
        for token, holder, recipient in zip(tokens, holders, nexts, strict=True):
            data = contract_abi.encode_call("PerkNFT", "transferFrom", holder, recipient, token)
            sent: Mapping[str, str] = {
                "from": hex_of(holder),
                "to": self._perk_nft,
                "data": hex_of(data),
                "gas": hex(_GAS),
            }
            await self._rpc.call("eth_sendTransaction", sent)
        self._held = dict(zip(tokens, nexts, strict=True))
