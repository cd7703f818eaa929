"""Critics of an asynchronous training: what they predict and learn is what it is in a synchronous one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import async_critics
import pytest
import torch
from async_critics import Given, KeepCritics, Uneven, given, trained
from async_update import KeepGradients
from datasets import Dataset
from launched import launch
from peft import LoraConfig
from small_runs import ON_A_PROCESSOR
from transformers import AutoTokenizer, TrainerCallback

from hf_credit import CreditConfig, CreditTrainer, make, methods
from hf_credit.critics.saved import has_critic
from hf_credit.methods import Method
from hf_credit.methods.cvt import replacement_of
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts import Chat, EnvironmentInteraction, Generation
from hf_credit.trainers.asynchronous.worker import Worker
from hf_credit.trainers.callbacks import CreditCallback, EpisodeCallback

UPDATES = 3
LORA = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
SAVED: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
TAUGHT: dict[str, Any] = {"critic_learning_rate": 1e-3, "critic_clip": None}


class KeepPlayed(EpisodeCallback):
    """Keeps what was collected, with the policy's own log-probabilities, as a server would have told them."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def on_episodes(self, trainer: Any, collected: Any, advantages: Any) -> None:
        rollouts = []
        for one in collected.rollouts:
            told = trainer.decision_logprobs(one.episode.decisions)
            decisions = [replace(d, logprobs=own) for d, own in zip(one.episode.decisions, told, strict=True)]
            rollouts.append(replace(one, episode=replace(one.episode, decisions=tuple(decisions))))
        self.batches.append(replace(collected, rollouts=tuple(rollouts)))


def synchronous(
    policy: Path,
    output: Path,
    method: Method,
    peft_config: Any = None,
    interaction: Any = None,
    rows: Any = None,
    **changed: Any,
) -> Any:
    """A `CreditTrainer` after updates, with what it played in `played`."""
    values = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "max_steps": UPDATES,
        "instances_per_update": 4,
        "per_device_train_batch_size": 4,
        "max_completion_length": 12,
        "max_grad_norm": 1e9,
        "learning_rate": 1e-3,
        "beta": 0.0,
        "top_p": 1.0,
        "lr_scheduler_type": "constant",
        **TAUGHT,
        **changed,
    }
    keep, played = KeepGradients(), KeepPlayed()
    trainer: Any = CreditTrainer(
        str(policy),
        interaction or Uneven(),
        CreditConfig(**values),
        rows or Dataset.from_list([{"seed": seed} for seed in range(16)]),
        method=method,
        callbacks=[keep, played],
        peft_config=peft_config,
    )
    critics = KeepCritics(trainer)
    trainer.train()
    trainer.kept, trainer.kept_critics, trainer.played = keep.kept, critics.gradients, played.batches
    return trainer


