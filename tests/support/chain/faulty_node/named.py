"""The faults by name, for tests that try each of them and for random campaigns."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from tests.support.chain.faulty_node import lies
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.lies import Lie
from tests.support.chain.faulty_node.node import FaultyNode
from tests.support.chain.faulty_node.refusals import (
    BUSY,
    OF_A_FREE_PLAN,
    OF_ERIGON,
    Limits,
    retry_after_date,
)

BeginFault: TypeAlias = Callable[[FaultyNode], Awaitable[None]]
"""Begins a fault; `FaultyNode.recover` ends it."""


async def _begin(faults: Faults, node: FaultyNode) -> None:
    node.faults = faults


def _fault(faults: Faults) -> BeginFault:
    return partial(_begin, faults)


def lie_with(*node_lies: Lie) -> BeginFault:
    return _fault(Faults(lies=node_lies))


async def _busy_until_a_date(node: FaultyNode) -> None:
    node.faults = Faults(refusal=retry_after_date(2))


async def _drop_sockets(node: FaultyNode) -> None:
    node.drop_sockets()


async def _reset(node: FaultyNode) -> None:
    """All connections break now; later ones work."""
    await node.cut()
    await node.connect()


CONNECTION: Mapping[str, BeginFault] = {
    "dead": FaultyNode.cut,
    "hung": _fault(Faults(hung=True)),
    "lost": _fault(Faults(lost=True)),
    "dropped": _fault(Faults(dropped=True)),
    "reset": _reset,
    "dropped sockets": _drop_sockets,
    "silent sockets": _fault(Faults(silent=True)),
    "late": _fault(Faults(late_seconds=1.0)),
    "doubled requests": _fault(Faults(doubled="request")),
    "doubled replies": _fault(Faults(doubled="reply")),
    "reordered": _fault(Faults(reordered=True)),
    "gzip": _fault(Faults(gzipped=True)),
    "half a text": _fault(Faults(truncated="text")),
    "half an answer": _fault(Faults(truncated="connection")),
    "429 with a date": _busy_until_a_date,
    **{wording: _fault(Faults(refusal=refusal)) for wording, refusal in BUSY.items()},
}
"""Faults that leave a node's answers true, if they come."""

SIZES: Mapping[str, BeginFault] = {
    "limits of Erigon": _fault(Faults(limits=OF_ERIGON)),
    "limits of a free plan": _fault(Faults(limits=OF_A_FREE_PLAN)),
    "limits of one": _fault(Faults(limits=Limits(batch_items=1, log_blocks=1))),
}

VIEWS: Mapping[str, BeginFault] = {
    "a block behind": _fault(Faults(behind=1)),
    "behind": _fault(Faults(behind=4)),
    "an older state": _fault(Faults(behind=40)),
    "frozen": FaultyNode.freeze,
    "alternating": _fault(Faults(behind=3, alternates=True)),
}
"""Answers that were all true a while ago."""

LIES: Mapping[str, BeginFault] = {
    "null receipts": lie_with(lies.null_receipts),
    "too low a nonce": lie_with(lies.false_nonce(-3)),
    "too high a nonce": lie_with(lies.false_nonce(3)),
    "another chain id": lie_with(lies.another_chain_id(5)),
    "another genesis": lie_with(lies.another_genesis),
    "no code": lie_with(lies.no_code),
    "a future head": lie_with(lies.future_head(1000)),
    "a forged head": lie_with(lies.forged_head),
    "padded blocks": lie_with(lies.padded_blocks),
}
"""Lies that contradict the node's other answers, so that even an only node cannot do harm."""

FORGERIES: Mapping[str, BeginFault] = {
    "no logs": lie_with(lies.empty_logs),
    "no logs and no blooms": lie_with(lies.empty_logs, lies.empty_blooms),
    "another branch": lie_with(lies.forged_blocks),
}
"""Lies that only another node can disprove."""

ALL: Mapping[str, BeginFault] = {**CONNECTION, **SIZES, **VIEWS, **LIES, **FORGERIES}
