"""The peculiarities of a node that a client has learned, so that a lack is found out once.

Sizes and rates that a node accepts are learned elsewhere: see `rules/nodes`.
"""

import msgspec


class NodeTraits(msgspec.Struct):
    """`reads_by_hash`: the node reads state after a block named by its hash (EIP-1898).

    `is_anvil` is None until the node was asked for its version.
    """

    reads_by_hash: bool = True
    is_anvil: bool | None = None
