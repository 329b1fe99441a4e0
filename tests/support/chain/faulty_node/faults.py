"""The faults that a node can have at a time; the default is a node without any.

Faults are one value that a test replaces, so that a request never sees half of a change.
"""

from dataclasses import dataclass, field
from typing import Literal

from tests.support.chain.faulty_node.lies import Lie
from tests.support.chain.faulty_node.refusals import Limits, Refusal
from tests.support.chain.faulty_node.views import OlderView


@dataclass(frozen=True)
class Faults:
    hung: bool = False
    """Accepts requests and never answers them; WebSockets stay open and silent."""
    lost: bool = False
    """Drops the connection after the chain has the request."""
    dropped: bool = False
    """Drops the connection before the chain has the request."""
    late_seconds: float = 0.0
    """The reply's delay after the chain has answered."""
    doubled: Literal["", "request", "reply"] = ""
    """Sends each request to the chain twice and gives the second answer, or each reply twice.

    A reply is sent twice within its batch, and as two messages of a WebSocket.
    """
    reordered: bool = False
    """A batch's replies come in the opposite order."""
    gzipped: bool = False
    truncated: Literal["", "text", "connection"] = ""
    """Half of the answer: as a proper reply, or with the connection's end in its middle."""
    refusal: Refusal | None = None
    """Refuses every request as a whole."""
    limits: Limits = field(default_factory=Limits)
    behind: int = 0
    """Answers as of a head that is so many blocks older."""
    frozen: OlderView | None = None
    """Answers as of the head at which the node froze."""
    alternates: bool = False
    """Only every second request sees the older head, as behind a load balancer."""
    silent: bool = False
    """WebSocket subscriptions send nothing."""
    lies: tuple[Lie, ...] = ()
