"""Synchronised processes: a single one, and the two of a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from hypothesis import given
from hypothesis import strategies as st
from launched import launch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from hf_credit.rollouts import Generation
from hf_credit.trainers.ranks import SynchronizedSampler, balanced, exchange_each_pass, keep_precision
from hf_credit.trainers.scores import log_probs, separate


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The records of the two processes of a real run."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("two_in_step.py")
    launch(script, folder, processes=2, folder=folder, environment={"ACCELERATE_USE_CPU": "true"})
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def test_there_are_two_processes(reports):
    assert [report["world size"] for report in reports] == [2, 2]


def test_who_waits_for_the_main_process_waits_beyond_the_timeout_of_collectives(reports):
    assert [report["slow"] for report in reports] == ["of 0", "of 0"]


def test_each_process_completes_its_episodes(reports):
    assert [report["both play"]["turns"] for report in reports] == [[1, 1, 1, 1, 1], [2, 6]]
    assert [report["one plays"]["turns"] for report in reports] == [[], [3]]


def test_both_processes_make_equally_many_calls_with_equally_many_contexts(reports):
    sizes = [[len(call) for call in report["both play"]["calls"]] for report in reports]
    # process 0 asks for 2, 2 and 1, process 1 for 2, 2, 1, 1, 1 and 1
    assert sizes == [[2, 2, 1, 1, 1, 1]] * 2


def test_a_process_with_fewer_contexts_pads_with_real_ones(reports):
    own, other = (report["both play"]["calls"] for report in reports)
    assert own[3:] == other[3:]
    assert len({str(call) for call in other[3:]}) == 3  # its episode goes on
    assert reports[0]["one plays"]["calls"] == reports[1]["one plays"]["calls"]
    assert [len(call) for call in reports[1]["one plays"]["calls"]] == [1, 1, 1]


def test_processes_that_need_not_call_together_generate_for_their_own_contexts_alone(reports):
    alone = [report["each for itself"] for report in reports]
    assert [len(call) for call in alone[0]["calls"]] == [2, 2, 1]
    assert [len(call) for call in alone[1]["calls"]] == [2, 2, 1, 1, 1, 1]
    assert [one["turns"] for one in alone] == [report["both play"]["turns"] for report in reports]


def test_without_episodes_nothing_is_generated(reports):
    assert [report["nobody plays"] for report in reports] == [{"turns": [], "calls": []}] * 2


def test_each_process_gets_the_replies_to_its_contexts(reports):
    assert [len(report["replies"]) for report in reports] == [1, 3]
    assert [{reply[0] for reply in report["replies"]} for report in reports] == [{10}, {11}]


def test_processes_gather_items_of_all(reports):
    assert [report["most"] for report in reports] == [3, 3]
    assert [report["before"] for report in reports] == [0, 4]
    assert [report["gathered"] for report in reports] == [["0.0", "1.0", "1.1"]] * 2
    assert [report["none gathered"] for report in reports] == [[], []]


def test_rows_are_balanced_by_length(reports):
    # 29 tokens with their prompts for 7: the 9 brings them nearest, and then nothing does.
    assert [report["shared out"] for report in reports] == [[[0, 7], [0, 5], [0, 4]], [[1, 3], [1, 2], [0, 9]]]
    assert [report["shared out as they are"] for report in reports] == [[[0, 9], [0, 7]], [[1, 10], [1, 7]]]
    assert [len(report["shared out to who has none"]) for report in reports] == [1, 2]


def test_rows_of_one_long_prompt_move_together(reports):
    assert [report["shared out by prompt"] for report in reports] == [[[0, 4]] * 2, [[1, 2], [0, 4], [0, 4]]]


@given(st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=4))
def test_work_is_balanced_as_far_as_moves_of_single_units_allow(costs):
    owners = balanced(costs)
    assert [len(own) for own in owners] == [len(own) for own in costs]
    loads = [0] * len(costs)
    for own, to in zip(costs, owners, strict=True):
        for cost, owner in zip(own, to, strict=True):
            loads[owner] += cost
    gap = max(loads) - min(loads)
    assert max(loads) <= max(map(sum, costs))
    held = [
        cost
        for own, to in zip(costs, owners, strict=True)
        for cost, owner in zip(own, to, strict=True)
        if owner == loads.index(max(loads))
    ]
    assert all(cost == 0 or cost >= gap for cost in held)


def test_processes_stop_together_if_all_episodes_failed(reports):
    errors = [report["all fail"] for report in reports]
    assert errors[0][0] == errors[1][0]
    assert "got 3 of 3 with errors, the first with KeyError: 'turns'" in errors[0][0]
    assert [cause for _, cause in errors] == ["KeyError('turns')"] * 2
    errors = [report["one has none and the other fails"] for report in reports]
    assert errors[0][0] == errors[1][0]
    assert [cause for _, cause in errors] == ["None", "KeyError('turns')"]
    assert [report["one fails"] for report in reports] == [None, None]


def test_a_single_process_generates_only_for_its_contexts():
    calls = []

    def generate(contexts):
        calls.append(list(contexts))
        return [Generation(ids=context) for context in contexts]

    ranks = SynchronizedSampler(generate, Accelerator(), together=True)
    assert [reply.ids for reply in ranks([(5,), (6, 7)])] == [(5,), (6, 7)]
    ranks.finish()
    assert calls == [[(5,), (6, 7)]]
    assert (ranks.all_max(4), ranks.rank_offset(4), ranks.gather(["a"])) == (4, 0, ["a"])


def test_log_probabilities_of_a_model_sharded_by_fsdp2_in_half_precision_are_not_rounded(micro_policy):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    keep_precision(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)))
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    add_fused_lm_head(model)
    ids = torch.arange(5, 35)[None]
    scored = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)), mp_policy=plugin.mixed_precision_policy)
        with torch.no_grad():
            found = log_probs(model, model, separate(ids, torch.ones_like(ids), scored, model), scored).logprobs
            logits = model(input_ids=ids).logits[:, :-1]
    finally:
        torch.distributed.destroy_process_group()
    assert logits.dtype == torch.bfloat16
    expected = logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_fsdp2_adds_each_pass_to_a_gradient_in_full_precision():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    model = torch.nn.Linear(1, 1, bias=False)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)), mp_policy=plugin.mixed_precision_policy)
        model.set_requires_gradient_sync(False)  # as accelerate in all slices of an update but the last
        exchange_each_pass(model)
        for _ in range(300):
            model(torch.ones(1, 1)).sum().backward()
        gradient = model.weight.grad.full_tensor()
    finally:
        torch.distributed.destroy_process_group()
    assert (gradient.item(), gradient.dtype) == (300.0, torch.float32)  # in bfloat16 it stays at 256
