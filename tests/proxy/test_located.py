"""splice: what is asked for changes, and nothing else does."""

from __future__ import annotations

import copy
import json
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.located import MOST_STEPS, NotLocated, splice
from contextpilot_rag.proxy.words import Edit, Removal

blanks = st.text(" \t\n\r", max_size=2)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.one_of(st.sampled_from(["a", "b", "role", "content", "é", 'q"', "\\", "a\n", ""]), texts)
numbers = st.sampled_from(["0", "-0", "1.50", "1E2", "1e+002", "123456789012345678901234567890", "-1.0e-5"])


@st.composite
def spelt(draw, text):
    """A string as JSON, in one of the many ways to write it."""
    ascii_only, longer = draw(st.booleans()), draw(st.booleans())
    letters = (json.dumps(letter, ensure_ascii=ascii_only)[1:-1] for letter in text)
    return '"' + "".join({"a": "\\u0061", "/": "\\/"}.get(one, one) if longer else one for one in letters) + '"'


@st.composite
def scalars(draw):
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return draw(spelt(draw(texts)))
    return draw(numbers if kind == 1 else st.sampled_from(["true", "false", "null"]))


class Written:
    """A value as it is written: its text, and where each path in it begins and ends; twice for keys given twice."""

    def __init__(self, text, inner=()):
        self.text = text
        self.spans = [((), (0, len(text))), *inner]


@st.composite
def written_values(draw, depth):
    kind = draw(st.integers(0, 3 if depth else 0))
    if kind == 0:
        return Written(draw(scalars()))
    return draw(written_objects(depth) if kind < 3 else written_lists(depth))


@st.composite
def written_objects(draw, depth=3):
    text = "{" + draw(blanks)
    spans = []
    for place in range(draw(st.integers(0, 4))):
        key = draw(keys)
        text += draw(st.just(",")) + draw(blanks) if place else ""
        text += draw(spelt(key)) + draw(blanks) + ":" + draw(blanks)
        value = draw(written_values(depth - 1))
        spans += [((key, *path), (len(text) + begin, len(text) + end)) for path, (begin, end) in value.spans]
        text += value.text + draw(blanks)
    return Written(text + "}", spans)


@st.composite
def written_lists(draw, depth):
    text = "[" + draw(blanks)
    spans = []
    for place in range(draw(st.integers(0, 3))):
        text += "," + draw(blanks) if place else ""
        value = draw(written_values(depth - 1))
        spans += [((place, *path), (len(text) + begin, len(text) + end)) for path, (begin, end) in value.spans]
        text += value.text + draw(blanks)
    return Written(text + "]", spans)


@st.composite
def bodies(draw):
    """A body, with the span of each path in it."""
    before = draw(blanks)
    value = draw(written_objects())
    spans = [(path, (begin + len(before), end + len(before))) for path, (begin, end) in value.spans]
    return before + value.text + draw(blanks), spans


new_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=4,
)


def ambiguous(spans):
    """Paths that two values have, and all that is below them."""
    twice = {path for path, times in Counter(path for path, _ in spans).items() if times > 1}
    return lambda path: any(path[:length] in twice for length in range(len(path) + 1))


def apart(path, others):
    """Whether a path is within none of the others, nor any of them within it."""
    return all(path[: len(other)] != other and other[: len(path)] != path for other in others)


def changed(body, changes):
    """The decoded body with the changes, made one by one."""
    body = copy.deepcopy(body)
    for change in changes:
        at = body
        for step in change.path[:-1]:
            at = at[step]
        if isinstance(change, Removal):
            del at[change.path[-1]]
        else:
            at[change.path[-1]] = change.value
    return body


def is_same(one, other):
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(st.data())
def test_bytes_outside_of_edited_values_stay_as_they_were(data):
    text, spans = data.draw(bodies())
    doubtful = ambiguous(spans)
    chosen = {}
    for path, span in data.draw(st.permutations(spans)):
        if path and not doubtful(path) and apart(path, chosen) and len(chosen) < 5:
            chosen[path] = span, data.draw(new_values)
    expected = text
    for (begin, end), value in sorted(chosen.values(), key=lambda one: one[0], reverse=True):
        expected = expected[:begin] + msgspec.json.encode(value).decode() + expected[end:]
    assert splice(text.encode(), [Edit(path, value) for path, (_, value) in chosen.items()]) == expected.encode()


