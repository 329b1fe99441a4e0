"""Balances, nonces and code, after a block; and a wallet's transactions in the node's pool."""

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Account
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.typed_calls.requests import BlockRef, NodeRequests
from ltzd.values import Address, hex_of


class AccountCalls(NodeRequests):
    async def nonce(self, wallet: Address, at: BlockRef = "latest") -> int:
        """The number of transactions of `wallet` up to a block, or `pending`."""
        return typed.number_of(
            await self._read(at, "eth_getTransactionCount", hex_of(wallet)), typed.LARGEST_COUNT
        )

    async def pending_nonce(self, wallet: Address) -> int | None:
        """The nonce after the wallet's transactions in the node's pool, or None for an error.

        Some nodes answer with the nonce after their newest block. Raises NodeUnavailable if the
        node does not answer at all.
        """
        try:
            answer = await self._rpc.call("eth_getTransactionCount", hex_of(wallet), "pending")
        except RpcError:
            return None
        return typed.number_of(answer, typed.LARGEST_COUNT)

    async def pooled_nonces(self, wallet: Address) -> tuple[int, ...] | None:
        """The nonces of the wallet in the node's pool, in order; None if it does not show them.

        Public nodes seldom show their pool. Raises NodeUnavailable if the node does not answer.
        """
        try:
            answer = await self._rpc.call("txpool_contentFrom", hex_of(wallet))
        except RpcError:
            return None
        return typed.pool_nonces(answer)

    async def balance(self, wallet: Address, at: BlockRef = "latest") -> int:
        return typed.number_of(await self._read(at, "eth_getBalance", hex_of(wallet)))

    async def account(self, wallet: Address, at: BlockRef = "latest") -> Account:
        """Balance and nonce, in one request."""
        whose = (hex_of(wallet),)
        balance, nonce = await self._read_all(
            at, [("eth_getBalance", whose), ("eth_getTransactionCount", whose)]
        )
        return Account(
            typed.number_of(typed.checked(balance)),
            typed.number_of(typed.checked(nonce), typed.LARGEST_COUNT),
        )

    async def code(self, address: Address, at: BlockRef = "latest") -> bytes:
        return typed.data_of(await self._read(at, "eth_getCode", hex_of(address)))
