"""Proves that LTZ lets a wallet mint nothing at a block that is final on the indexed chain.

The wallet's role and limit are read at the newest block, of which every node has the state, and
other nodes are asked about the same block. The verdict waits until this block is final. After a
restart the proof begins anew. Whether a role is granted again later does not matter: LTZ mints each
reference once.
"""

import structlog

from ltzd.chain.contracts import ltz
from ltzd.chain.contracts.access_control import decode_has_role, has_role_call
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.second_opinions import OPINIONS
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.evidence import MintRight, is_revocation_final, is_revocation_seen
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.values import Address, hex_of

log = structlog.get_logger()


class MintRevocation:
    """`is_final` turns True once, and stays."""

    def __init__(self, pool: Pool, chain_id: int, ltz_at: Address, wallet: Address) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._ltz = ltz_at
        self._wallet = wallet
        self._seen_at: Header | None = None
        self.is_final = False

    async def refresh(self, view: ChainView) -> None:
        """Look for the revocation, or for the finality of its block. Raises NodeUnavailable."""
        if self.is_final:
            return
        if self._seen_at is None:
            if await self._is_seen(view):
                self._seen_at = view.head
                log.info("mint_rights.revoked", wallet=hex_of(self._wallet))
            return
        async with session(self._pool) as connection:
            cursor = await chains.cursor(connection, self._chain_id)
            newest = await chains.newest_blocks(connection, self._seen_at.number, 1)
        seen = self._seen_at
        canonical = dict(newest).get(seen.number)
        if is_revocation_final(seen.hash, seen.number, canonical, cursor.final_number):
            self.is_final = True
        elif cursor.final_number >= seen.number:
            self._seen_at = None  # A reorg has removed the block.

    async def _is_seen(self, view: ChainView) -> bool:
        own = await self._right(view.node, view.head)
        others = []
        for other in view.node.others()[:OPINIONS]:
            try:
                others.append(await self._right(other, view.head))
            except NodeUnavailable:
                continue
        return is_revocation_seen(own, others, is_alone=view.node.is_alone)

    async def _right(self, node: Node, head: Header) -> MintRight:
        calls = (has_role_call("MINTER", self._wallet), ltz.mint_limit_call(self._wallet))
        try:
            role, limit = await node.views([(self._ltz, data) for data in calls], head)
            capacity, _, _ = ltz.decode_mint_limit(limit)
            return MintRight(decode_has_role(role), capacity)
        except (RpcError, ValueError) as error:
            raise NodeUnavailable(f"The wallet's right to mint: {error}") from error
