"""What every `ContextIndex` has to do. A test module subclasses `IndexConformance` and says how to make one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

from contextpilot_rag import BlockRef, ContextIndex, Namespace, OrderBudget, Request, Usage

A, B, C = (BlockRef(key, 100) for key in "abc")
ACME, OTHER = Namespace(tenant="acme"), Namespace(tenant="other")


class IndexConformance:
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
        index.align(Request((A, B)))
        alignment = index.align(Request((B, A)))
        index.observe(alignment, Usage(prompt_tokens=230, cached_tokens=192))
        index.observe(alignment, Usage(prompt_tokens=230))
        stats = index.stats()
        assert (stats.requests, stats.changed, stats.block_tokens, stats.predicted_cached_tokens) == (2, 1, 400, 200)
        assert (stats.observed, stats.reported_prompt_tokens, stats.reported_cached_tokens) == (2, 460, 192)
        assert stats.cached_not_reported == 1
        assert stats.rules == {"nothing_gained": 1, "prefix": 1}

    def test_empty_requests_are_fine(self):
        assert self.make().align(Request(())).order == ()

    def test_keeps_the_order_when_told_to(self):
        index = self.make()
        index.align(Request((A, B)))
        assert index.align(Request((B, A), budget=OrderBudget(order="retrieved"))).order == (0, 1)

    def test_eight_threads_at_once(self):
        index = self.make()
        blocks = [BlockRef(number, number + 1) for number in range(30)]

        def work(worker: int) -> list[bool]:
            good = []
            for step in range(150):
                start = (worker * 7 + step * 3) % 20
                order = tuple(blocks[start + (place * (worker % 3 + 1)) % 10] for place in range(10))
                request = Request(tuple(dict.fromkeys(order)), Namespace(tenant=str(step % 3)), key=(worker, step))
                alignment = index.align(request)
                index.observe(alignment, Usage(100, 10))
                if step % 50 == 49:
                    index.forget(request.namespace)
                good.append(
                    alignment.request.key == (worker, step)
                    and sorted(alignment.order) == list(range(len(request.blocks)))
                )
            return good

        with ThreadPoolExecutor(8) as pool:
            results = [flag for flags in pool.map(work, range(8)) for flag in flags]
        assert len(results) == 1_200
        assert all(results)
        assert index.stats().requests == 1_200