@given(st.data())
def test_changes_mean_what_a_slow_and_obvious_way_makes_of_them(data):
    text, spans = data.draw(bodies())
    doubtful = ambiguous(spans)
    body = json.loads(text)
    objects = [path for path, (begin, _) in spans if text[begin] == "{" and not doubtful(path)]
    new = [(*path, key) for path in objects for key in ("new", "newer")]
    there = [path for path, _ in spans if path and not doubtful(path)]
    taken = set(there)
    changes = []
    for path in data.draw(st.permutations([*there, *(path for path in new if path not in taken)])):
        if len(changes) == 6 or not apart(path, [change.path for change in changes]) or doubtful(path):
            continue
        removable = path in taken and isinstance(path[-1], str)
        if removable and data.draw(st.booleans()):
            changes.append(Removal(path))
        else:
            changes.append(Edit(path, data.draw(new_values)))
    assert is_same(json.loads(splice(text.encode(), changes)), changed(body, changes))


@given(st.data())
def test_what_is_added_and_removed_again_leaves_no_trace(data):
    text, spans = data.draw(bodies())
    doubtful = ambiguous(spans)
    objects = [path for path, (begin, _) in spans if text[begin] == "{" and not doubtful(path)]
    taken = {path for path, _ in spans}
    paths = [(*path, "new") for path in objects if (*path, "new") not in taken]
    raw = text.encode()
    with_more = splice(raw, [Edit(path, data.draw(new_values)) for path in paths])
    assert splice(with_more, [Removal(path) for path in paths]) == raw


@given(st.data())
def test_a_removal_takes_one_piece_of_the_body_away(data):
    text, spans = data.draw(bodies())
    doubtful = ambiguous(spans)
    members = [(path, span) for path, span in spans if path and isinstance(path[-1], str) and not doubtful(path)]
    if not members:
        return
    path, (begin, end) = data.draw(st.sampled_from(members))
    left = splice(text.encode(), [Removal(path)]).decode()
    gone = len(text) - len(left)
    places = [at for at in range(len(left) + 1) if left == text[:at] + text[at + gone :]]
    assert any(at <= begin and end <= at + gone for at in places)


@given(st.data())
def test_a_key_given_twice_is_nothing_to_step_through(data):
    text, spans = data.draw(bodies())
    doubtful = ambiguous(spans)
    for path, _ in spans:
        if doubtful(path):
            with pytest.raises(NotLocated):
                splice(text.encode(), [Edit(path, 1)])
            if isinstance(path[-1], str):
                with pytest.raises(NotLocated):
                    splice(text.encode(), [Removal(path)])


@given(st.binary(max_size=60), st.lists(st.one_of(keys, st.integers(-1, 2)), max_size=3))
def test_bytes_of_any_kind_are_changed_or_refused(raw, path):
    for change in (Edit(tuple(path), 1), Removal(tuple(path))):
        try:
            done = splice(raw, [change])
        except NotLocated:
            continue
        json.loads(done)


@given(st.data())
def test_a_body_cut_short_or_with_a_byte_more_is_refused_or_was_json(data):
    text, spans = data.draw(bodies())
    path = data.draw(st.sampled_from(spans))[0]
    at = data.draw(st.integers(0, len(text)))
    broken = text[:at] + data.draw(st.sampled_from(["", "", ",", "}", "]", "{", '"', "NaN", "\\", "\x0b", "x"]))
    broken += text[at + data.draw(st.integers(0, 1)) :] if data.draw(st.booleans()) else ""
    try:
        done = splice(broken.encode(), [Edit(path, 1)])
    except NotLocated:
        return
    json.loads(done)
    json.loads(broken)


@pytest.mark.parametrize(
    ("raw", "change", "expected"),
    [
        (b"{}", Edit(("a",), 1), b'{"a":1}'),
        (b"{ }", Edit(("a",), 1), b'{"a":1 }'),
        (b' {"a": 1 } ', Edit(("b",), [2]), b' {"a": 1,"b":[2] } '),
        (b'{"a":{}}', Edit(("a", "b"), None), b'{"a":{"b":null}}'),
        (b'{"a": 1, "b": 2}', Removal(("a",)), b'{"b": 2}'),
        (b'{"a": 1 , "b": 2 }', Removal(("b",)), b'{"a": 1 }'),
        (b'{ "a" : 1 }', Removal(("a",)), b"{  }"),
        (b"[1, [2, 3]]", Edit((1, 0), "x"), b'[1, ["x", 3]]'),
        (b" 1 ", Edit((), "x"), b' "x" '),
        ('{"é": "ü"}'.encode(), Edit(("é",), "ö\u2028\x00"), '{"é": "ö\u2028\\u0000"}'.encode()),
        (b'{"\\u0061": 1}', Edit(("a",), 2), b'{"\\u0061": 2}'),
        (b'{"a\\"": 1}', Edit(('a"',), 2), b'{"a\\"": 2}'),
    ],
)
def test_single_changes(raw, change, expected):
    assert splice(raw, [change]) == expected


