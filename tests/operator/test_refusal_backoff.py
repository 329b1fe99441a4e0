"""How a lane slows down whose work is refused for good, again and again."""

from ltzd.operator.refusal_backoff import RefusalBackoff


class Ticks:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_two_refusals_in_a_row_cost_nobody_any_time() -> None:
    backoff = RefusalBackoff(Ticks())
    for _ in range(2):
        backoff.refused()
        assert (backoff.is_waiting, backoff.is_probing) == (False, False)


def test_the_pause_grows_with_each_further_refusal_up_to_two_minutes() -> None:
    ticks = Ticks()
    backoff = RefusalBackoff(ticks)
    pauses = []
    for _ in range(40):
        backoff.refused()
        begun = ticks.now
        while backoff.is_waiting:
            ticks.now += 1.0
        pauses.append(ticks.now - begun)
    assert pauses[:9] == [0, 0, 1, 2, 4, 8, 16, 32, 64]
    assert set(pauses[9:]) == {120}
    assert backoff.is_probing


def test_a_call_that_is_taken_ends_the_pause() -> None:
    backoff = RefusalBackoff(Ticks())
    for _ in range(9):
        backoff.refused()
    assert backoff.is_waiting
    backoff.accepted()
    assert (backoff.is_waiting, backoff.is_probing) == (False, False)
