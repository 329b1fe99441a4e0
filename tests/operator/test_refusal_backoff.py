"""A lane pauses longer after repeated permanent refusals."""

from ltzd.operator.refusal_backoff import RefusalBackoff


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_two_refusals_in_a_row_cause_no_pause() -> None:
    backoff = RefusalBackoff(FakeClock())
    for _ in range(2):
        backoff.refused()
        assert (backoff.is_waiting, backoff.is_probing) == (False, False)


def test_the_pause_grows_with_each_further_refusal_up_to_two_minutes() -> None:
    clock = FakeClock()
    backoff = RefusalBackoff(clock)
    pauses = []
    for _ in range(40):
        backoff.refused()
        begun = clock.now
        while backoff.is_waiting:
            clock.now += 1.0
        pauses.append(clock.now - begun)
    assert pauses[:9] == [0, 0, 1, 2, 4, 8, 16, 32, 64]
    assert set(pauses[9:]) == {120}
    assert backoff.is_probing


def test_an_accepted_call_ends_the_pause() -> None:
    backoff = RefusalBackoff(FakeClock())
    for _ in range(9):
        backoff.refused()
    assert backoff.is_waiting
    backoff.accepted()
    assert (backoff.is_waiting, backoff.is_probing) == (False, False)
