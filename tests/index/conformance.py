"""What every `ContextIndex` has to do. A test module subclasses `IndexConformance` and says how to make one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations

from contextpilot_rag import Alignment, BlockRef, ContextIndex, Namespace, OrderBudget, Request, Rule, Usage
from contextpilot_rag.index.tree import PrefixTree

A, B, C = (BlockRef(key, 100) for key in "abc")
ACME, OTHER = Namespace(tenant="acme"), Namespace(tenant="other")


def nothing(tree: PrefixTree | None) -> bool:
    return tree is None or not tree.blocks


class IndexConformance:
    steps = 150  # of each of the eight threads

    def make(self) -> ContextIndex:
        raise NotImplementedError

    def test_learns_from_what_it_aligned(self):
        index = self.make()
        assert index.align(Request((A, B))).order == (0, 1)
        assert index.align(Request((B, A))).order == (1, 0)

    def test_the_answer_is_about_the_request_and_carries_its_key(self):
        index = self.make()
        for number, order in enumerate(permutations((A, B, C))):
            request = Request(order, key=number)
            alignment = index.align(request)
            assert alignment.request == request
            assert sorted(alignment.order) == [0, 1, 2]

    def test_equal_requests_are_separate(self):
        index = self.make()
        first, second = index.align(Request((A, B), key=1)), index.align(Request((A, B), key=2))
        assert (first.request.key, second.request.key) == (1, 2)
        assert second.predicted_cached_tokens == 200

    def test_takes_an_order_that_was_chosen_elsewhere_as_sent(self):
        index = self.make()
        index.sent(Alignment(Request((A, B, C), ACME), (2, 0, 1), 0, 0, 0, Rule.PLANNED))
        assert index.predict(Request((A, C), ACME)) == 200
        assert index.align(Request((A, C), ACME)).order == (1, 0)
        assert index.align(Request((A, C), OTHER)).order == (0, 1)

    def test_counts_what_it_took_as_sent(self):
        index = self.make()
        planned = Alignment(Request((A, B)), (1, 0), 1, 100, 0, Rule.PREFIX)
        index.sent(planned)
        index.observe(planned, Usage(prompt_tokens=230, cached_tokens=96))
        stats = index.stats()
        assert (stats.requests, stats.changed, stats.block_tokens, stats.predicted_cached_tokens) == (1, 1, 200, 100)
        assert (stats.observed, stats.reported_cached_tokens, stats.rules) == (1, 96, {"prefix": 1})

    def test_empty_requests_can_be_taken_as_sent(self):
        index = self.make()
        index.sent(Alignment(Request(()), ()))
        assert index.stats().requests == 1

    def test_the_tree_is_a_copy_of_what_it_believes_in(self):
        """Or None: an index may not know what it has, but it must not tell anything wrong."""
        index = self.make()
        index.align(Request((A, B), ACME))
        tree = index.tree(ACME)
        if tree is not None:
            assert tree.cached_tokens([A, B, C]) == (2, 200)
            tree.insert([C, B])
            tree.clear()
        assert index.predict(Request((C, B), ACME)) == 0
        assert index.predict(Request((B, A), ACME)) == 200

    def test_the_tree_is_of_one_namespace_and_goes_with_it(self):
        index = self.make()
        index.align(Request((A, B), ACME))
        for namespace in (OTHER, Namespace()):
            assert nothing(index.tree(namespace))
        index.forget(ACME)
        assert nothing(index.tree(ACME))

    def test_asking_for_a_tree_or_a_prediction_changes_nothing(self):
        index = self.make()
        index.tree(ACME)
        index.predict(Request((A, B), ACME))
        assert index.stats().requests == index.stats().namespaces == 0
        assert index.predict(Request((A, B), ACME)) == 0

    def test_namespaces_know_nothing_of_each_other(self):
        index = self.make()
        index.align(Request((A, B), ACME))
        stranger = index.align(Request((B, A), OTHER))
        assert (stranger.order, stranger.predicted_cached_tokens) == ((0, 1), 0)
        assert index.align(Request((B, A), ACME)).order == (1, 0)

    def test_forgets_one_namespace_or_all(self):
        index = self.make()
        for namespace in (ACME, OTHER):
            index.align(Request((A, B), namespace))
        index.forget(ACME)
        assert index.align(Request((B, A), ACME)).predicted_cached_tokens == 0
        assert index.align(Request((B, A), OTHER)).predicted_cached_tokens == 200
        index.forget()
        assert index.align(Request((A, B), OTHER)).predicted_cached_tokens == 0
        index.forget(Namespace(tenant="never seen"))

    def test_works_on_after_forgetting_with_an_answer_still_out(self):
        index = self.make()
        alignment = index.align(Request((A, B)))
        index.forget()
        index.observe(alignment, Usage(200, 0))
        assert index.align(Request((A, B))).order == (0, 1)

    def test_counts_what_it_did_and_what_was_reported(self):
        index = self.make()
        index.observe(index.align(Request((A, B))), Usage(prompt_tokens=230))
        index.observe(index.align(Request((B, A))), Usage(prompt_tokens=230, cached_tokens=192))
        stats = index.stats()
        assert (stats.requests, stats.changed, stats.block_tokens, stats.predicted_cached_tokens) == (2, 1, 400, 200)
        assert (stats.observed, stats.reported_prompt_tokens, stats.reported_cached_tokens) == (2, 460, 192)
        assert stats.cached_not_reported == 1
        assert stats.rules == {"nothing_gained": 1, "prefix": 1}

    def test_a_request_that_is_sent_twice_is_reported_twice(self):
        index = self.make()
        planned = Alignment(Request((A, B)), (1, 0))
        for cached in (0, 192):
            index.sent(planned)
            index.observe(planned, Usage(prompt_tokens=230, cached_tokens=cached))
        stats = index.stats()
        assert (stats.requests, stats.observed, stats.reported_cached_tokens) == (2, 2, 192)

    def test_forgets_one_head_or_all_of_a_namespace(self):
        index = self.make()
        heads = [replace(ACME, head=head) for head in ("", "one", "two")]
        for namespace in heads:
            index.align(Request((A, B), namespace))
        index.forget(heads[1])
        assert [index.predict(Request((A, B), namespace)) for namespace in heads] == [200, 0, 200]
        index.forget(ACME)
        assert [index.predict(Request((A, B), namespace)) for namespace in heads] == [0, 0, 0]

    def test_keys_of_any_kind_are_kept_apart(self):
        index = self.make()
        keys = [7, -7, 10**30, "7", "", "7" * 300, "seven\udc80", b"7", b"7" * 8, b"7" * 16, b"7" * 80, "7" * 16]
        for key in keys:
            assert index.align(Request((BlockRef(key, 100),))).predicted_cached_tokens == 0
            assert index.predict(Request((BlockRef(key, 100),))) == 100

    def test_an_order_budget_is_kept(self):
        index = self.make()
        index.align(Request((C, B, A)))
        protecting = index.align(Request((A, B, C), budget=OrderBudget("throughput", protect_top=1)))
        assert protecting.order[0] == 0
        index.align(Request((C, B, A), OTHER))
        near = index.align(Request((A, B, C), OTHER, OrderBudget("throughput", max_displacement=1)))
        assert all(abs(place - rank) <= 1 for place, rank in enumerate(near.order))

    def test_empty_requests_are_fine(self):
        assert self.make().align(Request(())).order == ()

    def test_keeps_the_order_when_told_to(self):
        index = self.make()
        index.align(Request((A, B)))
        assert index.align(Request((B, A), budget=OrderBudget(order="retrieved"))).order == (0, 1)

    def test_a_fixed_order_does_not_depend_on_what_was_sent(self):
        index, budget = self.make(), OrderBudget("fixed")
        first = index.align(Request((C, A, B), budget=budget))
        index.align(Request((B, C)))
        second = index.align(Request((B, C, A), budget=budget))
        assert [(C, A, B)[rank] for rank in first.order] == [(B, C, A)[rank] for rank in second.order]
        assert (first.rule, second.rule, second.predicted_cached_tokens) == (Rule.FIXED, Rule.FIXED, 300)

    def test_eight_threads_at_once(self):
        index = self.make()
        blocks = [BlockRef(number, number + 1) for number in range(30)]

        def work(worker: int) -> list[bool]:
            good = []
            for step in range(self.steps):
                start = (worker * 7 + step * 3) % 20
                order = tuple(blocks[start + (place * (worker % 3 + 1)) % 10] for place in range(10))
                request = Request(tuple(dict.fromkeys(order)), Namespace(tenant=str(step % 3)), key=(worker, step))
                alignment = index.align(request)
                index.observe(alignment, Usage(100, 10))
                if step % 3 == 0:
                    index.sent(alignment)
                if step % 10 == 0:
                    index.tree(request.namespace)
                if step % 50 == 49:
                    index.forget(request.namespace)
                good.append(
                    alignment.request.key == (worker, step)
                    and sorted(alignment.order) == list(range(len(request.blocks)))
                )
            return good

        with ThreadPoolExecutor(8) as pool:
            results = [flag for flags in pool.map(work, range(8)) for flag in flags]
        assert len(results) == 8 * self.steps
        assert all(results)
        assert index.stats().requests == 8 * (self.steps + (self.steps + 2) // 3)
