"""The signals that end a process of ltzd, from its first moment on."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Hold SIGTERM, SIGINT and SIGHUP pending until `stop_on_signals` unblocks them.

    A signal that arrives while the event loop installs its handlers would otherwise be lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_on_signals(
    stop: asyncio.Event,
    on_hangup: Callable[[], None] | None = None,
    on_repetition: Callable[[], None] = lambda: None,
) -> None:
    """Set `stop` on SIGTERM and SIGINT; call `on_hangup` on SIGHUP.

    `on_repetition` is called on each SIGTERM or SIGINT after the first. Without `on_hangup`, SIGHUP
    (a closed terminal) sets `stop` too, unless nohup ignores it.
    """

    def on_signal() -> None:
        if stop.is_set():
            on_repetition()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if on_hangup is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, on_hangup or stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
