"""Chain id, client version, keccak-256, and the state of the pool."""

from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, pool_object
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of, keccak

CLIENT = "ltzd-tester/py-evm-prague"


@method("eth_chainId")
async def chain_id(context: MethodContext, _: Params) -> str:
    return hex(context.chain.chain_id)


@method("net_version", "eth_networkId")
async def version(context: MethodContext, _: Params) -> str:
    return str(context.chain.chain_id)


@method("net_listening")
async def listening(_context: MethodContext, _: Params) -> bool:
    return True


@method("net_peerCount")
async def peer_count(_context: MethodContext, _: Params) -> str:
    return "0x0"


@method("eth_coinbase")
async def coinbase(context: MethodContext, _: Params) -> str:
    return hex_of(context.chain.coinbase)


@method("eth_hashrate")
async def hashrate(_context: MethodContext, _: Params) -> str:
    return "0x0"


@method("eth_syncing")
async def syncing(_context: MethodContext, _: Params) -> bool:
    return False


@method("eth_mining")
async def mining(_context: MethodContext, _: Params) -> bool:
    return True


@method("web3_clientVersion")
async def client_version(_context: MethodContext, _: Params) -> str:
    return CLIENT


@method("web3_sha3", params_at_most=1)
async def sha3(_context: MethodContext, params: Params) -> str:
    return hex_of(keccak(params.data(0, "data")))


@method("txpool_status")
async def pool_status(context: MethodContext, _: Params) -> JsonObject:
    pending, queued = _pending_and_queued(context)
    return {
        "pending": hex(sum(map(len, pending.values()))),
        "queued": hex(sum(map(len, queued.values()))),
    }


@method("txpool_inspect")
async def pool_texts(context: MethodContext, _: Params) -> JsonObject:
    """The pool's transactions, each as a line of text."""
    content = zip(("pending", "queued"), _pending_and_queued(context), strict=True)
    return {
        name: {
            sender: {nonce: _line(each) for nonce, each in transactions.items()}
            for sender, transactions in by_sender.items()
        }
        for name, by_sender in content
    }


@method("txpool_content")
async def pool_content(context: MethodContext, _: Params) -> JsonObject:
    pending, queued = _pending_and_queued(context)
    return {"pending": pending, "queued": queued}


def _line(transaction: JsonObject) -> str:
    value, gas, price = (int(transaction[name], 16) for name in ("value", "gas", "gasPrice"))
    to = transaction["to"] or "contract creation"
    return f"{to}: {value} wei + {gas} gas \N{MULTIPLICATION SIGN} {price} wei"


def _pending_and_queued(context: MethodContext) -> tuple[JsonObject, JsonObject]:
    """Pending transactions continue their sender's nonce; queued ones wait behind a gap."""
    pending, queued = {}, {}
    for sender, waiting in context.chain.pool.by_sender().items():
        gap = context.chain.next_nonce(sender)
        pending[sender] = {nonce: each for nonce, each in waiting.items() if nonce < gap}
        queued[sender] = {nonce: each for nonce, each in waiting.items() if nonce >= gap}
    return pool_object(pending), pool_object(queued)
