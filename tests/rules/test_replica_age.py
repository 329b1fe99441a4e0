"""The bound of a standby's age is never younger than the truth."""

from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.replica_age import ReplayProgress

MOST = 10.0


def test_a_standby_that_has_replayed_a_position_is_as_old_as_its_moment() -> None:
    progress = ReplayProgress(MOST)
    assert progress.age(0.0) is None
    progress.note(100.0, 5_000)
    progress.note(101.0, 6_000)
    progress.replayed(4_999)
    assert progress.age(101.0) is None
    progress.replayed(5_500)
    assert progress.age(101.5) == 1.5
    progress.replayed(6_000)
    assert progress.age(101.5) == 0.5
    progress.replayed(1)
    assert progress.age(101.5) == 0.5, "replay never goes back"
    assert progress.age(111.0) == MOST
    assert progress.age(111.1) is None


def test_an_idle_primary_keeps_its_standby_fresh() -> None:
    progress = ReplayProgress(MOST)
    for second in range(100):
        progress.note(float(second), 7)
        progress.replayed(7)
        assert progress.age(second + 0.25) == 0.25


def test_another_server_begins_anew() -> None:
    progress = ReplayProgress(MOST)
    progress.note(1.0, 10)
    progress.note(2.0, 20)
    progress.replayed(10)
    progress.forget()
    assert progress.age(1.0) is None
    progress.replayed(20)
    assert progress.age(2.0) is None, "the position is one of the former primary"


def test_another_standby_of_the_primary_must_prove_its_own_age() -> None:
    progress = ReplayProgress(MOST)
    progress.note(1.0, 10)
    progress.note(2.0, 20)
    progress.replayed(10)
    progress.forget_replay()
    assert progress.age(2.0) is None
    progress.replayed(19)
    assert progress.age(2.0) is None
    progress.replayed(20)
    assert progress.age(2.5) == 0.5


@given(
    steps=st.lists(
        st.tuples(st.floats(0.01, 3), st.integers(0, 50), st.integers(0, 80), st.booleans()),
        max_size=60,
    )
)
def test_no_answer_is_older_than_the_bound_says(
    steps: list[tuple[float, int, int, bool]],
) -> None:
    """The log grows and is replayed at any speed; the true age is that of what is missing."""
    progress = ReplayProgress(MOST)
    now, end, replayed = 0.0, 0, 0
    written = [(0.0, 0)]  # the moment of each position, in order
    for seconds, grown, more, is_seen in steps:
        progress.note(now, end)
        now += seconds
        end += grown
        written.append((now, end))
        replayed = min(end, replayed + more)
        if is_seen:
            progress.replayed(replayed)
        age = progress.age(now)
        if age is None:
            continue
        missing = [at for at, position in written if position > replayed]
        truth = now - min(missing) if missing else 0.0
        assert truth <= age + 1e-9
        assert age <= MOST
