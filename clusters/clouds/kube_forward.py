"""A local port that leads to a port of a pod, as ``kubectl port-forward`` does: no service is opened."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CHUNK = 65_536
Open = Callable[[], Any]  # opens one forwarding, a ``kubernetes.stream.ws_client.PortForward``


@contextmanager
def forwarded(open_: Open, port: int) -> Iterator[int]:
    """Listen on the loopback for as long as the context lasts; yields the local port.

    Args:
        open_: opens a way to the pod, one for each connection.
        port: of the pod.

    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()
        threading.Thread(target=_serve, args=(server, open_, port, stopped), daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            stopped.set()
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, open_: Open, port: int, stopped: threading.Event) -> None:
    """Take connections until told to stop."""
    while not stopped.is_set():
        try:
            near, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_join, args=(near, open_, port), daemon=True).start()


def _join(near: socket.socket, open_: Open, port: int) -> None:
    """Connect one local connection with the pod; what cannot be opened is closed, as a refused port is."""
    from clusters.faults import CloudFault

    with near:
        try:
            way = open_()
        except CloudFault:
            return
        far = way.socket(port)
        far.setblocking(True)
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join()
        way.close()
        with contextlib.suppress(OSError):
            way.websocket.shutdown()  # the library leaves it open where the pod hung up first


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one side ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
