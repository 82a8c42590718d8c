"""ZeroMQ sockets as vLLM's and SGLang's publishers expect them, and their frames."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from ..errors import EventError, MissingPackage
from .decoding import MAX_PAYLOAD

if TYPE_CHECKING:
    import zmq

WAITING = 256
"""Messages that may wait here to be read; of more, publishers let as many wait to be sent as they like to."""
REPLAYED = 20_000
"""The same of replays: engines drop what they cannot send at once."""
AT_ONCE = 8 * 1024 * 1024
"""Bytes after which others have their turn."""
END = (1 << 64) - 1
"""The number that stands at the end of a replay: -1."""
_NUMBER = 8  # bytes

Connection = Literal["on", "off", "found", "no"]
"""A publisher is there; it went; something answers, of which is not known yet what it is; and it is no publisher."""


def check_zmq() -> None:
    """That pyzmq is installed.

    Raises:
        MissingPackage: it is not.
    """
    try:
        import zmq  # noqa: F401
    except ImportError as error:
        raise MissingPackage.of(error, "KV-cache events need", "contextpilot-rag[events]") from error


def new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context for many engines: by default, one has no more than 1023 sockets, and a rank takes four or five."""
    import zmq

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
    return context


def address_of(address: str, rank: int) -> str:
    """Where a data-parallel rank is.

    >>> address_of("tcp://127.0.0.1:5557", 2), address_of("ipc:///tmp/events", 0)
    ('tcp://127.0.0.1:5559', 'ipc:///tmp/events')
    """
    if not rank:
        return address
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + rank}"


def somebody_at(address: str) -> bool:
    """Whether somebody listens at an ipc address: binding it would take the file from under them.

    >>> somebody_at("ipc:///nowhere"), somebody_at("tcp://127.0.0.1:5557")
    (False, False)
    """
    import socket

    transport, _, path = address.partition("://")
    if transport != "ipc" or path.startswith("@") or not hasattr(socket, "AF_UNIX"):
        return False  # others refuse by themselves to be bound twice
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(1.0)
        try:
            asked.connect(path)
        except BlockingIOError:
            return True  # too many wait there already
        except OSError:
            return False
    return True


def bound(socket: zmq.Socket[bytes], address: str) -> None:
    """Bind a socket, but never to what somebody else listens at.

    Raises:
        zmq.ZMQError: it cannot be.
    """
    import zmq

    if somebody_at(address):
        raise zmq.ZMQError(zmq.EADDRINUSE, "somebody listens there; is it the engine? then leave listen=True out")
    socket.bind(address)


def subscriber(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    """A socket that gets all that is published. It has to be connected or bound still."""
    import zmq

    socket = _socket(context, zmq.SUB, address)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    # A machine that goes without a word is noticed.
    socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
    return socket


def listener(
    context: zmq.Context[zmq.Socket[bytes]], address: str, *, listen: bool
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """A `subscriber` that is connected, or bound, and its `monitor`.

    Raises:
        zmq.ZMQError: it cannot be; also if there are too many sockets. Nothing is left open.
    """
    import zmq

    live = subscriber(context, address)
    watch: zmq.Socket[bytes] | None = None
    try:
        watch = monitor(live)
        if listen:
            bound(live, address)
        else:
            live.connect(address)
    except zmq.ZMQError:
        closed(live, watch)
        raise
    return live, watch


def closed(live: zmq.Socket[bytes], watch: zmq.Socket[bytes] | None) -> None:
    """Close a subscriber and its monitor."""
    import zmq

    with suppress(zmq.ZMQError):
        live.disable_monitor()
    for socket in (live, watch):
        if socket is not None:
            socket.close(linger=0)


def monitor(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """What happens to a socket's connections, for `connections`."""
    import zmq

    return socket.get_monitor_socket(
        zmq.EVENT_CONNECTED
        | zmq.EVENT_ACCEPTED
        | zmq.EVENT_HANDSHAKE_SUCCEEDED
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        | zmq.EVENT_DISCONNECTED
    )


def connections(monitor: zmq.Socket[bytes]) -> list[Connection]:
    """What happened since it was asked last."""
    import zmq
    from zmq.utils.monitor import parse_monitor_message

    happened: list[Connection] = []
    while True:
        try:
            event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
        except zmq.Again:
            return happened
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            happened.append("on")
        elif event == zmq.EVENT_DISCONNECTED:
            happened.append("off")
        elif event in (zmq.EVENT_CONNECTED, zmq.EVENT_ACCEPTED):
            happened.append("found")
        else:
            happened.append("no")


def replayer(context: zmq.Context[zmq.Socket[bytes]], address: str, start: int) -> zmq.Socket[bytes]:
    """A socket on which the answer to a request for a replay arrives. A REQ socket would get its first part only.

    Args:
        context: to make it in.
        address: of the engine's replays.
        start: the first message to ask for.

    Raises:
        zmq.ZMQError: it cannot be.
    """
    import zmq

    socket = _socket(context, zmq.DEALER, address)
    socket.setsockopt(zmq.RCVHWM, REPLAYED)
    try:
        socket.connect(address)
        socket.send_multipart([b"", start.to_bytes(_NUMBER, "big")], zmq.NOBLOCK)
    except zmq.ZMQError:
        socket.close(linger=0)
        raise
    return socket


def received(socket: zmq.Socket[bytes], most: int) -> list[list[bytes]]:
    """The messages that have arrived, the first so many of them, or the first few of large ones."""
    import zmq

    messages: list[list[bytes]] = []
    size = 0
    while len(messages) < most and size < AT_ONCE:
        try:
            messages.append(socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            break
        size += sum(map(len, messages[-1]))
    return messages


def live_parts(frames: list[bytes]) -> tuple[bytes, int, bytes]:
    """Topic, number and payload of a published message.

    Raises:
        EventError: it is none.
    """
    if len(frames) < 3:
        raise EventError(f"a message of {len(frames)} frames; topic, number and payload were expected")
    return frames[0], _number(frames[1]), frames[2]


def replay_parts(frames: list[bytes]) -> tuple[bytes | None, int, bytes]:
    """The same of a replayed one; older engines do not send the topic. The last has the number `END`.

    Raises:
        EventError: it is none.
    """
    if len(frames) < 2:
        raise EventError(f"a replayed message of {len(frames)} frames; number and payload were expected")
    return frames[-3] if len(frames) > 3 else None, _number(frames[-2]), frames[-1]


def _number(frame: bytes) -> int:
    if len(frame) != _NUMBER:
        raise EventError(f"a number of {len(frame)} bytes; {_NUMBER} were expected")
    return int.from_bytes(frame, "big")


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str) -> zmq.Socket[bytes]:
    import zmq

    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, WAITING)
    socket.setsockopt(zmq.MAXMSGSIZE, 2 * MAX_PAYLOAD)  # what is longer still is cut off before it is in memory
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 10_000)
    if "[" in address:
        socket.setsockopt(zmq.IPV6, 1)
    return socket
