"""The socket on which a forking process gets its requests, and the files that it keeps open."""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any

PARENT_CHECK_MS = 2000
"""How often a waiting process checks that the calling program is alive."""


class Channel:
    """Receives and answers JSON lines, with file descriptors.

    Args:
        sock: connected to the calling program.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.parent = os.getppid()

    @classmethod
    def of_standard_input(cls) -> Channel:
        """Returns the channel on standard input, and makes the standard files the null device."""
        channel = cls(socket.socket(fileno=os.dup(0)))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.close(null)
        close_all_but(channel.socket.fileno())
        return channel

    @property
    def is_orphan(self) -> bool:
        """Whether the calling program has ended."""
        return os.getppid() != self.parent

    def send(self, message: dict[str, Any]) -> None:
        """Sends one line."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Returns the next request and its files. Ends this process if the calling program has ended."""
        waiting = select.poll()
        waiting.register(self.socket, select.POLLIN)
        while not waiting.poll(PARENT_CHECK_MS):
            if self.is_orphan:
                os._exit(0)
        begun, files, _, _ = socket.recv_fds(self.socket, 65536, 8)
        data = bytearray(begun)
        while data and not data.endswith(b"\n"):
            data += (more := self.socket.recv(65536))
            if not more:
                break
        if not data:
            os._exit(0)
        request: dict[str, Any] = json.loads(data)
        return request, files


def close_all_but(*descriptors: int) -> None:
    """Closes all file descriptors but 0, 1, 2 and these."""
    after = 3
    for descriptor in sorted({*descriptors, 65536}):
        os.closerange(after, descriptor)
        after = descriptor + 1
