"""Closes a listening socket without resetting the connections in its accept backlog.

When a listening socket closes, the kernel resets every connection that the program has not accepted
yet, even if its client has sent a request. Therefore the socket first ignores new handshakes, then
the program accepts the waiting connections, then the socket closes. The client of an ignored
handshake has sent nothing; it tries again after a second, and is refused or reaches another
process.
"""

import ctypes
import socket

_SO_ATTACH_FILTER = 26
_FLAGS_OFFSET, _SYN, _SYN_OR_ACK = 13, 0x02, 0x12
_DROP, _WHOLE_PACKET = 0, 0xFFFF_FFFF


class _Instruction(ctypes.Structure):
    """struct sock_filter of linux/filter.h."""

    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("operand", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


_IGNORE_HANDSHAKES = (
    (0x30, 0, 0, _FLAGS_OFFSET),  # the flags of the TCP header
    (0x54, 0, 0, _SYN_OR_ACK),
    (0x15, 0, 1, _SYN),  # the first packet of a handshake: the next line, else the one after it
    (0x06, 0, 0, _DROP),
    (0x06, 0, 0, _WHOLE_PACKET),
)


def ignore_new_connections(listener: socket.socket) -> None:
    """Packets of connections that exist, and the ends of begun handshakes, still pass.

    Raises OSError where the system has no such filter (it is Linux's).
    """
    lines = [_Instruction(*fields) for fields in _IGNORE_HANDSHAKES]
    program = _Program(len(lines), (_Instruction * len(lines))(*lines))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
