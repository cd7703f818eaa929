"""A trainer's own rollouts through vLLM: each episode gets its own replies, from the present weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

pytestmark = pytest.mark.vllm

TEMPERATURE = 0.8
# Both compute in float32, in another order of sums; log-probabilities here reach down to -12.
TOLERANCE = 1e-4
# Beyond this the replies are those of another policy, or of another context.
DIFFERENT = 0.3

Play = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module", params=["server", "colocate"])
def backend(request: pytest.FixtureRequest, policy: Path, untied_policy: Path) -> tuple[Path, dict[str, Any]]:
    """The policy and the settings of a run through each of vLLM's modes."""
    if request.param == "server":
        url = request.getfixturevalue("server").url
        return untied_policy, {"vllm_mode": "server", "vllm_server_base_url": url}
    return policy, {"vllm_mode": "colocate", "vllm_max_model_length": 1024}


@pytest.fixture(scope="module", params=["append", "current"])
def updates(
    request: pytest.FixtureRequest,
    backend: tuple[Path, dict[str, Any]],
    played: Play,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[dict[str, Any]]:
    """Three sampled updates, each of which changes the policy by far more than `TOLERANCE`."""
    policy, settings = backend
    return played(policy, tmp_path_factory.mktemp("played"), history=request.param, max_steps=3, **settings)


@pytest.fixture
def model(backend: tuple[Path, dict[str, Any]]) -> PreTrainedModel:
    """The policy in transformers, for weights to be loaded into."""
    return AutoModelForCausalLM.from_pretrained(backend[0]).eval()


@torch.no_grad()
def logprobs(model: PreTrainedModel, context: list[int], reply: list[int]) -> torch.Tensor:
    """The log-probability of each token of a reply, from one forward pass without batch or padding."""
    logits = model(input_ids=torch.tensor([context + reply])).logits[0, len(context) - 1 : -1]
    return (logits / TEMPERATURE).log_softmax(-1).gather(1, torch.tensor(reply)[:, None])[:, 0]


def differences(model: PreTrainedModel, decisions: list[dict[str, Any]]) -> torch.Tensor:
    """The largest difference of each decision between what vLLM reported and what the policy says."""
    return torch.stack(
        [
            (logprobs(model, each["context"], each["reply"]) - torch.tensor(each["logprobs"])).abs().max()
            for each in decisions
        ]
    )


def test_log_probabilities_are_those_of_the_present_policy(
    updates: list[dict[str, Any]], model: PreTrainedModel
) -> None:
    assert len(updates) == 3
    for update in updates:
        model.load_state_dict(update["weights"])
        assert differences(model, update["decisions"]).max() < TOLERANCE


def test_log_probabilities_tell_the_policy_from_one_with_half_its_weights(
    updates: list[dict[str, Any]], model: PreTrainedModel
) -> None:
    for update in updates:
        model.load_state_dict({name: 0.5 * value for name, value in update["weights"].items()})
        assert differences(model, update["decisions"]).median() > DIFFERENT


def test_log_probabilities_tell_one_context_from_another(
    updates: list[dict[str, Any]], model: PreTrainedModel
) -> None:
    update = updates[0]
    model.load_state_dict(update["weights"])
    contexts = [each["context"] for each in update["decisions"]]
    assert len({tuple(context) for context in contexts}) >= 12
    others = [
        {**each, "context": other}
        for each, other in zip(update["decisions"], [*contexts[1:], contexts[0]], strict=True)
        if each["context"] != other
    ]
    assert differences(model, others).median() > DIFFERENT


def test_the_trainer_sees_no_drift(updates: list[dict[str, Any]]) -> None:
    for update in updates:
        assert 0 < update["metrics"]["sampler/logprob_difference_max"] < TOLERANCE


def test_every_context_gets_its_own_greedy_reply(
    backend: tuple[Path, dict[str, Any]], played: Play, model: PreTrainedModel, tmp_path: Path
) -> None:
    policy, settings = backend
    (update,) = played(policy, tmp_path, top_k=1, **settings)
    decisions = update["decisions"]
    model.load_state_dict(update["weights"])
    for each in decisions:
        greedy = model.generate(torch.tensor([each["context"]]), do_sample=False, max_new_tokens=12)[0]
        assert each["reply"] == greedy[len(each["context"]) :].tolist()
    # A mix-up would show: hardly any two contexts have the same answer.
    assert len({tuple(each["reply"]) for each in decisions}) > len(decisions) / 2
