"""Plans through the service: over HTTP, on the event loop it really uses, with ends that come without a warning."""

from __future__ import annotations

import signal
import socket
from typing import Any

import msgspec
import pytest

from contextpilot_rag.remote.wire_plan import JobOut, JobsOut, PlanOut
from contextpilot_rag.service import plan_routes

from .harness import Reply, Running, process, serving
from .plan_batches import SECONDS, batch, body, children, endless, lives, soon


def begin(service: Running, given: Any = None) -> str:
    reply = service.ask("POST", "/v1/plan", body(batch()) if given is None else given)
    assert reply.status == 202, reply
    job = msgspec.json.decode(reply.body, type=JobOut)
    assert reply.headers["location"] == f"/v1/plan/{job.id}"
    return reply.headers["location"]


def state(service: Running, at: str) -> JobOut:
    reply = service.ask("GET", at)
    assert reply.status == 200, reply
    return msgspec.json.decode(reply.body, type=JobOut)


def problem(reply: Reply, status: int) -> str:
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["status"] == status
    return str(reply.json().get("detail"))


def test_a_plan_from_its_batch_to_its_end(tmp_path):
    with process(tmp_path) as service:
        at = begin(service)
        soon(lambda: state(service, at).status == "done")
        reply = service.ask("GET", f"{at}/result")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        plan = msgspec.json.decode(reply.body, type=PlanOut)
        assert sorted(one.key for one in plan.alignments) == sorted(one["key"] for one in batch()["requests"])
        assert state(service, at).result_bytes == len(reply.body)
        assert service.ask("GET", f"{at}/result").body == reply.body
        listed = msgspec.json.decode(service.ask("GET", "/v1/plan").body, type=JobsOut)
        assert [f"/v1/plan/{job.id}" for job in listed.jobs] == [at]
        assert service.ask("DELETE", at).json()["status"] == "done"
        for method, path in (("GET", at), ("GET", f"{at}/result"), ("DELETE", at)):
            problem(service.ask(method, path), 404)
        assert service.ask("GET", "/v1/stats").json()["requests"] == 0


def test_plans_are_cancelled_and_refused_and_nothing_is_left_of_them(tmp_path):
    with process(tmp_path) as service:
        running, waiting = begin(service, body(endless())), begin(service, body(endless()))
        soon(lambda: state(service, running).progress is not None)
        assert "running" in problem(service.ask("GET", f"{running}/result"), 409)
        assert "queued" in problem(service.ask("GET", f"{waiting}/result"), 409)
        for left, at in ((1, waiting), (0, running)):
            assert service.ask("DELETE", at).json()["status"] == "cancelled"
            assert len(children(service.popen.pid)) == left
        problem(service.ask("POST", "/v1/plan", b"{"), 400)
        problem(service.ask("POST", "/v1/plan", {"requests": 1}), 422)
        problem(service.ask("POST", "/v1/plan", body(batch()), Content_Type="text/plain"), 415)
        assert not children(service.popen.pid)
        begin(service, body(endless()))
        (pid,) = children(service.popen.pid)
        assert service.stop() == 0
        assert not lives(pid)
        assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("running", [True, False])
def test_no_process_outlives_a_service_that_is_killed(tmp_path, running):
    with process(tmp_path, "--plan-processes", "1") as service:
        at = begin(service, body(endless()))
        soon(lambda: state(service, at).progress is not None)
        if not running:
            begin(service, body(batch()))
        pids = children(service.popen.pid)
        assert len(pids) == (1 if running else 2)
        service.stop(signal.SIGKILL)
        soon(lambda: not any(map(lives, pids)))


def test_plans_of_clients_that_went_away_are_none(tmp_path):
    with process(tmp_path, "--tenant-plans", "3") as service:
        given = body(endless())
        head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
                connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(given) + given)
                soon(lambda: children(service.popen.pid))  # it is being checked
            soon(lambda: not children(service.popen.pid))
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
                connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(given) + given)
        soon(lambda: service.ask("POST", "/v1/plan", given).status == 202)


def test_limits_are_problems_that_say_what_to_do():
    with serving(tenant_plans=1, max_plans=1, max_plan_body=2_000, max_plan=2) as service:
        small = body({"requests": endless()["requests"][:2], "time_budget": 0})
        assert "bytes" in problem(service.ask("POST", "/v1/plan", body(batch())), 413)
        assert "3 requests" in problem(service.ask("POST", "/v1/plan", {"requests": [{"blocks": []}] * 3}), 413)
        at = begin(service, small)
        soon(lambda: state(service, at).status == "done")
        refused = service.ask("POST", "/v1/plan", small)
        assert "fetch" in problem(refused, 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert service.ask("GET", f"{at}/result").status == 200
        begin(service, small)


def test_examples_are_of_the_documented_form_and_true():
    with serving() as service:
        begun, listed, shown, result, ended = plan_routes.OPERATIONS
        at = begin(service, body(begun.example[0]))
        soon(lambda: state(service, at).status == "done")
        found = service.ask("GET", f"{at}/result").json()
        assert found == result.example[1]
        for operation, kind in ((begun, JobOut), (listed, JobsOut), (shown, JobOut), (ended, JobOut)):
            msgspec.convert(operation.example[1], kind)
