"""A clock that tests set by hand, for whatever takes a `clock` parameter."""


class ManualClock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
