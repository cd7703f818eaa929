"""The blocks of docs/other-trainers.md run in other trainers, and give what our methods give on the same episodes.

TRL and OpenEnv are the installed ones. verl and verifiers are too heavy for the tests' environment: without the mark
`trainers` their parts are written here as verl 0.9.1 and verifiers 0.4.0 publish them; `make test-trainers` has both.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from typer.main import get_command

from hf_credit.cli import app
from hf_credit.credit import turn_rewards, turns_of_tokens
from hf_credit.methods.gigpo import GroupInGroup
from hf_credit.methods.turn_baselines import AliveMean
from hf_credit.methods.turn_credit import SpreadDeltas
from hf_credit.policies.micro import MicroConfig, build_model
from hf_credit.rollouts import LocalContext, by_episode

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "other-trainers.md").read_text(encoding="utf-8")
PUBLISHED_OR_INSTALLED = ["published", pytest.param("installed", marks=pytest.mark.trainers)]

# Of two tasks: the tokens of each reply, the scores of turns, the states before them, and the outcome.
EPISODES: list[dict[str, Any]] = [
    {"task": "b", "tokens": [2, 1], "scores": [0.5, 0.75], "states": [7, 8], "outcome": 1.0},
    {"task": "b", "tokens": [3], "scores": [0.25], "states": [7], "outcome": 0.0},
    {"task": "a", "tokens": [1, 1, 2], "scores": [0.0, None, 1.0], "states": [7, 8, 7], "outcome": 1.5},
    {"task": "b", "tokens": [1, 4], "scores": [0.25, 0.5], "states": [7, 9], "outcome": 0.5},
    {"task": "a", "tokens": [2, 2], "scores": [0.5], "states": [7, 7], "outcome": 0.25},
]


def blocks(heading: str) -> str:
    """The Python of a section of the page."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))


def names(heading: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(blocks(heading), heading, "exec"), found)
    return found


def of_ours(hand: Any, estimator: Any, episodes: list[dict[str, Any]]) -> Any:
    """The credit of each reply."""

    def decision(one: dict[str, Any], turn: int) -> Any:
        score = one["scores"][turn] if turn < len(one["scores"]) else None
        return hand.decision(context=one["states"][turn], tokens=one["tokens"][turn], reward=score or 0.0)

    played = [
        hand.episode(*(decision(one, turn) for turn in range(len(one["tokens"]))), outcome=one["outcome"])
        for one in episodes
    ]
    owners = [int(one["task"] == "b") for one in episodes]
    return by_episode(played, estimator(hand.collected(*played, instances=owners), LocalContext(), None).decisions)


def tokens_of(one: dict[str, Any], values: list[Any]) -> list[Any]:
    """A value for each token of an episode: that of its reply, 0 for the two tokens between replies."""
    return [each for size, value in zip(one["tokens"], values, strict=True) for each in (*[value] * size, 0, 0)][:-2]


def mask_of(one: dict[str, Any]) -> list[int]:
    return tokens_of(one, [1] * len(one["tokens"]))


def test_every_block_has_at_most_25_lines():
    found = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 6
    assert max(len([line for line in block.splitlines() if line]) for block in found) <= 25


# What the blocks have in common


def test_a_turn_is_a_run_of_sampled_tokens():
    assert turns_of_tokens(torch.tensor([[1, 1, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]])).tolist() == [
        [0, 0, -1, 1, -1],
        [-1, 0, -1, -1, 1],
        [-1, -1, -1, -1, -1],
    ]
    with pytest.raises(ValueError, match="sampled must be true or false"):
        turns_of_tokens(torch.tensor([[2]]))


@pytest.mark.parametrize(
    ("scores", "turns", "rewards"),
    [
        ([0.5, 0.25], None, [0.5, 0.5]),
        ([], 2, [0.0, 1.0]),
        ([0.5, None], 3, [0.5, 0.0, 0.5]),
        ([0.5, 0.5, 7.0], 2, [0.5, 0.5]),
        ([3.0], 0, []),
    ],
)
def test_the_last_turn_has_what_is_missing_to_the_outcome(scores, turns, rewards):
    assert turn_rewards(scores, 1.0, turns) == rewards


# verl


