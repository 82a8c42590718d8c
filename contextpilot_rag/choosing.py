"""Choosing: which index a pilot's user means."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .engines.engine import Engine, EngineLike, engines_of, quiet
from .errors import SettingsError
from .failing import Failures
from .index.local import ContextIndex, LocalIndex
from .remote.index import RemoteIndex
from .replicas.address import SCHEMES, parse_address
from .settings import Settings, name_of, of_environment
from .types import short

if TYPE_CHECKING:
    from .engines.pool import EnginePool
    from .replicas.process import ProcessReplica

    Made = RemoteIndex | ProcessReplica | None

logger = logging.getLogger("contextpilot_rag")

_OF_INDEX = (
    "capacity_tokens",
    "kv_block_tokens",
    "cache_seconds",
    "max_blocks",
    "max_namespaces",
    "history_requests",
)
_OF_CONNECTION = ("api_key", "index_timeout")
_POOL = "pilot"  # what replicas call the index of whoever knows no engines, or does not choose among them
_unprotected = threading.Event()  # it was said that entries are not


def chosen_settings(settings: Settings | None, index: str | ContextIndex | None, given: Mapping[str, Any]) -> Settings:
    """The settings of a pilot, from an object or the environment, with those that were given one by one.

    Where the environment says that reordering is off, nothing overrules it: it is the switch for incidents.

    Raises:
        SettingsError: an unknown setting, or a value that it cannot have.
    """
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError(f"settings must be a Settings object, not {type(settings).__name__}")
    if isinstance(index, str):
        given = {**given, "index": index}
    chosen = Settings.from_env(**given) if settings is None else settings.with_(**given)
    return chosen if of_environment("enabled", otherwise=True) else chosen.with_(enabled=False)


def chosen_parts(
    index: str | ContextIndex | None,
    engines: Iterable[EngineLike] | EngineLike | None,
    settings: Settings,
    given: Mapping[str, object],
    tokenizer: object,
    failures: Failures,
) -> tuple[Made, EnginePool | None, ContextIndex]:
    """What a pilot is made of: what of its index is to be closed, the engines that are followed, and the index.

    A replica, and the following of engines, begin.

    Args:
        index: as the pilot was given it; None: as its settings say.
        engines: the same.
        settings: the pilot's.
        given: those that were named one by one, so that somebody counts on them.
        tokenizer: the pilot's.
        failures: counts what goes wrong where the index is elsewhere.

    Raises:
        SettingsError: one cannot be used, or they do not go together.
    """
    made, chosen = chosen_index(index, settings, given)
    pool, chosen = chosen_engines(engines, index, made, chosen, settings, tokenizer, failures)
    if made is not None and not isinstance(made, RemoteIndex):
        made.start()  # now that it has all indexes that it feeds
    return made, pool, chosen


def chosen_index(
    index: str | ContextIndex | None, settings: Settings, given: Mapping[str, object]
) -> tuple[Made, ContextIndex]:
    """The index that is meant, and if it was made here and has connections, what is to be closed.

    Args:
        index: as the pilot was given it; None: as its settings say.
        settings: the pilot's.
        given: those that were named one by one, so that somebody counts on them.

    Raises:
        SettingsError: it is none, or no address, or an object that some of the settings given do not reach.
    """
    if index is None:
        try:
            return _by_name(settings.index, settings, given)
        except SettingsError as error:
            raise SettingsError(f"{name_of('index')}, or the setting index: {error}") from None
    if isinstance(index, str):
        return _by_name(index, settings, given)
    if not callable(getattr(index, "align", None)):
        raise _unknown(index)
    missed = [name for name in _OF_CONNECTION if name in given]
    if missed:
        raise SettingsError(
            f"{' and '.join(missed)}: an index that is given as an object has its own, so this would mean nothing; "
            "give it to the index: RemoteIndex(ADDRESS, api_key=..., timeout=...)"
        )
    _mean_nothing(
        [name for name in _OF_INDEX if name in given]
        + [name for name in _OF_CONNECTION if _of_nobody(name, settings) and isinstance(index, RemoteIndex)],
        "the index was given as an object, and has its own; here it means nothing",
    )
    return None, index


def chosen_engines(
    engines: Iterable[EngineLike] | EngineLike | None,
    index: object,
    made: Made,
    chosen: ContextIndex,
    settings: Settings,
    tokenizer: object,
    failures: Failures,
) -> tuple[EnginePool | None, ContextIndex]:
    """The engines that are meant, followed from now on, and the index that goes with them; None: there are none.

    Args:
        engines: as the pilot was given them; None: as its settings say.
        index: as the pilot was given it.
        made: with it, if it was made for the pilot.
        chosen: the same as an object.
        settings: the pilot's.
        tokenizer: the pilot's.
        failures: counts what goes wrong where the index is elsewhere.

    Raises:
        SettingsError: one is none, or the index is not one that can follow them.
    """
    try:
        found = engines_of(settings.engines if engines is None else engines)
    except SettingsError as error:
        raise error if engines is not None else SettingsError(f"{name_of('engines')}: {error}") from None
    if not found and engines is None:
        return None, chosen
    whole = tokenizer if callable(getattr(tokenizer, "apply_chat_template", None)) else None
    from .engines.pool import EnginePool  # most pilots know no engines

    replica = replica_of(made)
    if replica is not None or (settings.index if index is None else index) == "embedded":
        from .engines.fleet import Fleet

        def make(engine: Engine | None) -> LocalIndex:
            own = None if engine is None else engine.capacity_tokens
            capacity = own or settings.capacity_tokens
            # Of several that somebody else chooses from, one report says little of the others.
            single = False if engine is None and len(found) > 1 else None
            block_size = None if engine is None else engine.block_size
            pool = _POOL if engine is None else f"engine:{engine.name}"
            return _embedded(settings, replica, pool, capacity, block_size, single)

        fleet = Fleet(found, make, routing=settings.routing)
        return EnginePool(found, fleet, whole), fleet
    if not isinstance(chosen, RemoteIndex):
        raise SettingsError(
            "engines are followed by the embedded index, by a replica's, or by a service; one that is yours is not told"
        )
    from .engines.coverer import Coverer

    here = [quiet(engine) for engine in found]
    coverer = Coverer(here, chosen, partial(failures.note, part="cover"), partial(failures.answered, "cover"))
    return EnginePool(here, coverer, whole, elsewhere=True), chosen


def replica_of(made: Made) -> ProcessReplica | None:
    """What was made for a pilot's index, if that is a replica."""
    return None if isinstance(made, RemoteIndex) else made


