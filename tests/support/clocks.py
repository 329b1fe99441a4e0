"""A clock that tests set by hand, for whatever takes a `clock` parameter."""


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
