"""What comes in between: an answer is told while its request's record is on its way back, given up, or forgotten."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from contextpilot_rag import BlockRef, Namespace, Request, Usage
from contextpilot_rag.index.fed import FedIndex
from contextpilot_rag.index.records import Forgot, Observed, Sent
from tests.index.fed import written

SPACE = Namespace("acme")
REQUEST = Request((BlockRef("a", 40), BlockRef("b", 40)), SPACE)


class Log:
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def append(self, space, record):
        self.told.append((f"one-{len(self.told)}", record))
        return self.told[-1][0]

    def forgot(self, namespace):
        self.append(namespace, Forgot(""))

    def observed(self):
        return [record for _, record in self.told if isinstance(record, Observed)]


class Between(OrderedDict[str, object]):
    """Where early answers are kept: once one was looked for, something else happens."""

    def __init__(self, happens):
        super().__init__()
        self.happens = happens

    def pop(self, *given):
        found = super().pop(*given)
        happens, self.happens = self.happens, lambda: None
        happens()
        return found


class Slow:
    """A lock that was hard to get: meanwhile something else happened."""

    def __init__(self, lock, happens):
        self.lock, self.happens = lock, happens

    def __enter__(self):
        happens, self.happens = self.happens, lambda: None
        happens()
        return self.lock.__enter__()

    def __exit__(self, *error):
        return self.lock.__exit__(*error)


def made(**options):
    log = Log()
    index = FedIndex(journal=log, **options)
    alignment = index.align(REQUEST)
    return log, index, alignment


def test_an_answer_while_its_record_is_given_up_is_not_kept_for_ever():
    _, index, alignment = made()
    index._early = Between(lambda: index.observe(alignment, Usage(100, 0)))
    index.included(SPACE, [alignment.ticket])
    assert not index._early


@pytest.mark.parametrize("told", [lambda index, one: index.observe(one, Usage(100, 0)), FedIndex.failed])
def test_an_answer_while_its_namespace_is_forgotten_is_not_kept_for_ever(told):
    log, index, alignment = made()
    (name, sent), share = log.told[0], index._shares[SPACE]

    def forgotten_and_back():
        index.forget(SPACE)
        index.apply(SPACE, name, sent, own=True)
        index.apply(SPACE, *log.told[1], own=True)

    share.lock = Slow(share.lock, forgotten_and_back)
    told(index, alignment)
    assert isinstance(sent, Sent)
    assert not index._early


def test_an_answer_while_its_namespace_is_read_anew_is_told_when_its_record_is_back():
    log, index, alignment = made()
    (name, sent), share = log.told[0], index._shares[SPACE]
    share.lock = Slow(share.lock, lambda: index.replace_space(SPACE, []))
    index.observe(alignment, Usage(100, 0))
    assert not log.observed()
    index.apply(SPACE, name, sent, own=True)
    assert [record.cached_tokens for record in log.observed()] == [0]
    assert not index._early
    assert written(index, SPACE)
