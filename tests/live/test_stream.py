"""What an engine tells of its cache. The FakeEngine is held to what vLLM does."""

from __future__ import annotations

from contextpilot_rag.engines.chain import ROOT, chain, extended
from contextpilot_rag.engines.kv import salt_extra

from .stream import Stream, hashes, kinds, replayed, resident, stored
from .test_cache import of_length, text
from .under_test import BLOCK, CAPACITY


def test_what_is_stored_is_told_with_the_prompts_own_token_ids(engine):
    prompt = of_length(engine, 5)
    ids = engine.tokens(prompt)
    full = len(ids) // BLOCK
    with Stream(engine) as stream:
        engine.chat(prompt)
        events = stream.until(stored(full))
        assert [event["type"] for event in events] == ["BlockStored"]
        (event,) = events
        assert event["token_ids"] == ids[: full * BLOCK]
        assert len(set(event["block_hashes"])) == full
        assert event.get("parent_block_hash") is None
        assert event["block_size"] == BLOCK
        assert event["medium"] == "GPU"
        assert all(type(one) is int and 0 <= one < 1 << 64 for one in event["block_hashes"])
        assert all(message.topic == engine.topic.encode() for message in stream.seen)


def test_only_what_is_new_is_told_and_by_its_parent(engine):
    shared = text(150)
    one, other = f"{shared} What is first?", f"{shared} And what then, {text(60)}?"
    with Stream(engine) as stream:
        engine.chat(one)
        stream.until(stored(len(engine.tokens(one)) // BLOCK))
        engine.chat(one)
        assert stream.silent()
        _, cached = engine.chat(other)
        new = len(engine.tokens(other)) // BLOCK - cached // BLOCK
        first, second = stream.until(stored(len(engine.tokens(one)) // BLOCK + new))
        assert second["parent_block_hash"] == first["block_hashes"][cached // BLOCK - 1]
        assert second["token_ids"] == engine.tokens(other)[cached : cached + new * BLOCK]


def test_our_names_of_what_is_told_are_our_names_of_the_prompts(engine):
    """Two prompts, a salted one, a shared prefix: the chain from events is the chain from token ids."""
    shared = text(150)
    asked = [(f"{shared} One?", None), (f"{shared} Two? {text(90)}", None), (f"{shared} One?", "tenant-a")]
    with Stream(engine) as stream:
        for prompt, salt in asked:
            engine.chat(prompt, salt=salt)
        wanted = [chain(engine.tokens(prompt), BLOCK, salt) for prompt, salt in asked]
        count = len({name for names in wanted for name in names})
        events = stream.until(stored(count))
    told: dict[int, bytes] = {}
    for event in kinds(events, "BlockStored"):
        parent = told[event["parent_block_hash"]] if event.get("parent_block_hash") is not None else ROOT
        extras = event.get("extra_keys") or [None] * len(event["block_hashes"])
        for place, (one, extra) in enumerate(zip(event["block_hashes"], extras, strict=True)):
            part = event["token_ids"][place * BLOCK : (place + 1) * BLOCK]
            parent = told[one] = extended(parent, part, "" if extra is None else salt_extra(*extra))
    assert set(told.values()) == {name for names in wanted for name in names}


def test_what_an_answer_fills_is_told_too(engine):
    prompt = of_length(engine, BLOCK - 2)
    full = len(engine.tokens(prompt)) // BLOCK
    with Stream(engine) as stream:
        engine.chat(prompt, max_tokens=8, min_tokens=8, ignore_eos=True)
        first, second = stream.until(stored(full + 1))
        assert second["parent_block_hash"] == first["block_hashes"][-1]
        assert second["token_ids"][: BLOCK - 2] == engine.tokens(prompt)[full * BLOCK :]


def of_full(engine, full: int) -> str:
    """A text whose prompt fills so many KV blocks, and not quite half of the next one."""
    one = text(1)
    for _ in range(50):
        missing = full * BLOCK + BLOCK // 4 - len(engine.tokens(one))
        if abs(missing) <= BLOCK // 8:
            return one
        one += " yes, no;" * max(1, missing // 8) if missing > 0 else ""
        one = one[:missing] if missing < 0 else one
    raise AssertionError("no such length")


def test_the_tail_goes_first_and_what_was_used_last_stays(engine):
    """A cache of four prompts: the fifth takes the first one's end, and leaves its beginning."""
    full = CAPACITY // 4 - 2
    prompts = [of_full(engine, full) for _ in range(5)]
    with Stream(engine) as stream:
        engine.reset()
        chains = []
        for prompt in prompts:
            before = len(hashes(stream.events, "BlockStored"))
            engine.chat(prompt)
            events = stream.until(stored(before + full))
            chains.append(hashes(events, "BlockStored")[-full:])
        removed = hashes(events, "BlockRemoved")
        # The one KV block that each fills in part is of use to nobody afterwards, and the next prompt takes it first.
        room = CAPACITY - 4 * full - 1
        assert len(removed) == full - room
        assert removed == chains[0][: -len(removed) - 1 : -1]
        left = len(chains[0]) - len(removed)
        assert engine.chat(prompts[4])[1] == len(chains[4]) * BLOCK
        assert engine.chat(prompts[0])[1] == left * BLOCK


def test_within_a_step_removals_come_before_what_is_stored(engine):
    with Stream(engine) as stream:
        for _ in range(12):
            engine.chat(text(700))
        stream.until(lambda events: len(hashes(events, "BlockRemoved")) > 50)
        both = [message.events for message in stream.seen if len({event["type"] for event in message.events}) > 1]
    assert both
    for events in both:
        types = [event["type"] for event in events if event["type"] != "AllBlocksCleared"]
        assert types == sorted(types, key=["BlockRemoved", "BlockStored"].index)
    assert all(len(one["block_hashes"]) == 1 for events in both for one in kinds(events, "BlockRemoved"))


def test_what_was_told_is_what_a_probe_finds(engine):
    """Random prompts with shared beginnings, many times the cache: of each, what the events leave is what is found."""
    begun = [text(300) for _ in range(4)]
    prompts = [f"{begun[number % 4]} {text(200)}" for number in range(20)]
    with Stream(engine) as stream:
        names = {}
        for prompt in prompts:
            engine.chat(prompt)
        marker = text(100)
        ids = engine.tokens(marker)
        engine.chat(marker)
        told = stream.until(lambda events: any(event.get("token_ids", [])[:BLOCK] == ids[:BLOCK] for event in events))
        there = resident(told)
        for event in kinds(told, "BlockStored"):
            parent = names.get(event.get("parent_block_hash"), ROOT)
            for place, one in enumerate(event["block_hashes"]):
                parent = names[one] = extended(parent, event["token_ids"][place * BLOCK : (place + 1) * BLOCK])
        held = {names[one] for one in there if one in names}
    # The first probe changes what is there for the next one; the newest prompts are all there, so these are hits.
    prompt = prompts[-1]
    keys = chain(engine.tokens(prompt), BLOCK)
    leading = next((place for place, key in enumerate(keys) if key not in held), len(keys))
    assert engine.chat(prompt)[1] == min(leading, (len(engine.tokens(prompt)) - 1) // BLOCK) * BLOCK
    oldest = prompts[0]
    keys = chain(engine.tokens(oldest), BLOCK)
    leading = next((place for place, key in enumerate(keys) if key not in held), len(keys))
    assert leading < len(keys)
    assert engine.chat(oldest)[1] == leading * BLOCK


def test_a_last_kv_block_that_is_computed_again_is_still_there_once(engine):
    """Its last token is needed, so it is computed though it is cached; vLLM keeps both copies, and tells of both."""
    prompt = of_length(engine, 0)
    full = len(engine.tokens(prompt)) // BLOCK
    with Stream(engine) as stream:
        engine.reset()
        for _ in range(3):
            engine.chat(prompt)
        events = stream.until(stored(full + 2))
        assert len(resident(events)) == full
        for _ in range(9):
            engine.chat(text(700))
        stream.until(lambda events: len(hashes(events, "BlockRemoved")) > 2 * full)
        assert not resident(stream.events) & set(hashes(events[:2], "BlockStored"))
        assert engine.chat(prompt)[1] == 0


def test_all_is_replayed_from_any_number_on(engine):
    with Stream(engine) as stream:
        for _ in range(3):
            engine.chat(text(150))
        stream.until(lambda events: len(kinds(events, "BlockStored")) >= 3)
        live = list(stream.seen)
        everything = replayed(engine)
        assert [message.seq for message in everything] == list(range(len(everything)))
        assert everything[-len(live) :] == live
        assert replayed(engine, live[-1].seq) == live[-1:]
        assert replayed(engine, live[-1].seq + 1) == []


def test_clearing_is_told_with_the_next_thing_that_happens(engine):
    prompt = text(150)
    with Stream(engine) as stream:
        engine.chat(prompt)
        engine.reset()
        engine.chat(prompt)
        full = len(engine.tokens(prompt)) // BLOCK
        events = stream.until(stored(2 * full))
        assert [event["type"] for event in events] == ["BlockStored", "AllBlocksCleared", "BlockStored"]
        assert len(resident(events)) == full


def test_one_that_restarts_counts_from_zero_and_knows_nothing(engine):
    prompt = text(150)
    engine.chat(prompt)
    assert replayed(engine)
    engine.restart()
    assert replayed(engine) == []
    length, cached = engine.chat(prompt)
    assert cached == 0
    with Stream(engine) as stream:
        assert engine.chat(prompt)[1] > 0
        assert stream.silent()
    first = replayed(engine)[0]
    assert first.seq == 0
    assert first.events[0]["token_ids"] == engine.tokens(prompt)[: length // BLOCK * BLOCK]
