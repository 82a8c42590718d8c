from __future__ import annotations

import random
from itertools import chain, islice

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, LocalIndex, Namespace, OrderBudget, Request
from contextpilot_rag.errors import StateError
from contextpilot_rag.index import state
from contextpilot_rag.index.history import History
from contextpilot_rag.index.shadow import AdaptiveTail
from contextpilot_rag.index.state import HistoryPart, TreePart, dump_history, dump_tree, join, load_history, load_tree
from contextpilot_rag.index.tree import PrefixTree
from tests.index.invariants import check

THROUGHPUT = OrderBudget("throughput")
DECODER = msgspec.msgpack.Decoder(state.StatePart)

sequences = st.lists(st.integers(0, 7), unique=True, max_size=6)
keys = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=3), st.binary(max_size=3))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(state, "_PART", 5)


def refs(sequence, extra=0):
    return [BlockRef(key, 10 + key + extra) for key in sequence]


def over_the_wire(parts):
    return [DECODER.decode(msgspec.msgpack.encode(part)) for part in parts]


def ends(tree):
    """Every path to a node's end, in the order of use."""
    return [tree._path_to(node, len(node.blocks)) for node in tree._by_use]


@given(st.lists(st.tuples(sequences, st.booleans()), max_size=40), st.integers(0, 200))
def test_a_tree_comes_back_as_it_was(inserted, capacity):
    tree = PrefixTree(capacity or None)
    for sequence, longer in inserted:
        tree.insert(refs(sequence, longer))  # the same blocks, counted in two ways
    parts = over_the_wire(dump_tree(tree))
    for same in (load_tree(parts), load_tree([join(parts)])):
        check(same)
        assert ends(same) == ends(tree)
        assert (same.tokens, same.blocks) == (tree.tokens, tree.blocks)
        assert [node.weights for node in same._by_use] == [node.weights for node in tree._by_use]
    smaller = load_tree(parts, capacity_tokens=40, max_blocks=3)
    check(smaller)
    assert smaller.tokens <= 40
    assert smaller.blocks <= 3
    assert {tuple(path) for path in smaller.paths()} <= {tuple(end[:size]) for end in ends(tree) for size in range(9)}


@given(st.data())
def test_it_may_change_while_it_is_written(data):
    tree = PrefixTree(max_blocks=20)
    ever = set()

    def change():
        sequence = data.draw(sequences)
        (tree.insert if data.draw(st.booleans()) else tree.touch)(refs(sequence))
        ever.update(tuple(end[:size]) for end in ends(tree) for size in range(1, len(end) + 1))

    for _ in range(data.draw(st.integers(0, 15))):
        change()
    parts = []
    for part in dump_tree(tree):
        parts += over_the_wire([part])
        for _ in range(data.draw(st.integers(0, 3))):
            change()
        if data.draw(st.integers(0, 20)) == 0:
            tree.clear()
    read = load_tree(parts)
    check(read)
    assert {tuple(end) for end in ends(read)} <= ever
    check(tree)


def test_nothing_changed_meanwhile_is_lost():
    tree = PrefixTree()
    for number in range(30):
        tree.insert(refs([number, 100, 101 + number % 3]))
    steps = dump_tree(tree)
    parts = [next(steps)]
    for number in range(30):
        tree.insert(refs([number, 200]))  # splits every node that is still to be written
    read = load_tree([*parts, *steps])
    assert all(read.cached_tokens(refs([number, 100, 101 + number % 3]))[0] == 3 for number in range(30))


def test_what_was_used_last_is_written_first_and_the_first_parts_are_a_tree():
    tree = PrefixTree()
    for number in range(50):
        tree.insert(refs([number, 1_000 + number]))
    tree.touch(refs([7]))
    read = load_tree(islice((part for part in dump_tree(tree) if part.entries), 2))
    check(read)
    assert read.cached_tokens(refs([7]))[0] == 1
    assert read.cached_tokens(refs([49, 1_049]))[0] == 2
    assert 10 <= read.blocks <= 14


numbers = st.lists(st.integers(0, 6), max_size=6)


@given(st.lists(st.builds(TreePart, st.lists(keys, max_size=4), numbers, numbers, numbers, numbers), max_size=3))
def test_whatever_is_read_is_a_sound_tree_or_an_error(parts):
    try:
        read = load_tree(over_the_wire(parts))
    except (StateError, msgspec.ValidationError):
        return
    check(read)


@settings(max_examples=300)
@given(st.data())
def test_damage_gives_a_sound_tree_or_an_error(data):
    tree = PrefixTree()
    for sequence in data.draw(st.lists(sequences, min_size=1, max_size=12)):
        tree.insert(refs(sequence))
    part = join(dump_tree(tree))
    column = getattr(part, data.draw(st.sampled_from(["tokens", "parents", "lengths", "entries", "keys"])))
    if column:
        at = data.draw(st.integers(0, len(column) - 1))
        column[at : at + data.draw(st.integers(0, 1))] = data.draw(st.lists(st.integers(0, 9), max_size=1))
    try:
        read = load_tree(over_the_wire([part]))
    except (StateError, msgspec.ValidationError):
        return
    check(read)


def test_what_is_wrong_is_said():
    for part, what in (
        (TreePart([1], [1], [0], [2], [0, 0]), "a saved path holds a block twice"),
        (TreePart([1], [1], [0, 1], [1, 1], [0, 0]), "a saved path holds a block twice"),
        (TreePart([1], [1], [0, 0], [1, 1], [0, 0]), "two branches that begin alike"),
        (TreePart([1, 2], [1], [0], [1], [0]), "different lengths"),
        (TreePart([1], [1], [1], [1], [0]), "points beyond itself"),
        (TreePart([None], [1], [], [], []), "neither bytes nor str nor int"),
        (TreePart([True], [1], [], [], []), "neither bytes nor str nor int"),
    ):
        with pytest.raises(StateError, match=what):
            load_tree([part])


