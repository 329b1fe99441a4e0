"""The settings of the event handler."""

import msgspec


class EventPolicy(msgspec.Struct, frozen=True):
    """Units: seconds.

    `hash_wait` is how long an answer waits for the mint's hash before its status is "queued".
    `unknown_outcome` is how long the caller of an event that may have been written waits for the
    database, which is tried again after each `unknown_outcome_pause`. A commit writes at most
    `max_batch` events.
    """

    hash_wait: float = 5.0
    unknown_outcome: float = 5.0
    unknown_outcome_pause: float = 0.2
    max_batch: int = 200


DEFAULT_POLICY = EventPolicy()
