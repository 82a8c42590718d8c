from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.finding import is_positional, listed, strings
from tests.proxy.finding_material import results

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.sampled_from(["results", "text", "data"]), inner)
    ),
    max_leaves=20,
)


@given(results())
def test_a_list_of_results_is_found_in_any_shape(made):
    text, bodies = made
    group = listed(text)
    assert [text[slice(*item.body)] for item in group.items] == bodies
    assert [item.label for item in group.items] == [str(n * 3) for n in range(len(bodies))]
    elements = [json.loads(text[slice(*item.span)]) for item in group.items]
    assert found_in(json.loads(text)) == elements
    assert text[slice(*group.span)] == text.strip()
    assert all(text[slice(*item.label_span)] == item.label for item in group.items)
    assert not is_positional(group)


def found_in(value):
    return value if isinstance(value, list) else value.get("results") or value["data"]["documents"]


@pytest.mark.parametrize(
    "value",
    [
        [{"text": "a"}, {"text": "b"}],
        [{"page_content": "a", "metadata": {}}, {"page_content": "b", "metadata": {}}],
        {"results": [{"id": "x", "memory": "a", "created_at": "now"}, {"id": "y", "memory": "b", "created_at": "now"}]},
        {"response": {"numFound": 2, "docs": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]}},
        {
            "hits": {
                "total": 2,
                "hits": [{"_id": "1", "_source": {"text": "a"}}, {"_id": "2", "_source": {"text": "b"}}],
            }
        },
        {
            "matches": [
                {"id": "1", "score": 1, "metadata": {"text": "a"}},
                {"id": "2", "score": 0, "metadata": {"text": "b"}},
            ]
        },
        [{"node": {"text": "a"}, "score": 0.5}, {"node": {"text": "b"}, "score": 0.25}],
        {"nodes": [{"text": "a", "start": 0, "score": 1}, {"text": "b", "start": 9, "score": 0}]},
        {"data": [{"url": "x", "content": "a"}, {"url": "y", "content": "b"}]},
        {"data": {"results": [{"text": "a"}, {"text": "b"}]}, "next": {"items": [1, 2]}},
    ],
)
def test_answers_of_common_searches_are_lists_of_results(value):
    text = json.dumps(value)
    assert [text[slice(*item.body)] for item in listed(text).items] == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        [[], []],
        ["a", "b"],
        {"results": {"a": 1}},
        {"results": [{"text": "a"}, "b"]},
        {"results": [{"text": "a"}, {"content": "b"}]},
        {"a": {"b": {"results": [{"text": "a"}, {"text": "b"}]}}},
        [{"role": "user", "text": "a", "score": 1}, {"role": "user", "text": "b", "score": 1}],
        {"items": [{"line": 1, "text": "a"}, {"line": 2, "text": "b"}]},
        {"chunks": [{"chunk_index": 0, "text": "a"}, {"chunk_index": 1, "text": "b"}]},
        {"results": [{"path": "a.py", "start_line": 1, "text": "a"}, {"path": "a.py", "start_line": 9, "text": "b"}]},
        {"results": [{"text": "a", "bbox": [0, 0, 9, 9]}, {"text": "b", "bbox": [9, 0, 9, 9]}]},
        {"data": {"results": [{"text": "a"}, {"text": "b"}]}, "results": [{"text": "a"}, {"text": "b"}]},
    ],
)
def test_other_json_is_no_list_of_results(value):
    assert listed(json.dumps(value)) is None


def test_a_string_is_a_label_as_it_is_written():
    text = '[{"id": "a b", "text": "x"}, {"id": "c", "text": "y"}]'
    assert [item.label for item in listed(text).items] == ["a b", "c"]
    text = '[{"id": "a\\u0020b", "text": "x"}, {"id": "c", "text": "y"}]'
    assert [item.label for item in listed(text).items] == [None, None]
    text = '[{"id": -1, "text": "x"}, {"id": 2.5, "text": "y"}]'
    assert [item.label for item in listed(text).items] == [None, None]


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_strings_are_all_that_are_long_enough_and_no_keys(value, indent, ascii_only):
    text = f" {json.dumps(value, indent=indent, ensure_ascii=ascii_only)}\n"
    if not isinstance(value, dict | list):
        assert strings(text, 3) == []
        return
    found = [text[slice(*span)] for span in strings(text, 3)]
    raw = [json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in leaves(value)]
    assert found == [one for one in raw if len(one) >= 3]


def lists(value):
    if isinstance(value, list):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from lists(inner)


def leaves(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)


@given(st.lists(st.sampled_from('{ } [ ] , : " \\ \\" "text" "results" "a" 1 NaN \ud800 é \n'.split(" "))).map("".join))
def test_whatever_the_text_is_nothing_is_raised(text):
    listed(text)
    strings(text)


@given(values)
def test_whatever_the_json_is_a_group_holds_all_elements_of_a_list(value):
    text = json.dumps(value)
    group = listed(text)
    if group is not None:
        elements = [json.loads(text[slice(*item.span)]) for item in group.items]
        assert elements in lists(json.loads(text))


@pytest.mark.parametrize("text", ["[" * 10**6, '{"results":' * 10**5, "[" * 10**5 + "]" * 10**5, '["' + "\\" * 10**6])
def test_deep_and_broken_json_is_left_alone(text):
    assert listed(text) is None
    assert strings(text) == []


def test_many_quotes_and_escapes_are_no_trouble():
    long = '\\"\\\\' * 10**5
    text = f'[{{"text": "{long}"}}, {{"text": "{long}"}}]'
    assert [text[slice(*item.body)] for item in listed(text).items] == [long, long]
    assert [text[slice(*span)] for span in strings(text)] == [long, long]
