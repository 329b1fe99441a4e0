"""Opens the client that fits a node's URL."""

from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.rpc import Rpc, RpcPolicy
from ltzd.chain.node.ws_rpc import WsRpc


def open_rpc(
    url: str, policy: RpcPolicy | None = None, limits: NodeLimits | None = None
) -> Rpc | WsRpc:
    """A client of the node, by HTTP or WebSocket; use it as an async context manager.

    Clients of the same node share `limits`.
    """
    if url.startswith(("ws://", "wss://")):
        return WsRpc(url, policy, limits)
    return Rpc(url, policy, limits)