def _embedded(
    settings: Settings,
    replica: ProcessReplica | None,
    pool: str,
    capacity: int | None,
    kv_block_tokens: int | None = None,
    single: bool | None = None,
) -> LocalIndex:
    """An index in this process's memory, fed by a log if there is a replica."""
    make: Callable[..., LocalIndex] = LocalIndex
    if replica is not None:
        from .replicas.replicated import ReplicatedIndex

        make = partial(ReplicatedIndex, replica, pool)
    return make(
        capacity,
        settings.max_blocks,
        settings.max_namespaces,
        history=settings.history_requests,
        kv_block_tokens=kv_block_tokens or settings.kv_block_tokens,
        cache_seconds=settings.cache_seconds,
        clock=time.monotonic,
        single=single,
    )


def _by_name(index: str, settings: Settings, given: Mapping[str, object]) -> tuple[Made, ContextIndex]:
    replica = _replica(index, settings)
    if replica is not None or index == "embedded":
        _mean_nothing(
            [name for name in _OF_CONNECTION if name in given],
            "for an index that is a service; this one is in the process",
        )
        return replica, _embedded(settings, replica, _POOL, settings.capacity_tokens)
    if "://" not in index:
        raise _unknown(index)
    made = RemoteIndex(index, api_key=settings.api_key, timeout=settings.index_timeout)
    usual = Settings()
    _mean_nothing(
        [name for name in _OF_INDEX if name in given or getattr(settings, name) != getattr(usual, name)],
        "set where the index is, in its service; here it means nothing",
    )
    return made, made


def _replica(index: str, settings: Settings) -> ProcessReplica | None:
    """This process's replica, if the address is that of a log."""
    scheme, found, _ = index.partition("://")
    if not found or scheme.lower() not in SCHEMES:
        return None
    from .replicas.process import ProcessReplica
    from .replicas.redis_log import open_log
    from .replicas.space import Names

    address = parse_address(index)
    made = ProcessReplica(partial(open_log, address), Names(settings.salt_secret, address.prefix))
    if not settings.salt_secret and not _unprotected.is_set():
        _unprotected.set()
        logger.warning(
            "replicas without salt_secret (%s): whoever can write to the log's server can feed them what he likes "
            "(said once); give all of them the same secret",
            name_of("salt_secret"),
        )
    return made


def _of_nobody(name: str, settings: Settings) -> bool:
    """Whether a setting comes from a settings object, and not from the environment, where an index finds it, too."""
    usual = getattr(Settings(), name)
    return getattr(settings, name) not in {usual, of_environment(name, usual)}


def _mean_nothing(names: list[str], why: str) -> None:
    if names:
        logger.warning("%s: %s", ", ".join(names), why)


def _unknown(index: object) -> SettingsError:
    shown = "of this text" if isinstance(index, str) and "@" in index else short(index)  # it may hold a password
    return SettingsError(
        f"unknown index {shown}: give 'embedded', a service's address (http://HOST:PORT), that of a log for replicas "
        "(redis://HOST:PORT), or an object that is a ContextIndex"
    )
