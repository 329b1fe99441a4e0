"""Who answers: chain id, version, hashes and the state of the pool."""

from eth_hash.auto import keccak

from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.objects import JsonObject, pool_object
from ltzd.dev.tester_chain.params import Params
from ltzd.values import hex_of

CLIENT = "ltzd-tester/py-evm-cancun"


@method("eth_chainId")
async def chain_id(node: Node, _: Params) -> str:
    return hex(node.chain.chain_id)


@method("net_version")
async def version(node: Node, _: Params) -> str:
    return str(node.chain.chain_id)


@method("net_listening")
async def listening(_node: Node, _: Params) -> bool:
    return True


@method("net_peerCount")
async def peer_count(_node: Node, _: Params) -> str:
    return "0x0"


@method("eth_syncing")
async def syncing(_node: Node, _: Params) -> bool:
    return False


@method("eth_mining")
async def mining(_node: Node, _: Params) -> bool:
    return True


@method("web3_clientVersion")
async def client_version(_node: Node, _: Params) -> str:
    return CLIENT


@method("web3_sha3", params_at_most=1)
async def sha3(_node: Node, params: Params) -> str:
    return hex_of(keccak(params.data(0, "data")))


@method("txpool_status")
async def pool_status(node: Node, _: Params) -> JsonObject:
    pending, queued = _pending_and_queued(node)
    return {
        "pending": hex(sum(map(len, pending.values()))),
        "queued": hex(sum(map(len, queued.values()))),
    }


@method("txpool_content")
async def pool_content(node: Node, _: Params) -> JsonObject:
    pending, queued = _pending_and_queued(node)
    return {"pending": pending, "queued": queued}


def _pending_and_queued(node: Node) -> tuple[JsonObject, JsonObject]:
    """Pending follow their sender's nonce without a gap; queued wait for one to be filled."""
    pending, queued = {}, {}
    for sender, waiting in node.chain.pool.by_sender().items():
        gap = node.chain.next_nonce(sender)
        pending[sender] = {nonce: one for nonce, one in waiting.items() if nonce < gap}
        queued[sender] = {nonce: one for nonce, one in waiting.items() if nonce >= gap}
    return pool_object(pending), pool_object(queued)
