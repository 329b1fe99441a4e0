"""The `ltzd` command, which is also `python -m ltzd`."""

import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C ends the process silently while Python imports the program."""
    if sys.argv[1:2] == ["run"]:
        # A reload of certificates waits for the end of the start (`daemon/stop_signals.py`).
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ltzd.cli.main import app  # noqa: PLC0415 - after the line above

    signal.signal(signal.SIGINT, interrupt)
    app(prog_name="ltzd")


if __name__ == "__main__":
    main()
