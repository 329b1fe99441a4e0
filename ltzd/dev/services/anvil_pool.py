"""Frees transactions that anvil's pool has forgotten how to mine.

A transaction that arrives while anvil mines its predecessor can be queued as if it still waited for
it; nothing that comes later mends that, neither mining nor sending the same bytes again (anvil
1.7.1; on demand it takes two requests at once, with a block time it is rare). Taken out of the pool
and sent again in order, it is mined. A transaction of the same sender that arrives in the
millisecond between is lost, as a real node may lose one: whoever sent it sends it again.
"""

import asyncio
import itertools

import aiohttp

PAUSE_SECONDS = 0.25
_Pool = dict[str, dict[int, str]]


class _Node:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._ids = itertools.count(1)

    async def call(self, method: str, *parameters: object) -> object:
        return (await self.calls([(method, parameters)]))[0]

    async def calls(self, requests: list[tuple[str, tuple[object, ...]]]) -> list[object]:
        """The results in order; None where the node refused."""
        batch = [
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(parameters)}
            for method, parameters in requests
        ]
        async with self._session.post(self._url, json=batch) as reply:
            answers = await reply.json(content_type=None)
        if not isinstance(answers, list):
            raise ValueError("the node did not answer a batch with a batch")
        results = {answer.get("id"): answer.get("result") for answer in answers}
        return [results.get(request["id"]) for request in batch]


async def requeue_stranded(rpc_url: str) -> None:
    """Free what is stranded, for as long as the caller lets this run; a lost node is waited for."""
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        node = _Node(session, rpc_url)
        suspects: set[tuple[str, int]] = set()
        while True:
            try:
                suspects = await _free(node, suspects)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                suspects = set()
            await asyncio.sleep(PAUSE_SECONDS)


async def _free(node: _Node, suspects: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Free the senders suspected twice in a row; answers the suspects of now."""
    status = await node.call("txpool_status")
    if not isinstance(status, dict) or int(status["queued"], 16) == 0:
        return set()
    queued, pending = _pools(await node.call("txpool_content"))
    found = await _stranded(node, queued)
    for sender, _nonce in found & suspects:
        await _send_again(node, sender, queued[sender] | pending.get(sender, {}))
    return found - suspects


async def _stranded(node: _Node, queued: _Pool) -> set[tuple[str, int]]:
    """Senders whose very next transaction is queued, so that it waits for nothing."""
    senders = list(queued)
    counts = await node.calls([("eth_getTransactionCount", (who, "latest")) for who in senders])
    next_nonces = {who: int(str(count), 16) for who, count in zip(senders, counts, strict=True)}
    return {(who, nonce) for who, nonce in next_nonces.items() if nonce in queued[who]}


async def _send_again(node: _Node, sender: str, hashes: dict[int, str]) -> None:
    in_order = [hashes[nonce] for nonce in sorted(hashes)]
    signed = await node.calls([("eth_getRawTransactionByHash", (one,)) for one in in_order])
    await node.call("anvil_removePoolTransactions", sender)
    for raw in signed:
        if raw is not None:
            await node.call("eth_sendRawTransaction", raw)


def _pools(content: object) -> tuple[_Pool, _Pool]:
    if not isinstance(content, dict):
        raise ValueError("the node did not tell its pool's content")
    queued, pending = (
        {
            str(sender): {int(nonce): str(each["hash"]) for nonce, each in by_nonce.items()}
            for sender, by_nonce in content[part].items()
        }
        for part in ("queued", "pending")
    )
    return queued, pending
