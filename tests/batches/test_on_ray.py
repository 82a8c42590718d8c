"""Plans on Ray: the same as without, from data sets and back, and whatever dies."""

from __future__ import annotations

import doctest
import gc
import importlib
import json
import logging
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from contextpilot_rag.batches import plan_on_ray
from contextpilot_rag.cli import main
from contextpilot_rag.errors import InputError, MissingPackage, SettingsError
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import BlockRef, OrderBudget, Request

from .drawn import held, made, planned

pytestmark = [  # of Ray's own, while it is imported and started
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    pytest.mark.filterwarnings(r"ignore::FutureWarning:ray\..*"),
    pytest.mark.filterwarnings("ignore:unclosed file .*ray-data:ResourceWarning"),  # the log of each of its runs
]

ROWS = made(600, 80)
LENGTHS = {f"b{number}": 1 + number % 30 for number in range(80)}


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """One Ray for all tests, of two CPUs, that tells nobody of itself."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    pytest.importorskip("ray.data", reason="Ray's data sets are not installed")
    before = dict(os.environ)
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_DATA_DISABLE_PROGRESS_BARS="1")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), before.get("PYTHONPATH", "")])
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(tmp_path_factory.mktemp("r")),
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _collected():
    """What Ray leaves open goes with the test that it was opened for."""
    yield
    gc.collect()


def lists(plan):
    return [list(shard) for shard in plan.shards]


def test_it_is_the_plan_that_one_process_makes(ray):
    with_ray = plan_on_ray(iter(ROWS), 3, tokens=LENGTHS, group=100, order="throughput")
    without = planned(ROWS, 3, group=100, lot=16_384, counters=16_384, lengths=LENGTHS)
    assert lists(with_ray) == lists(without)
    assert with_ray.totals == without.totals
    assert with_ray.groups > 3
    held(with_ray, ROWS, LENGTHS)


def test_a_data_set_keeps_its_columns_and_becomes_data_sets_in_the_order_of_sending(ray):
    rows = [
        {**row, "question": f"What of {row['qid']}?", "tokens": [LENGTHS[i] for i in row["context_ids"]]}
        for row in ROWS
    ]
    given = ray.data.from_items(rows, override_num_blocks=5)
    plan = plan_on_ray(given, 2, group=150, order="throughput")
    assert not given.context.execution_options.preserve_order  # it is the caller's
    held(plan, ROWS, LENGTHS)
    for shard in plan.shards:
        dataset = shard.to_dataset()
        assert dataset.num_blocks() > 1
        mapped = dataset.map_batches(lambda batch: batch, batch_size=16, batch_format="pyarrow")
        assert mapped.context.execution_options.preserve_order  # so many CPUs do not show it
        found = mapped.take_all()
        assert found == list(shard)
        assert all(row["question"] == f"What of {row['qid']}?" for row in found)


def test_requests_and_an_empty_shard(ray):
    requests = [Request((BlockRef(b"a", 5),), budget=OrderBudget("throughput"), key=("any", "key"))]
    plan = plan_on_ray(requests, 3)
    assert [row["key"] for shard in plan.shards for row in shard] == [("any", "key")]
    assert sorted(shard.to_dataset().count() for shard in plan.shards[:1]) == [len(plan.shards[0])]


def test_an_error_says_which_context_it_is_about(ray):
    with pytest.raises(InputError, match="context 600: context_ids must be"):
        plan_on_ray([*ROWS, {"context_ids": 5}])
    with pytest.raises(InputError, match="block 0 of the data set: its table has no context_ids"):
        plan_on_ray(ray.data.from_items([{"ids": ["a"]}]))


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are found by /proc")
def test_a_worker_that_is_killed_costs_time_only(ray):
    rows = made(4000, 400)
    whole = lists(plan_on_ray(rows, 4, group=700, order="throughput"))
    killed = []

    def kill_one(what, done, total):
        if what == "planning" and not killed:
            killed.extend(planning_processes())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    assert lists(plan_on_ray(rows, 4, group=700, order="throughput", progress=kill_one)) == whole
    assert killed


def planning_processes():
    """Workers of this test's Ray that plan a group right now."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(b"ray::_planned"):
                raylet = parent_of(folder.name)
                if parent_of(raylet) == str(os.getpid()):
                    found.append(int(folder.name))
        except OSError:  # it ended meanwhile
            pass
    return found


