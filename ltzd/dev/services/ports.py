"""Loopback ports: finding free ones, and refusing taken ones with a sentence for the user."""

import errno
import secrets
import socket

from ltzd.errors import Misconfigured

LOOPBACK = "127.0.0.1"

_BELOW_EPHEMERAL = range(15_000, 32_768)
"""Ports that no system gives to outgoing connections or to servers that name no port.

A server that is down for a moment finds its port free again, however many connections are made
meanwhile.
"""
_TRIES = 100


def is_free(port: int) -> bool:
    return _bind_error(port) is None


def free_port() -> int:
    """A free port that no call returns again, in any process, while this process runs.

    A server may listen on it at any time. Raises Misconfigured if none can be found.
    """
    for _ in range(_TRIES):
        port = secrets.choice(_BELOW_EPHEMERAL)
        if _reserve(port):
            return port
    raise Misconfigured(
        f"No free port was found between {_BELOW_EPHEMERAL[0]} and {_BELOW_EPHEMERAL[-1]}; "
        "stop programs that listen there."
    )


def _reserve(port: int) -> bool:
    """Return False if any socket is bound to the port.

    Linux lets a port be bound twice if both sockets have SO_REUSEADDR and neither listens. Servers
    bind with that option, this function without, so a reservation refuses other reservations alone.
    """
    reservation = socket.socket()
    try:
        reservation.bind((LOOPBACK, port))
    except OSError:
        reservation.close()
        return False
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.detach()  # stays open until this process ends
    return True


def check_free(port: int, option_name: str) -> None:
    """Check that a server can listen on `port`, which `free_port` then never returns; 0 is any.

    Raises Misconfigured, which names the option.
    """
    error_number = _bind_error(port)
    if error_number is None:
        _reserve(port)
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