class PublishedVerl:
    """What the block uses of verl 0.9.1: `core_algos.py`, `compute_advantage` of `ray_trainer.py`, and the queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registered: dict[str, Any] = {}

        class PPOTrainer:
            config: Any

            def _compute_advantage(self, batch: Any, metrics: Any) -> Any:
                fields = queue.kv_batch_get(batch.keys, batch.partition_id, ["uid", "response_mask", "rm_scores"])
                padded = {
                    name: torch.nn.utils.rnn.pad_sequence(fields[name], batch_first=True)
                    for name in ("response_mask", "rm_scores")
                }
                advantages, _ = registered[self.config.algorithm.adv_estimator](
                    token_level_rewards=padded["rm_scores"],
                    response_mask=padded["response_mask"],
                    config=self.config.algorithm,
                    index=np.array(fields["uid"], dtype=object),
                )
                return advantages

        class Fields(list[Any]):
            def tolist(self) -> list[Any]:
                return self

        def kv_batch_get(keys: Any, partition_id: Any, select_fields: Any) -> Any:
            return {name: Fields(row[name] for row in self.rows) for name in select_fields}

        self.trainer: Any = PPOTrainer
        queue = module("transfer_queue", kv_batch_get=kv_batch_get)
        core = module(
            "verl.trainer.ppo.core_algos", register_adv_est=lambda name: lambda do: registered.update({name: do})
        )
        published = [queue, core, module("verl.trainer.ppo.v1", PPOTrainer=PPOTrainer)]
        published += [module("verl"), module("verl.trainer"), module("verl.trainer.ppo", core_algos=core)]
        for one in published:
            monkeypatch.setitem(sys.modules, one.__name__, one)

    def advantages(self, rows: list[dict[str, Any]], name: str) -> Any:
        """What the trainer stores for each row."""
        self.rows = rows
        trainer = self.trainer()
        trainer.config = SimpleNamespace(algorithm=SimpleNamespace(adv_estimator=name))
        batch = SimpleNamespace(keys=list(range(len(rows))), partition_id="train")
        return trainer._compute_advantage(batch, metrics={})


class InstalledVerl:
    """verl's own trainer, without its workers; the queue is here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = importlib.import_module
        self.v1 = self.module("verl.trainer.ppo.v1")
        self.queue = self.module("transfer_queue")
        self.patch = monkeypatch
        before = self.v1.PPOTrainer._compute_advantage
        monkeypatch.setattr(self.v1.PPOTrainer, "_compute_advantage", before)
        monkeypatch.setattr(self.module("verl.trainer.ppo.core_algos"), "ADV_ESTIMATOR_REGISTRY", {})

    def advantages(self, rows: list[dict[str, Any]], name: str) -> Any:
        """What the trainer stores for each row."""
        stored = self.module("verl.utils.tensordict_utils").list_of_dict_to_tensordict(rows)
        put: dict[str, Any] = {}
        config = {
            "algorithm": {"adv_estimator": name, "gamma": 1.0, "lam": 1.0, "use_kl_in_reward": False},
            "actor_rollout_ref": {"rollout": {"n": 2}},
        }
        select = lambda keys, partition_id, select_fields: stored.select(*select_fields, strict=False)  # noqa: E731
        self.patch.setattr(self.queue, "kv_batch_get", select)
        self.patch.setattr(self.queue, "kv_batch_put", lambda fields, **where: put.update(fields.items()))
        trainer = object.__new__(self.module("verl.trainer.ppo.v1.trainer_sync").PPOTrainerSync)
        trainer.config = self.module("omegaconf").OmegaConf.create(config)
        keys = [f"{row['uid']}_{number}_0" for number, row in enumerate(rows)]
        batch = self.queue.KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id="train")
        trainer._compute_advantage(batch, metrics={})
        return put["advantages"].to_padded_tensor(0.0)


def module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    made.__path__ = []
    vars(made).update(contents)
    return made


@pytest.fixture(params=PUBLISHED_OR_INSTALLED)
def verl(request, monkeypatch):
    return (PublishedVerl if request.param == "published" else InstalledVerl)(monkeypatch)