def parent_of(process):
    return re.search(r"PPid:\s*(\d+)", Path(f"/proc/{process}/status").read_text()).group(1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shards": 0}, "shards"),
        ({"group": 0}, "group"),
        ({"counters": 1.5}, "counters"),
        ({"slack": 1}, "slack"),
        ({"order": "best"}, "order"),
        ({"namespace": ""}, "namespace"),
    ],
)
def test_settings_are_checked_before_anything_is_started(options, says):
    with pytest.raises(SettingsError, match=says):
        plan_on_ray([], **options)


def test_without_ray_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackage, match=r"pip install 'contextpilot-rag\[ray\]'"):
        plan_on_ray([])


@pytest.mark.parametrize("contexts", ["text", {"context_ids": []}, 5])
def test_what_is_no_collection_of_contexts_is_refused(ray, contexts):
    with pytest.raises(InputError, match="contexts must be a Ray data set or an iterable"):
        plan_on_ray(contexts)


def command(capsys, *arguments):
    status = main(["plan", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_the_command_writes_a_schedule_for_each_engine(ray, trace, tmp_path, capsys):
    out = tmp_path / "schedules"
    status, text, _ = command(
        capsys, trace, "--ray", "local", "--shards", 2, "--out", out, "--order", "throughput", "--json"
    )
    assert status == 0
    said = json.loads(text)
    written = {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in out.iterdir()}
    assert sorted(written) == ["shard-0.jsonl", "shard-1.jsonl"]
    assert [shard["requests"] for shard in said["shards"]] == [len(written[name]) for name in sorted(written)]
    found = {row["qid"]: set(row["context_ids"]) for rows in written.values() for row in rows}
    assert found == {row["qid"]: set(row["context_ids"]) for row in ROWS}
    _, text, _ = command(capsys, trace, "--ray", "local", "--out", tmp_path / "one")
    for part in ("for 1 engine\n", "no --tokens", f"written to {tmp_path / 'one'}"):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shards", "2"], "--shards needs --ray"),
        (["--ray", "local", "--ceiling"], "--ceiling"),
        (["--ray", "local", "--budget", "0"], "--budget"),
        (["--ray", "local", "--shards", "0"], "shards"),
        (["--ray", "local", "--out", "/dev/null/folder"], "--out"),
    ],
)
def test_options_that_do_not_go_together_are_named(ray, trace, capsys, arguments, says):
    status, _, errors = command(capsys, trace, *arguments)
    assert status == 1
    assert says in errors


def test_the_example_has_each_shard_answered_by_its_own_engine(ray, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    example = importlib.import_module("ray_vllm")
    ray.cloudpickle.register_pickle_by_value(example)  # as Ray takes what the program that is run defines
    with FakeEngine() as one, FakeEngine() as two:
        engines = [one, two]
        plan = example.planned(ray.data.from_items(example.about_the_agreement()), 2)
        example.answer(plan, [example.engine_at(engine.base_url) for engine in engines], tmp_path)
        for shard, engine in zip(plan.shards, engines, strict=True):
            written = [json.loads(line) for line in (tmp_path / f"shard-{shard.number}.jsonl").read_text().splitlines()]
            assert [row["qid"] for row in written] == [row["qid"] for row in shard]
            assert all(row["error"] is None and row["answer"] for row in written)
            assert len(engine.requests) == len(shard)
            found = sum(request.cached_tokens for request in engine.requests)
            assert found / sum(request.prompt_tokens for request in engine.requests) > 0.8 * shard.hit_ratio


GUIDE = Path(__file__).parents[2] / "docs" / "batches.md"


def test_the_guide_s_examples_work_as_they_stand_there(ray):
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")
    assert tried >= 4
    assert not failed
