"""Documents in a system prompt: each request's are put in order, not those of a conversation's first one alone."""

from __future__ import annotations

from .test_rewriter import Sent, documents, names_in


def asked(sent, names, question):
    """The system message that is sent, and what follows it."""
    system = {"role": "system", "content": documents(names, "Answer from the documents.")["content"]}
    return sent.messages(system, {"role": "user", "content": question})


def test_documents_in_a_system_prompt_are_put_in_order_each_time():
    sent = Sent()
    asked(sent, "ABC", "What is A?")
    for names, expected in (("CBAD", "ABCD"), ("DCAB", "ABCD"), ("BAE", "ABE"), ("EBA", "ABE")):
        system, user = asked(sent, names, f"And {names}?")
        assert names_in(system) == list(expected)
        assert user["content"] == f"And {names}?"


def later_turn():
    """The second turn, with other documents in its system prompt."""
    return [
        {"role": "system", "content": documents("DBCA", "Answer from the documents.")["content"]},
        {"role": "user", "content": "What is A?"},
        {"role": "assistant", "content": "The first."},
        {"role": "user", "content": "And D?"},
    ]


def test_a_later_turn_with_other_documents_in_its_system_prompt_is_put_in_order_too():
    sent = Sent()
    asked(sent, "ABC", "What is A?")
    system, *history = later_turn()
    assert names_in(sent.messages(system, *history)[0]) == list("ABCD")


def test_what_was_put_in_order_for_a_later_turn_stays_in_the_next_one():
    sent = Sent()
    asked(sent, "ABC", "What is A?")
    system, *said = later_turn()
    second = sent.messages(system, *said)
    more = [{"role": "assistant", "content": "The fourth."}, {"role": "user", "content": "Sure?"}]
    assert sent.messages(system, *said, *more)[:4] == second


def test_a_conversation_that_was_not_here_before_stays_as_it_came():
    sent = Sent()
    asked(sent, "ABC", "What is A?")
    system = {"role": "system", "content": documents("DBCA", "Answer from the documents.")["content"]}
    said = [
        {"role": "user", "content": "Something else?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "And D?"},
    ]
    assert sent.messages(system, *said) == [system, *said]


def test_conversations_of_another_tenant_were_not_here():
    sent = Sent(tenant="acme")
    asked(sent, "ABC", "What is A?")
    sent.tenant = "globex"
    asked(sent, "ABC", "What is B?")
    for question, names, expected in (("What is A?", "CBA", "CBA"), ("What is B?", "CAB", "CBA")):
        system = {"role": "system", "content": documents(names, "Answer from the documents.")["content"]}
        said = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "The first."},
            {"role": "user", "content": "And B?"},
        ]
        assert names_in(sent.messages(system, *said)[0]) == list(expected)