def assert_close(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    """The same gradients, element by element, relative to the largest."""
    assert len(found) == len(wanted) > 0
    for ours, theirs in zip(found, wanted, strict=True):
        largest = max(value.abs().max().item() for value in theirs.values())
        assert largest > 1e-4
        for name, value in theirs.items():
            assert (ours[name] - value).abs().max().item() <= tolerance * largest, name


def assert_same_log(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """The same metrics of critics in each update."""
    for ours, theirs in zip(found, wanted, strict=False):
        names = [name for name in theirs if name.partition("/")[0] in ("critic", "outcome", "belief")]
        assert bool(names) == ("reward" in theirs)
        for name in names:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("peft_config", [None, LORA], ids=["a model of its own", "an adapter next to the policy's"])
def test_policy_and_critic_learn_what_they_learn_from_the_same_rollouts_synchronously(
    micro_policy_append: Path, tmp_path: Path, peft_config: Any
) -> None:
    method = methods.make("ppo", lam=0.9)
    wanted = synchronous(micro_policy_append, tmp_path / "one", method, peft_config)
    worker = given(micro_policy_append, wanted.played, method)
    kwargs = {"peft_config": peft_config}
    found = trained(micro_policy_append, tmp_path / "two", worker, trainer_kwargs=kwargs, **TAUGHT)
    assert_close(found.kept, wanted.kept, 2e-5)
    assert_close(found.kept_critics, wanted.kept_critics, 2e-6)
    assert_same_log(found.state.log_history, wanted.state.log_history)
    assert found.state.log_history[2]["critic/explained_variance"] != 0


def test_two_processes_agree_learn_what_one_learns_and_one_goes_on(micro_policy_append: Path, tmp_path: Path) -> None:
    method = methods.make("ppo", lam=0.9)
    taught = {**TAUGHT, "critic_mini_batch_rows": 3}
    wanted = synchronous(micro_policy_append, tmp_path / "one", method, **taught)
    torch.save(wanted.played, tmp_path / "played.pt")
    settings = {"method": "ppo", "method_options": {"lam": 0.9}, **taught, **SAVED}
    launch(
        async_critics.__file__,
        *(micro_policy_append, tmp_path, tmp_path / "played.pt", json.dumps(settings)),
        processes=2,
        folder=tmp_path,
        environment={"ACCELERATE_USE_CPU": "true"},
    )
    main, other = (torch.load(tmp_path / f"process-{process}.pt", weights_only=False) for process in range(2))
    assert main["processes"] == 2
    for name, value in main["weights"]["critic"].items():
        assert torch.equal(other["weights"]["critic"][name], value), name
    assert_close(main["kept"], wanted.kept, 2e-5)
    assert_close(main["kept_critics"], wanted.kept_critics, 2e-5)
    assert_same_log(main["log"], wanted.state.log_history)

    checkpoint = tmp_path / "checkpoint-2"
    worker, changed = given(micro_policy_append, wanted.played, method), {"resume_with_changed": ["processes", "task"]}
    alone = trained(micro_policy_append, tmp_path / "alone", worker, checkpoint, **taught, **changed)
    assert alone.critics["critic"].weights.steps == 2  # of one update, by an optimizer of its own
    last, theirs = (
        next(one for one in reversed(log) if "reward" in one) for log in (alone.state.log_history, main["log"])
    )
    assert last["critic/explained_variance"] == pytest.approx(theirs["critic/explained_variance"], rel=1e-4)


class StopsAfterOne(TrainerCallback):
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = True


@pytest.mark.parametrize("peft_config", [None, LORA], ids=["a model of its own", "an adapter next to the policy's"])
def test_a_resumed_run_goes_on_with_critics_as_an_unbroken_one(
    micro_policy_append: Path, tmp_path: Path, peft_config: Any
) -> None:
    method = methods.make("ppo", lam=0.9)
    played = synchronous(micro_policy_append, tmp_path / "played", method).played
    settings = {**TAUGHT, **SAVED}

    def run(name: str, *callbacks: Any, resume: bool = False) -> Any:
        worker = given(micro_policy_append, played, method)
        kwargs = {"peft_config": peft_config, "callbacks": callbacks}
        return trained(micro_policy_append, tmp_path / name, worker, resume, kwargs, **settings)

    whole = run("whole")
    run("parted", StopsAfterOne())
    parted = run("parted", resume=True)
    assert parted.state.global_step == UPDATES
    assert len(parted.kept) == UPDATES - 1
    ours, theirs = ({**one.model.state_dict(), **one.critics["critic"].weights.parameters} for one in (parted, whole))
    most = 0.0 if peft_config is None else 1e-6  # TRL adds an adapter to the base to send it, and takes it away again
    assert all((ours[name] - value).abs().max().item() <= most for name, value in theirs.items())
    assert parted.critics["critic"].weights.steps == UPDATES
    assert_same_log(parted.state.log_history, whole.state.log_history)
    assert has_critic(tmp_path / "parted" / "checkpoint-3")


def test_critics_learn_alone_at_first(micro_policy_append: Path, tmp_path: Path) -> None:
    method = methods.make("ppo")
    wanted = synchronous(micro_policy_append, tmp_path / "one", method, critic_first_updates=2, weight_decay=0.1)
    worker = given(micro_policy_append, wanted.played, method)
    found = trained(micro_policy_append, tmp_path / "two", worker, critic_first_updates=2, weight_decay=0.1, **TAUGHT)
    assert [one.get("critics/alone") for one in found.state.log_history[:UPDATES]] == [1.0, 1.0, None]
    assert not any(value.any() for one in found.kept[:2] for value in one.values())
    assert_close(found.kept[2:], wanted.kept[2:], 2e-5)
    assert_close(found.kept_critics, wanted.kept_critics, 2e-6)
    assert found.state.log_history[0]["batch/row_tokens_max"] < found.state.log_history[2]["batch/row_tokens_max"]


def test_a_critic_that_fails_stops_the_run_with_its_error(micro_policy_append: Path, tmp_path: Path) -> None:
    """Of a name that the method does not declare."""
    method = replace(methods.make("ppo"), critics=("other",))
    played = synchronous(micro_policy_append, tmp_path / "one", methods.make("ppo"), max_steps=1).played
    with pytest.raises(ValueError, match="a method with a critic must be run with it, got none named 'critic'"):
        trained(micro_policy_append, tmp_path / "two", given(micro_policy_append, played, method))


class Reader:
    """Replies in the world of evidence: reads, verifies, thinks or answers, as the seed says."""

    seeded = True

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    def submit(self, role: str, context: Any, seed: Any) -> Future[Generation]:
        action = random.Random(f"{tuple(context)} {seed}").choice(["read 1", "verify 1", "think", "final 1"])
        ids = self.chat.reply_ids(f"<action>{action}</action>")
        found: Future[Generation] = Future()
        found.set_result(Generation(ids=ids, logprobs=[-0.5] * len(ids)))
        return found

    def logprobs(self, role: str, context: Any, ids: Any) -> Future[tuple[float, ...]]:
        found: Future[tuple[float, ...]] = Future()
        found.set_result((-1.0 / len(context),) * len(ids))
        return found


class KeepCollected(CreditCallback):
    def __init__(self) -> None:
        self.batches: list[Any] = []

    def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
        self.batches.append(collected)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with random weights that can read the world of evidence."""
    folder = tmp_path_factory.mktemp("reader")
    tokenizer = build_tokenizer(make("evidence"))
    build_model(tokenizer, MicroConfig(hidden_size=16, heads=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def playing(reader: Path, method: Method) -> Worker:
    """A worker in the world of evidence."""
    chat, rows = Chat(AutoTokenizer.from_pretrained(reader)), [{"seed": seed} for seed in range(8)]
    world = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    return Worker(world, method, chat, Reader(chat), rows, tasks_per_collection=2, concurrent_collections=2)


@pytest.mark.parametrize(
    ("name", "options"),
    [("mappo", {"group_size": 2}), ("active_replay", {}), ("replay_loo", {"value_assistance": 0.5, "budget": 8})],
)
def test_every_method_with_a_critic_trains(reader: Path, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    worker = playing(reader, methods.make(name, **options))
    trainer = trained(reader, tmp_path, worker, max_steps=3, instances_per_update=2, **TAUGHT)
    updates = [one for one in trainer.state.log_history if "reward" in one]
    assert all("critic/explained_variance" in one and one["endings/error"] == 0 for one in updates)
    assert trainer.critics["critic"].weights.steps == len(updates) == 3


def test_the_server_gives_the_probability_of_the_right_answer(reader: Path, tmp_path: Path) -> None:
    worker = playing(reader, methods.make("igpo", group_size=2))
    trainer = trained(reader, tmp_path, worker, max_steps=3, instances_per_update=2)
    updates = [one for one in trainer.state.log_history if "reward" in one]
    assert len(updates) == 3
    assert all(-1 < one["answer/logprob"] < 0 and one["endings/error"] == 0 for one in updates)


def test_collectors_ask_critics_and_critics_of_every_kind_learn_as_in_synchronous_training(
    reader: Path, tmp_path: Path
) -> None:
    options: Any = {"group_size": 2, "steps": 2.0, "branches": 1, "refresh_every": 1}
    method = methods.make("constrained_counterfactual", **options)
    worker, keep = playing(reader, method), KeepCollected()
    settings = {**TAUGHT, "learning_rate": 0.0, "max_steps": 2, "instances_per_update": 2}
    found = trained(reader, tmp_path / "two", worker, trainer_kwargs={"callbacks": [keep]}, **settings)
    assert any(replacement_of(one) for batch in keep.batches for one in batch.rollouts if not one.trained)

    again = replace(method, collector=Given(keep.batches))
    numbers = Dataset.from_list([{"number": number} for number in (0, 0, 1, 1)])
    wanted = synchronous(
        reader,
        tmp_path / "one",
        again,
        interaction=worker.interaction,
        rows=numbers,
        shuffle_dataset=False,
        per_device_train_batch_size=2,
        **settings,
    )
    assert set(found.critics) == {"critic", "outcome", "belief"}
    assert_same_log(found.state.log_history, wanted.state.log_history)
    for name, critic in wanted.critics.items():
        for weight, value in critic.weights.parameters.items():
            assert (found.critics[name].weights.parameters[weight] - value).abs().max() < 1e-5, (name, weight)
