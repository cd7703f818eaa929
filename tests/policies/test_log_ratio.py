"""A trained policy beside its reference judges moves; models with known logits give numbers to check by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from hf_credit import oracles
from hf_credit.oracles import Move
from hf_credit.policies.log_ratio import LogRatioJudge
from hf_credit.tasks import TaskSpec

Likes = Callable[..., str]


@pytest.fixture
def likes(tmp_path: Path, tokenizer: Any) -> Likes:
    """`likes(u=3)` is the folder of a model of which `u` has 3 times the probability of any other token, always."""

    def save(positions: int = 32, **weights: float) -> str:
        config = GPT2Config(
            vocab_size=len(tokenizer), n_positions=positions, n_embd=4, n_layer=1, n_head=1, tie_word_embeddings=False
        )
        model = GPT2LMHeadModel(config)
        with torch.no_grad():
            model.transformer.ln_f.weight.zero_()
            model.transformer.ln_f.bias.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
            model.lm_head.weight.zero_()
            for token, weight in weights.items():
                model.lm_head.weight[tokenizer.convert_tokens_to_ids(token), 0] = math.log(weight)
        folder = tmp_path / f"{positions}-{weights}"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return save


def move(reply: str, role: str = "user", said: str = "Where to?") -> Move:
    return Move(messages=[{"role": role, "content": said}], reply=reply, state=None, action=reply)


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_a_score_is_the_logistic_of_the_sum_over_the_tokens_of_the_move(likes: Likes, tokenizer: Any) -> None:
    judge, costs, size = (
        LogRatioJudge(policy=likes(u=3), reference=likes()),
        Counter[str](),
        len(tokenizer),
    )
    # "up" is u, p and the end of the turn: 3 / (size + 2), and twice 1 / (size + 2), where the reference has 1 / size.
    up = math.log(3) + 3 * math.log(size / (size + 2))
    down = 5 * math.log(size / (size + 2))
    found = judge.judge([move("up"), move("down"), move("up")], costs)
    assert found == pytest.approx([logistic(up), logistic(down), logistic(up)], abs=1e-6)
    assert found[0] > 0.5 > found[1]
    context = len("Where to?") + 3  # with the tokens of the role, of its end, and of the assistant's
    assert costs == {"tokens": 2 * (context + 3 + context + 5)}  # both models, equal moves once


def test_scale_mean_and_centre_are_those_of_the_formula(likes: Likes, tokenizer: Any) -> None:
    size = len(tokenizer)
    per_token = (math.log(3) / 3 + math.log(size / (size + 2)), math.log(size / (size + 2)))
    judge = LogRatioJudge(policy=likes(u=3), reference=likes(), aggregation="mean", scale=0.5, centred=True)
    half = (per_token[0] - per_token[1]) / 4
    found = judge.judge([move("up"), move("down")], Counter())
    assert found == pytest.approx([logistic(half), logistic(-half)], abs=1e-6)
    assert judge.score("Where to?", "up") == 0.5  # alone it is its own mean


def test_what_cannot_be_read_is_unknown_and_leaves_the_others_alone(likes: Likes) -> None:
    judge, costs = LogRatioJudge(policy=likes(u=3), reference=likes(positions=24)), Counter[str]()
    fits = move("u" * 11)  # 12 tokens before it, and the end
    found = judge.judge([move("up", role="tool"), move("u" * 12), fits, move("up")], costs)
    assert [one is None for one in found] == [True, True, False, False]
    assert costs["failed/unreadable"] == 2
    assert LogRatioJudge(policy=likes(u=3), reference=likes(), centred=True).judge([], costs) == []


def test_a_ratio_that_is_no_number_is_unknown(likes: Likes) -> None:
    folder = likes(u=math.inf)
    judge = LogRatioJudge(policy=folder, reference=folder, centred=True)
    assert judge.judge([move("up"), move("down", role="tool")], Counter()) == [None, None]


def test_the_template_has_the_arguments_in_the_policys_folder(likes: Likes, tokenizer: Any) -> None:
    folder, costs = likes(u=3), Counter[str]()
    Path(folder, "chat_template.jinja").write_text(tokenizer.chat_template + "{{ before }}", "utf-8")
    TaskSpec(task="sudoku", chat_template_kwargs={"before": "think"}).save(folder)
    LogRatioJudge(policy=folder, reference=likes()).judge([move("up")], costs)
    assert costs["tokens"] == 2 * (12 + len("think") + 3)


WITH_TOOLS = (
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_both_models_read_the_tools_of_a_move_by_the_template(likes: Likes) -> None:
    folder, costs = likes(u=3), Counter[str]()
    Path(folder, "chat_template.jinja").write_text(WITH_TOOLS, "utf-8")
    offered = Move(**{**vars(move("up")), "tools": [{"type": "function", "function": {"name": "look"}}]})
    LogRatioJudge(policy=folder, reference=likes()).judge([offered], costs)
    assert costs == {"tokens": 2 * (12 + len("look") + 3)}


def test_models_that_cannot_be_compared_are_refused_before_a_training(
    likes: Likes, micro_policy: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"^reference must have the policy's vocabulary, got .*; choose a model"):
        LogRatioJudge(policy=likes(), reference=str(micro_policy)).check()
    with pytest.raises(ValueError, match=r"^a model must be a folder with a saved policy"):
        LogRatioJudge(policy=str(tmp_path / "none"), reference=str(micro_policy)).check()


def test_its_description_makes_an_equal_one() -> None:
    judge = oracles.make("log_ratio", policy="a", reference="b", aggregation="mean")
    name, options = oracles.spec(judge)
    assert name == "log_ratio"
    assert oracles.make(name, **options) == judge
