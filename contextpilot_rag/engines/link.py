"""Link: the connections to one rank of an engine. All of it happens in the listener's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from ..errors import EventError
from ..types import short
from .decoding import decode
from .engine import Engine
from .feed import Feed
from .kv import Batch
from .names import Names
from .sink import EventCounts, Sink
from .sockets import (
    END,
    address_of,
    closed,
    connections,
    listener,
    live_parts,
    received,
    replay_parts,
    replayer,
)
from .steps import Action, Ask, Lost, Pass, Unanswered

if TYPE_CHECKING:
    import zmq

logger = logging.getLogger("contextpilot_rag")

BURST = 256
_AGAIN = 1.0  # seconds, after something failed that should not
_SELDOM = 60.0  # and at most, if it goes on failing
_FORMAT = 3_600.0  # at most, without a message that is not understood, until all is well again

Trouble = Literal["connection", "topic", "format", "replay", "address"]


class Link:
    """See above. Not thread-safe, but for `counts` and `removed`.

    Args:
        engine: whose.
        rank: which.
        sink: is told.
        context: ZeroMQ's.
        poller: to register sockets with.
        names: looks up hosts.
        patience: seconds to wait for a connection, and for replays.
        again: it was listened to before, so that the sink has to drop what it was told.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        sink: Sink,
        context: zmq.Context[zmq.Socket[bytes]],
        poller: zmq.Poller,
        names: Names,
        patience: float,
        again: bool = False,
    ) -> None:
        self.engine, self.rank = engine, rank
        self.removed = False
        self._sink, self._context, self._poller, self._patience = sink, context, poller, patience
        self._names = names
        self._numeric = ""  # the address that is connected to
        self._now = 0.0
        self._address = address_of(engine.events, rank)
        self._replay_address = address_of(engine.replay, rank) if engine.replay else ""
        self.feed = Feed(replay=bool(engine.replay), patience=patience)
        self._events = self._unknown = self._undecodable = self._other_topics = 0
        self._live: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._replay: zmq.Socket[bytes] | None = None
        self._replay_number = 0
        self._peers = 0  # publishers that are connected
        self._refused = False  # one that is no publisher is about to be disconnected
        self._found = False  # something listens at the address
        self._since: float | None = None  # no publisher since then
        self._retry = 0.0  # when to open the sockets, where that failed
        self._pause = _AGAIN
        self._failed = False  # in a way that nobody thought of, since it was in step
        self._topic = self._own_topic()
        self._ours = False  # there was a message with it
        self._others_since: float | None = None  # messages with other topics, and none with it
        self._not_understood = 0.0  # when, the last time
        self._quiet = patience  # seconds without one after which all is well again
        self._troubles: set[Trouble] = set()
        self._flowing = False
        self._sink_failed = False
        self._again = again
        self.quiet = True  # nothing arrived in the last round

    @property
    def connected(self) -> bool:
        """There is a publisher."""
        return self._peers > 0

    def counts(self) -> EventCounts:
        """See there; of this rank."""
        feed = self.feed
        return EventCounts(
            batches=feed.counts.passed,
            events=self._events,
            unknown=self._unknown,
            gaps=feed.counts.gaps,
            replays=feed.counts.replays,
            lost=feed.counts.lost,
            restarts=feed.counts.restarts,
            duplicates=feed.counts.duplicates,
            undecodable=self._undecodable,
            other_topics=self._other_topics,
            connected=self.connected,
            in_step=feed.in_step,
            complete=feed.complete,
            last_seq=(feed.last,),
        )

    def work(self, ready: dict[Any, int], now: float) -> None:
        """Read what has arrived, and do what time demands.

        Args:
            ready: of the poller's sockets.
            now: seconds of the listener's clock.
        """
        self._now = now
        try:
            if self._live is None and now >= self._retry:
                self._open(now)
            # Messages first, as they are of a connection of which the monitor may tell the end by now. But what the
            # monitor tells is taken in first, so that no message of a new connection passes for one of the old.
            messages = received(self._live, BURST) if self._live is not None and self._live in ready else []
            self.quiet = not messages
            if self._monitor is not None:
                self._connections(now)
            if self._live is not None and not self._peers:
                self._follow_name(now)
            for frames in messages:
                self._message(frames, now)
            replay = self._replay
            if replay is not None and replay in ready:
                for frames in received(replay, BURST):
                    if replay is self._replay:  # until it is at its end, or another one was asked for
                        self._replayed(frames, now)
            self._tick(now)
        except Exception:
            # Nothing that a peer sends gets here, as far as we know. If something does, the others go on.
            if not self._failed:
                self._failed = True
                logger.exception("the events of %s, rank %d: beginning anew", self.engine.name, self.rank)
            self._anew(now, "something that was not expected", self._later())

    def check(self, now: float) -> None:
        """Ask the engine whether there is more."""
        self._act(self.feed.check(now))

    def close(self) -> None:
        """Close the sockets."""
        self._close_replay()
        for socket in (self._live, self._monitor):
            if socket is not None:
                self._poller.unregister(socket)
        if self._live is not None:
            closed(self._live, self._monitor)
        self._live = self._monitor = None

    def _open(self, now: float) -> None:
        import zmq

        if self._again:
            self._again = False
            self._act([Lost("listening begins anew")])
        self._since = now if self._since is None else self._since
        address = self._address if self.engine.listen else self._names.numeric(self._address, now)
        replay = self._names.numeric(self._replay_address, now) if self._replay_address else ""
        if address is None or (replay is None and not self._names.why(self._replay_address)):
            return  # its name is looked up; the next round asks again
        try:
            live, watch = listener(self._context, address, listen=self.engine.listen)
        except zmq.ZMQError as error:
            self._retry = now + self._later()
            if now > self._since:  # whoever listened there before may need a moment to be gone
                doing = "listen at" if self.engine.listen else "connect to"
                self._trouble("address", f"cannot {doing} {self._address}: {error}")
            return
        self._over("address")
        self._since, self._pause = now, _AGAIN
        self._live, self._monitor, self._numeric = live, watch, address
        for socket in (live, watch):
            self._poller.register(socket, zmq.POLLIN)

    def _anew(self, now: float, why: str, pause: float) -> None:
        self.close()
        self.feed = Feed(replay=bool(self.engine.replay), patience=self._patience)
        self._peers, self._since, self._retry = 0, now, now + pause
        self._found = False
        self._act([Lost(why)])

    def _later(self) -> float:
        pause, self._pause = self._pause, min(_SELDOM, 2 * self._pause)
        return pause

    def _follow_name(self, now: float) -> None:
        """Nobody is there: perhaps the host is another one by now."""
        address = self._numeric if self.engine.listen else self._names.numeric(self._address, now)
        if address not in {None, self._numeric}:
            self.close()
            self._found = False
            self._open(now)

    def _connections(self, now: float) -> None:
        assert self._monitor is not None  # noqa: S101  asked before
        for happened in connections(self._monitor):
            if happened == "on":
                if self._peers:  # the one before may be dead without our knowing
                    self._act(self.feed.disconnected(now))
                self._peers += 1
                self._since = None
                self._over("connection")
                self._act(self.feed.connected(now))
            elif happened == "found":
                self._found = True
            elif happened == "no":
                self._refused = True
            elif self._refused:
                self._refused = False
            elif self._peers:
                self._peers -= 1
                self._act(self.feed.disconnected(now))
                if self._peers:
                    self._act(self.feed.connected(now))
                else:
                    self._since, self._found, self._flowing = now, False, False
                    self._topic, self._ours, self._others_since = self._own_topic(), False, None
                    self._over("topic")

    def _message(self, frames: list[bytes], now: float) -> None:
        try:
            topic, number, payload = live_parts(frames)
        except EventError as error:
            self._not_events(f"{self._address} sends no KV-cache events: {error}", now)
            return
        if not self._is_ours(topic, self._address, now):
            return
        self._act(self.feed.live(now, number, self._batch(payload, self._address, now)))

    def _replayed(self, frames: list[bytes], now: float) -> None:
        try:
            topic, number, payload = replay_parts(frames)
        except EventError as error:
            self._not_events(f"{self._replay_address} sends no KV-cache events: {error}", now)
            return
        if number == END:
            self._over("replay")
            self._act(self.feed.replay_over(now, self._replay_number))
        elif topic is None or self._is_ours(topic, self._replay_address, now):
            batch = self._batch(payload, self._replay_address, now)
            self._act(self.feed.replayed(now, self._replay_number, number, batch))

    def _is_ours(self, topic: bytes, address: str, now: float) -> bool:
        if self._topic is None:
            self._topic = topic  # all have the same: there is one engine at an address
        if topic == self._topic:
            self._ours, self._others_since = True, None
            return True
        self._other_topics += 1
        self._others_since = now if self._others_since is None else self._others_since
        ours, theirs = (short(one.decode("utf-8", "replace")) for one in (self._topic, topic))
        self._trouble("topic", f"{address} has events with topic {theirs}; those of {ours} are listened to")
        return False

    def _own_topic(self) -> bytes | None:
        return self.engine.topic.encode("utf-8", "surrogatepass") or None

    def _batch(self, payload: bytes, address: str, now: float) -> Batch | None:
        try:
            batch = decode(payload)
        except EventError as error:
            self._not_events(f"{address} sends what cannot be understood: {error}", now)
            return None
        if now - self._not_understood >= self._quiet:
            self._over("format")
        return batch

    def _not_events(self, why: str, now: float) -> None:
        """What comes now and then is said ever more seldom, as it takes ever longer until all is well again."""
        self._undecodable += 1
        if "format" not in self._troubles:
            again = self._not_understood and now - self._not_understood < 10 * self._quiet
            self._quiet = min(_FORMAT, 2 * self._quiet) if again else self._patience
        self._not_understood = now
        self._trouble("format", why)

    def _tick(self, now: float) -> None:
        self._act(self.feed.tick(now))
        since = self._others_since
        if since is not None and now - since >= self._patience and not self.engine.topic:
            self._topic, self._ours, self._others_since = None, False, None
            self._over("topic")
            self._anew(now, "another topic has taken the place of the one that was listened to", 0.0)
        if self._since is not None and now - self._since >= self._patience and "address" not in self._troubles:
            hint = ""
            if self._live is None:
                why = f"the host of {self._address} is not found"
                hint = f" ({self._names.why(self._address) or 'whoever is asked for it does not answer'})"
            elif self.engine.listen:
                why = f"no engine has connected to {self._address}"
            elif self._found:
                why = f"what is at {self._address} is no ZeroMQ publisher"
            else:
                why = f"nobody publishes at {self._address}"
                if self._address.startswith("tcp:"):
                    hint = " (an engine that is given an address without * connects to it: then say listen=True)"
            self._trouble("connection", f"{why}, for {self._patience:g} s now{hint}")

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Pass):
                self._events += len(action.batch.events)
                self._unknown += action.batch.unknown
                if action.batch.events:
                    self._tell(self._sink.events, action.batch.events)
            elif isinstance(action, Lost):
                self._flowing = False
                self._ours = self._ours and "topic" not in self._troubles  # it may have been its last
                self._tell(self._sink.lost, action.why)
            elif isinstance(action, Ask):
                self._ask(action)
            elif isinstance(action, Unanswered):
                self._trouble("replay", f"{self._replay_address} does not answer when asked for a replay")
            else:
                self._flowing = False  # it is said again below
        if self._replay is not None and self.feed.asking != self._replay_number:
            self._close_replay()
        self._say_flowing()

    def _ask(self, action: Ask) -> None:
        import zmq

        self._close_replay()
        address = self._names.numeric(self._replay_address, self._now)
        with suppress(zmq.ZMQError):
            self._replay = replayer(self._context, address, action.start) if address else None
        if self._replay is None:
            return  # as one that is not answered
        self._replay_number = action.ask
        self._poller.register(self._replay, zmq.POLLIN)

    def _close_replay(self) -> None:
        if self._replay is not None:
            self._poller.unregister(self._replay)
            self._replay.close(linger=0)
            self._replay = None

    def _trouble(self, kind: Trouble, why: str) -> None:
        if kind in self._troubles:
            return
        self._troubles.add(kind)
        if kind != "replay":
            self._flowing = False
        self._tell(self._sink.broken, why)

    def _over(self, kind: Trouble) -> None:
        self._troubles.discard(kind)

    def _say_flowing(self) -> None:
        harmless: set[Trouble] = {"replay", "topic"} if self._ours else {"replay"}
        if self.feed.in_step and not self._flowing and self._troubles <= harmless:
            self._flowing, self._failed, self._pause = True, False, _AGAIN
            self._tell(self._sink.flowing)

    def _tell(self, tell: Callable[..., None], *what: object) -> None:
        if self.removed:
            return
        try:
            tell(self.engine.name, self.rank, *what)
        except Exception:
            if not self._sink_failed:
                self._sink_failed = True
                logger.exception("whoever is told of the events of %s failed; said once", self.engine.name)
