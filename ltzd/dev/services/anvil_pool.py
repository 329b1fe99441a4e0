"""Works around a bug of anvil 1.7.1 that strands transactions in its pool.

A transaction that arrives while anvil mines its predecessor can stay queued as if the predecessor
were missing. Neither mining nor sending the same bytes again frees it. With on-demand mining two
concurrent requests are enough; with a block time it is rare. Removing the sender's transactions
from the pool and sending them again in order frees them. A transaction of the same sender that
arrives in between is lost, as in a real node; its sender publishes it again.
"""

import asyncio
import itertools

import aiohttp

POLL_SECONDS = 0.25
_Pool = dict[str, dict[int, str]]


class _Node:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._ids = itertools.count(1)

    async def call(self, method: str, *parameters: object) -> object:
        return (await self.calls([(method, parameters)]))[0]

    async def calls(self, requests: list[tuple[str, tuple[object, ...]]]) -> list[object]:
        """Send one batch; returns the results in order, None for a call that failed."""
        batch = [
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(parameters)}
            for method, parameters in requests
        ]
        async with self._session.post(self._url, json=batch) as reply:
            answers = await reply.json(content_type=None)
        if not isinstance(answers, list):
            raise ValueError("the node did not answer the batch with a list")
        results = {answer.get("id"): answer.get("result") for answer in answers}
        return [results.get(request["id"]) for request in batch]


async def requeue_stranded(rpc_url: str) -> None:
    """Requeue stranded transactions until cancelled; keeps polling a node that does not answer."""
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        node = _Node(session, rpc_url)
        suspects: set[tuple[str, int]] = set()
        while True:
            try:
                suspects = await _requeue(node, suspects)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                suspects = set()
            await asyncio.sleep(POLL_SECONDS)


async def _requeue(node: _Node, suspects: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Requeue the senders that were suspects before too; returns the new suspects."""
    status = await node.call("txpool_status")
    if not isinstance(status, dict) or int(status["queued"], 16) == 0:
        return set()
    queued, pending = _pools(await node.call("txpool_content"))
    stranded = await _stranded(node, queued)
    for sender, _nonce in stranded & suspects:
        await _send_again(node, sender, queued[sender] | pending.get(sender, {}))
    return stranded - suspects


async def _stranded(node: _Node, queued: _Pool) -> set[tuple[str, int]]:
    """Senders, with nonce, whose next transaction is queued although no nonce is missing."""
    senders = list(queued)
    counts = await node.calls(
        [("eth_getTransactionCount", (sender, "latest")) for sender in senders]
    )
    next_nonces = {
        sender: int(str(count), 16) for sender, count in zip(senders, counts, strict=True)
    }
    return {(sender, nonce) for sender, nonce in next_nonces.items() if nonce in queued[sender]}


async def _send_again(node: _Node, sender: str, hashes: dict[int, str]) -> None:
    in_order = [hashes[nonce] for nonce in sorted(hashes)]
    signed = await node.calls(
        [("eth_getRawTransactionByHash", (transaction_hash,)) for transaction_hash in in_order]
    )
    await node.call("anvil_removePoolTransactions", sender)
    for raw in signed:
        if raw is not None:
            await node.call("eth_sendRawTransaction", raw)


def _pools(content: object) -> tuple[_Pool, _Pool]:
    if not isinstance(content, dict):
        raise ValueError("the node's answer to txpool_content is not an object")
    queued, pending = (
        {
            str(sender): {int(nonce): str(each["hash"]) for nonce, each in by_nonce.items()}
            for sender, by_nonce in content[part].items()
        }
        for part in ("queued", "pending")
    )
    return queued, pending