@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        ("alive_baseline", AliveMean()),
        ("gigpo", GroupInGroup(anchor="context")),
        ("turn_credit", SpreadDeltas()),
    ],
)
def test_verls_trainer_gets_our_advantages(hand, verl, name, estimator):
    rows = []
    for one in EPISODES:
        mask = mask_of(one)
        rewards = torch.zeros(len(mask))
        rewards[-1] = one["outcome"]
        carried = {"turn_scores": one["scores"], "tool_rewards": [], "states": one["states"]}
        rows.append(
            {"uid": one["task"], "response_mask": torch.tensor(mask), "rm_scores": rewards, "extra_fields": carried}
        )
    # verl fills a batch up with a copy of its first row that has no token and no reward.
    empty = {"uid": "pad", "response_mask": torch.tensor([0]), "rm_scores": torch.tensor([0.0])}
    rows.append({**rows[0], **empty})
    names("verl")
    found = verl.advantages(rows, name)
    assert found.dtype == torch.float32
    ours = of_ours(hand, estimator, EPISODES)
    expected = [*(tokens_of(one, own) for one, own in zip(EPISODES, ours, strict=True)), [0.0]]
    for row, own in zip(found.tolist(), expected, strict=True):
        assert row == pytest.approx([*own, *[0.0] * (len(row) - len(own))], abs=1e-6)


# verifiers


def published_trace(one: dict[str, Any], parents: list[int | None], nodes: list[dict[str, Any]]) -> Any:
    """A trace with the fields of verifiers 0.4.0 that the block uses."""
    made = [
        SimpleNamespace(**node, parent=parent, advantages=None) for node, parent in zip(nodes, parents, strict=True)
    ]
    kind = {"task": SimpleNamespace(key=one["task"]), "agent": SimpleNamespace(name="agent")}
    return SimpleNamespace(nodes=made, reward=one["outcome"], ok=True, **kind)


def installed_trace(one: dict[str, Any], parents: list[int | None], nodes: list[dict[str, Any]]) -> Any:
    vf = importlib.import_module("verifiers.v1")
    made = [
        vf.MessageNode(
            parent=parent,
            message=vf.AssistantMessage(content="x") if node["sampled"] else vf.UserMessage(content="x"),
            token_ids=[1] * len(node["mask"]),
            **node,
        )
        for node, parent in zip(nodes, parents, strict=True)
    ]
    task = vf.TraceTask(type="Task", data=vf.TaskData(idx=0), key=one["task"])
    trace = vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=made, ok=True)
    trace.record_reward("score", one["outcome"])
    return trace


@pytest.fixture(params=PUBLISHED_OR_INSTALLED)
def make_trace(request):
    return published_trace if request.param == "published" else installed_trace


def test_traces_of_verifiers_have_our_advantages_on_all_branches(hand, make_trace):
    traces = []
    for one in EPISODES:
        nodes: list[dict[str, Any]] = [{"sampled": False, "mask": [False]}]
        for size in one["tokens"]:
            nodes += [{"sampled": True, "mask": [False, *[True] * size]}, {"sampled": False, "mask": [False]}]
        parents = [None, *range(len(nodes) - 1)]
        if one is EPISODES[2]:
            parents[5] = 2  # the third reply follows the first one: a second branch
        traces.append(make_trace(one, parents, nodes))
    failed = make_trace({"task": "a", "outcome": 9.0}, [None], [{"sampled": True, "mask": [True]}])
    failed.ok = False
    names("verifiers")["assign_advantages"]([*traces, failed])

    ours = of_ours(hand, AliveMean(), [{**one, "scores": []} for one in EPISODES])
    for trace, one, own in zip(traces, EPISODES, ours, strict=True):
        found = [node.advantages for node in trace.nodes if node.sampled]
        assert found == [pytest.approx([value] * size) for size, value in zip(one["tokens"], own, strict=True)]
    assert failed.nodes[0].advantages is None
    assert all(node.advantages is None for node in traces[0].nodes if not node.sampled)
    if make_trace is installed_trace:
        first, second, third = ours[2]
        middle, end = (branch.advantages for branch in traces[2].branches)
        assert middle == pytest.approx([0, 0, first, 0, 0, second, 0])
        assert end == pytest.approx([0, 0, first, 0, 0, third, third, 0])


# OpenEnv


