"""Rollouts of a policy that sees, through vLLM: every context is read with its own images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_credit import make
from hf_credit.loading import load_policy
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import Chat, EnvironmentInteraction
from hf_credit.tasks.rows import starts_of
from hf_credit.trainers.micro import init_scripted_policy

pytest.importorskip("torchvision", reason="vLLM's LLaVA imports it")
pytestmark = pytest.mark.vllm

TEMPERATURE, TOLERANCE = 0.8, 1e-4  # as of text


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny policy that sees, with an output layer of its own (`untied_policy`)."""
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=4, notation="picture"), instructions=False)
    starts, folder = starts_of(interaction.tasks("train", 64), "train"), tmp_path_factory.mktemp("seeing") / "policy"
    config = MicroConfig(layers=1, episodes=64, epochs=2, batch_rows=8)
    init_scripted_policy(interaction, interaction.scripted_player(0.8), starts, folder, config, callbacks=[])
    model, _ = load_policy(str(folder))
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = False
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["server", "colocate"])
def settings(request: pytest.FixtureRequest, seeing: Path, serve: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    if request.param == "colocate":
        yield {"vllm_mode": "colocate", "vllm_max_model_length": 2048}
        return
    for server in serve(seeing, {}, ("--max_model_len", "2048")):
        yield {"vllm_mode": "server", "vllm_server_base_url": server.url}


def test_log_probabilities_are_those_of_the_policy_with_these_images_and_no_others(
    seeing: Path, settings: dict[str, Any], played: Callable[..., Any], tmp_path: Path
) -> None:
    updates = played(seeing, tmp_path, notation="picture", max_steps=2, **settings)
    model, processor = load_policy(str(seeing))
    media = Chat(processor).media
    for update in updates:
        model.load_state_dict(update["weights"])

        def largest(shift: int, decisions: list[dict[str, Any]] = update["decisions"]) -> float:
            """The largest difference to what vLLM reported, with the images of the `shift`-th decision from each."""
            found = []
            for place, one in enumerate(decisions):
                shown = decisions[(place + shift) % len(decisions)]["images"]
                if len(shown) != len(one["images"]):
                    continue
                ids, reply = torch.tensor([one["context"] + one["reply"]]), torch.tensor(one["reply"])
                with torch.no_grad():
                    logits = model(input_ids=ids, **media.inputs(model, ids, [shown])).logits[0]
                logits = logits[len(one["context"]) - 1 : -1].clone()
                logits[:, media.unsampled] = -torch.inf
                own = (logits / TEMPERATURE).log_softmax(-1).gather(1, reply[:, None])[:, 0]
                found.append((own - torch.tensor(one["logprobs"])).abs().max().item())
            return max(found)

        assert max(len(one["images"]) for one in update["decisions"]) > 1
        assert largest(0) < TOLERANCE
        assert largest(1) > 10 * TOLERANCE