@pytest.mark.parametrize(
    ("removed", "more", "expected"),
    [
        ("a", [], b'{"b": 2, "c": 3}'),
        ("ab", [], b'{"c": 3}'),
        ("bc", [], b'{"a": 1}'),
        ("ac", [], b'{"b": 2}'),
        ("abc", [], b"{}"),
        ("c", [Edit(("d",), 4)], b'{"a": 1, "b": 2,"d":4}'),
        ("abc", [Edit(("d",), 4)], b'{"d":4}'),
        ("a", [Edit(("d",), 4), Edit(("e",), 5), Edit(("b",), 0)], b'{"b": 0, "c": 3,"d":4,"e":5}'),
    ],
)
def test_several_changes_of_one_object(removed, more, expected):
    assert splice(b'{"a": 1, "b": 2, "c": 3}', [*more, *(Removal((key,)) for key in removed)]) == expected


def test_nothing_to_change_is_the_very_same_body_whatever_it_is():
    raw = b"\xff no JSON"
    assert splice(raw, []) is raw


@pytest.mark.parametrize(
    "changes",
    [
        [Edit(("x", "y"), 1)],
        [Removal(("x",))],
        [Removal(())],
        [Removal(("list", 0))],
        [Edit(("list", 2), 1)],
        [Edit(("list", -1), 1)],
        [Edit(("list", "0"), 1)],
        [Edit((0,), 1)],
        [Edit(("n", "a"), 1)],
        [Edit(("twice",), 1)],
        [Edit(("twice", 0), 1)],
        [Removal(("twice",))],
        [Edit(("n",), 1), Edit(("n",), 2)],
        [Edit(("n",), 1), Removal(("n",))],
        [Edit(("list",), 1), Edit(("list", 0), 2)],
        [Edit(("list", 0), 2), Edit(("list",), 1)],
        [Edit((), 1), Edit(("n",), 1)],
        [Edit(("n",) * 100, 1)],
    ],
)
def test_what_is_not_there_or_not_clear_is_refused(changes):
    with pytest.raises(NotLocated):
        splice(b'{"list": [1, 2], "n": 1, "twice": [1], "\\u0074wice": [2]}', changes)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"a": 1',
        b'{"a": 1}}',
        b'{"a": 1,}',
        b'{"a": 1 "b": 2}',
        b'{"a" 1}',
        b"{a: 1}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"b": [NaN], "a": 1}',
        b'{"b": -Infinity, "a": 1}',
        b'{"b": 01, "a": 1}',
        b'{"b": "\x01", "a": 1}',
        b'{"b\x01": 1, "a": 1}',
        b'{"b": "\\q", "a": 1}',
        b'{"b": "\xff", "a": 1}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": 1}\x0b',
        b'{"a": 1} // x',
    ],
)
def test_what_is_no_strict_json_is_refused(raw):
    with pytest.raises(NotLocated):
        splice(raw, [Edit(("a",), 1)])


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'[{"a":'])
def test_a_body_may_be_of_any_depth(opened):
    raw = b'{"deep": ' + opened * 500_000
    with pytest.raises(NotLocated):
        splice(raw, [Edit(("a",), 1)])
    with pytest.raises(NotLocated):
        splice(raw, [Edit(("deep", 0), 1)])


def test_what_is_looked_at_one_by_one_has_an_end():
    raw = b'{"messages": [' + b"{}," * 1_000_000 + b"{}]}"
    with pytest.raises(NotLocated, match=str(MOST_STEPS)):
        splice(raw, [Edit(("messages", 1_000_000, "content"), "x")])
    assert splice(raw, [Edit(("a",), 1)]) == raw[:-1] + b',"a":1}'


def test_numbers_of_any_length_stay_as_they_are_written():
    raw = b'{"n": ' + b"9" * 100_000 + b', "m": 1e999999}'
    assert splice(raw, [Edit(("a",), 1)]) == raw[:-1] + b',"a":1}'


def test_a_member_that_is_there_already_gets_the_value():
    edit = Edit(("cache_salt",), "new")
    assert splice(b'{"cache_salt": "old", "n": 1}', [edit]) == b'{"cache_salt": "new", "n": 1}'
    with pytest.raises(NotLocated):
        splice(b"[]", [edit])