def test_a_long_chain_that_branches_everywhere_is_read_in_linear_time():
    size = 20_000  # a quadratic check would take minutes
    chain_of = list(range(size))
    part = TreePart([*chain_of, *range(size, 2 * size)], [1] * 2 * size, [], [], [])
    for place in chain_of:
        part.parents.extend([max(0, 2 * place - 1), max(0, 2 * place - 1)])
        part.lengths.extend([1, 1])
        part.entries.extend([place, size + place])
    assert load_tree([part]).blocks == 2 * size


@pytest.mark.parametrize("key", [("a", 1), None, 2**63, True, 1.5])
def test_a_key_that_cannot_be_written_is_an_error(key):
    index = LocalIndex()
    index.align(Request((BlockRef(key, 1),)))
    with pytest.raises(StateError, match=r"cannot be saved: it is neither bytes nor str nor a 64-bit int"):
        list(index.dump())


@given(st.lists(sequences, max_size=30), st.integers(1, 9), st.integers(1, 9))
def test_a_history_comes_back_as_its_last_requests(added, window, smaller):
    history = History(window)
    for request in added:
        history.add(request)
    same, less = History(window), History(smaller)
    parts = over_the_wire(dump_history(history))
    load_history(parts, same)
    load_history(parts, less)
    assert same.requests() == history.requests() == [tuple(request) for request in added[-window:]]
    assert less.requests() == history.requests()[-smaller:]
    assert [same.count(block) for block in range(8)] == [history.count(block) for block in range(8)]


def test_a_history_that_is_wrong_is_an_error():
    for part in (HistoryPart([1], [[0, 0]]), HistoryPart([1], [[1]]), HistoryPart([None], [])):
        with pytest.raises(StateError):
            load_history([part], History())


def topics(source):
    topic = source.randrange(8)
    blocks = [BlockRef((f"{topic}-{place}"), 100) for place in range(6)]
    blocks += [BlockRef(f"noise-{source.randrange(20_000)}", 100) for _ in range(6)]
    source.shuffle(blocks)
    return tuple(dict.fromkeys(blocks))


def test_a_tail_goes_on_from_where_it_stood():
    tail, source = AdaptiveTail(History()), random.Random(0)
    for _ in range(800):
        tail.learn(topics(source))
    assert tail.following != "retrieved"
    (standing,) = over_the_wire([tail.standing()])
    same = AdaptiveTail(History())
    same.resume(standing)
    assert same.standing() == standing
    for _ in range(600):
        same.learn(topics(source))
    assert (same.following, same.switches) == (tail.following, tail.switches)
    others = AdaptiveTail(History(), ("retrieved", "popular"))
    others.resume(standing)
    assert (others.following, others.switches) == ("retrieved", 0)


def filled(requests=400, **limits):
    index, source = LocalIndex(**limits), random.Random(1)
    for number in range(requests):
        budget = THROUGHPUT if number % 4 else OrderBudget()
        index.align(Request(topics(source), Namespace(tenant=str(number % 4), head="h" * (number % 3)), budget))
    return index


def test_an_index_comes_back_and_decides_alike():
    index = filled()
    same = LocalIndex()
    same.load(over_the_wire(index.dump()))
    assert same.namespaces() == index.namespaces()
    assert list(same._shares) == list(index._shares), "used longest ago first"
    assert same._blocks == sum(share.entries for share in same._shares.values())
    source = random.Random(2)
    for number in range(100):
        request = Request(topics(source), Namespace(tenant=str(number % 4)), OrderBudget())
        assert same.align(request) == index.align(request)
    for share in same._shares.values():
        check(share.tree)


def test_less_room_is_respected_and_what_was_used_last_stays():
    index = filled()
    parts = list(index.dump())
    few = LocalIndex(max_namespaces=2)
    few.load(parts)
    assert list(few.namespaces()) == list(islice(index.namespaces(), 2))
    small = LocalIndex(max_total_blocks=1_500)
    small.load(parts)
    assert 0 < small.stats().tree_blocks <= 1_500
    assert small._blocks <= 1_500
    tiny = LocalIndex(max_total_blocks=30, history=3)
    tiny.load(parts)
    (share,) = tiny._shares.values()
    assert share.entries <= 30
    for loaded in chain(few._shares.values(), small._shares.values(), tiny._shares.values()):
        check(loaded.tree)


def test_what_is_known_here_stays_and_errors_change_nothing():
    index = filled(40)
    parts = list(index.dump())
    with pytest.raises(StateError):
        LocalIndex().load(parts[1:])
    other = LocalIndex()
    with pytest.raises(StateError):
        other.load([*parts, TreePart([1], [1], [0], [2], [0, 0])])
    assert not other.namespaces()
    used = filled(41)
    before = used.namespaces()
    used.load(parts)
    assert used.namespaces() == before


def test_forgotten_while_it_is_written():
    index = filled()
    names = list(index.namespaces())
    parts = []
    for number, part in enumerate(index.dump()):
        parts.append(part)
        if number == 3:
            index.forget()
    read = LocalIndex()
    read.load(parts)
    assert len(read.namespaces()) < len(names)


def test_one_namespace_in_parts():
    index = filled()
    namespace = next(iter(index.namespaces()))
    assert load_tree(index.dump_tree(namespace)).blocks == index.namespaces()[namespace].blocks
    assert not list(index.dump_tree(Namespace("nobody")))
