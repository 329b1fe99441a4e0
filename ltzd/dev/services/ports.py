"""Loopback ports: finding free ones, and refusing taken ones with a sentence for the user."""

import errno
import socket

from ltzd.errors import Misconfigured

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    return _bind_error(port) is None


def free_port() -> int:
    """A port that is free now; another program may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def check_free(port: int, option_name: str) -> None:
    """Raises Misconfigured, which names the option, if a server cannot listen on `port`."""
    error_number = _bind_error(port)
    if error_number is None:
        return
    if error_number == errno.EADDRINUSE:
        raise Misconfigured(
            f"Port {port} is in use; stop the other program or choose another with {option_name}."
        )
    raise Misconfigured(f"Port {port} cannot be used here; choose another with {option_name}.")


def _bind_error(port: int) -> int | None:
    with socket.socket() as probe:
        # As servers do: a port whose old connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OverflowError:
            return errno.EINVAL
        except OSError as error:
            return error.errno
    return None