def test_openenvs_rubric_gives_our_advantages_as_step_rewards(hand):
    from openenv.core.env_server.types import Observation

    rubric_of = names("OpenEnv")["TurnCreditRubric"]
    played = [[0.0, 0.5, 0.25], [0.25], [0.0, 1.0]]
    group: list[Any] = []
    for scores in played:
        rubric = rubric_of(group)
        for step, score in enumerate(scores):
            done = step + 1 == len(scores)
            reward = rubric("an action", Observation(done=done, metadata={"score": score}))
            assert reward == (score if done else 0.0)
    unplayed = rubric_of(group)
    episodes = [hand.episode(*(hand.decision(reward=score) for score in own), outcome=own[0]) for own in played]
    estimator = SpreadDeltas(turn_scores="score")
    ours = by_episode(episodes, estimator(hand.collected(*episodes), LocalContext(), None).decisions)
    for rubric, own in zip(group, ours, strict=False):
        assert rubric.compute_step_rewards() == pytest.approx(own)
    assert unplayed.compute_step_rewards() == []


# TRL

PLAYED = [EPISODES[0], EPISODES[1], EPISODES[2], EPISODES[4]]  # a group of TRL is side by side


class Replayed(GRPOTrainer):
    """TRL's trainer, whose model has said what is in `PLAYED`."""

    def _generate(self, prompts):
        masks, said = list(map(mask_of, PLAYED)), ["said"] * len(PLAYED)
        return [[1]] * len(prompts), [[2] * len(mask) for mask in masks], masks, said, None, {}, None, None


def test_trls_trainer_trains_on_our_advantages(hand, tmp_path):
    class World(SimpleNamespace):
        def reset(self, **row: Any) -> None:
            self.turn_scores = list(self.scores)

    seen = []

    mixin: Any = names("TRL's `GRPOTrainer`")["TurnCredit"]

    class Trainer(mixin, Replayed):
        def _compute_loss(self, model, inputs):
            seen.append(inputs["advantages"])
            return super()._compute_loss(model, inputs)

    spelling = Tokenizer(models.WordLevel({"<end>": 0, "go": 1, "on": 2}, unk_token="<end>"))
    spelling.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=spelling, eos_token="<end>", pad_token="<end>", padding_side="left"
    )
    args = GRPOConfig(
        output_dir=str(tmp_path),
        num_generations=2,
        per_device_train_batch_size=4,
        max_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
    )

    def outcome(completions: list[Any], **columns: Any) -> list[float | None]:
        return [one["outcome"] for one in PLAYED]

    trainer: Any = Trainer(
        build_model(tokenizer, MicroConfig(hidden_size=16, layers=1, heads=2)),
        outcome,
        args,
        train_dataset=Dataset.from_dict({"prompt": ["go", "on"]}),
        processing_class=tokenizer,
    )
    trainer.environments = [World(scores=one["scores"]) for one in PLAYED]
    before = [one.clone() for one in trainer.model.parameters()]
    trainer.train()
    assert any(not torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True))
    # TRL shuffles the rows of a generation before the loss.
    ours = of_ours(hand, AliveMean(), PLAYED)
    expected = [tokens_of(one, own) for one, own in zip(PLAYED, ours, strict=True)]
    padded = [[*own, *[0.0] * (seen[0].shape[1] - len(own))] for own in expected]
    for row, own in zip(sorted(seen[0].tolist()), sorted(padded), strict=True):
        assert row == pytest.approx(own, abs=1e-6)


# Chat logs


def test_the_logs_of_the_page_are_credited_like_episodes(hand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names("Chat logs")
    (command,) = re.findall(r"^hf-credit (credit .*)$", PAGE, re.MULTILINE)
    get_command(app).main(command.split(), standalone_mode=False)
    rows = [json.loads(line) for line in Path("credit.jsonl").read_text().splitlines()]
    decisions = [[hand.decision(), hand.decision()], [hand.decision()], [hand.decision()]]
    outcomes = [1.0, 0.0, 1.0]
    episodes = [hand.episode(*own, outcome=value) for own, value in zip(decisions, outcomes, strict=True)]
    ours = by_episode(episodes, AliveMean()(hand.collected(*episodes), LocalContext(), None).decisions)
    assert [row["credit"] for row in rows] == [value for own in ours for value in own]
