"""The results of all five methods: published, loaded by clients that know nothing of this library, and resumed."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from small_runs import ON_A_PROCESSOR
from transformers import TrainerCallback

from hf_credit import (
    ConstrainedCounterfactualConfig,
    ConstrainedCounterfactualTrainer,
    CounterfactualGRPOConfig,
    CounterfactualGRPOTrainer,
    ReplayLOOConfig,
    ReplayLOOTrainer,
    TruncatedPPOConfig,
    TruncatedPPOTrainer,
    VerifiableProcessConfig,
    VerifiableProcessTrainer,
    make,
)
from hf_credit.collaborations.hinted_relay import hinted_relay
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.hub import (
    EpisodeSet,
    fetch,
    load_episodes,
    load_tasks,
    publish_checkpoint,
    publish_environment,
    publish_episode_folder,
    publish_metric,
    publish_tasks,
    save_episodes,
)
from hf_credit.oracles.evidence_play import EvidenceOracle
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import EnvironmentInteraction, RolloutRequest, by_episode
from hf_credit.rollouts.capabilities import evaluated
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.callbacks import CreditCallback
from hf_credit.trainers.micro import init_scripted_policy
from hf_credit.trainers.recording import RunRecorder
from local_hub.running import Served, client_environment

SETTINGS: dict[str, Any] = {
    **ON_A_PROCESSOR,
    "instances_per_update": 2,
    "per_device_train_batch_size": 2,
    "max_steps": 3,
    "max_completion_length": 4,
    "temperature": 5.0,
    "top_p": 1.0,
    "top_k": 0,
    "learning_rate": 1e-2,
    "warmup_steps": 0,
    "save_strategy": "steps",
    "save_steps": 1,
}
LORA = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages differ in worth."""
    return sum(map(ord, text)) % 5 / 4


def vpr(policies: Policies, **changed: Any) -> Any:
    own = {"history": "current", "instructions": False, "temperature": 1.0, "max_completion_length": 12}
    args = VerifiableProcessConfig(**{**SETTINGS, **own, **changed})
    return VerifiableProcessTrainer(str(policies.sudoku), make("sudoku", size=4, blanks=4), args)


class Uneven(EnvironmentInteraction):
    """Sudoku whose outcome depends on the digits filled in, so that a policy that never succeeds learns."""

    def outcome(self, state: Any) -> float:
        return sum(place * ord(cell) for place, cell in enumerate(state.world.cells, state.turns)) % 5 / 4

    def spec(self) -> dict[str, Any]:
        return EnvironmentInteraction(self.environment, self.history, self.instructions, self.max_turns).spec()


def t3(policies: Policies, **changed: Any) -> Any:
    game = Uneven(make("sudoku", size=4, blanks=4), history="current", instructions=False, max_turns=3)
    rows = Dataset.from_list([{"seed": seed} for seed in range(8)])
    own = {"truncation": "random", "truncation_options": {"probability": 0.3}, "max_completion_length": 12}
    args = TruncatedPPOConfig(**{**SETTINGS, **own, "temperature": 1.0, **changed})
    return TruncatedPPOTrainer(str(policies.sudoku), game, args, rows)


def c3(policies: Policies, **changed: Any) -> Any:
    team = relay(size=4)
    team.scorer = uneven  # type: ignore[attr-defined]
    roles = {"role_adapters": ["reasoner", "actor"], "max_context_tokens": None, "max_completion_length": 2}
    rows = Dataset.from_list([relay_task(secret, shift, size=4) for secret in (1, 2) for shift in (1, 2, 3)])
    args = ReplayLOOConfig(**{**SETTINGS, **roles, **changed})
    return ReplayLOOTrainer(str(policies.sudoku), team, args, rows, peft_config=LORA)


def ccpo(policies: Policies, **changed: Any) -> Any:
    team = hinted_relay(4)
    team.scorer = uneven  # type: ignore[attr-defined]
    own = {"group_size": 3, "min_samples": 1, "switch_every": 1, "max_context_tokens": None}
    args = CounterfactualGRPOConfig(**{**SETTINGS, **own, "max_completion_length": 2, **changed})
    return CounterfactualGRPOTrainer(str(policies.sudoku), team, args, team.tasks("train", 8), peft_config=LORA)


def cvt(policies: Policies, **changed: Any) -> Any:
    played = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    own = {"group_size": 2, "steps": 1.0, "branches": 1, "trust_region_top": 32, "trust_region_wide": 32}
    reading = {"max_completion_length": 10, "max_context_tokens": 512, "rows_per_forward": 32, "temperature": 1.0}
    args = ConstrainedCounterfactualConfig(**{**SETTINGS, **own, **reading, **changed})
    return ConstrainedCounterfactualTrainer(str(policies.evidence), played, args, played.tasks("train", 8))


METHODS: dict[str, Callable[..., Any]] = {"vpr": vpr, "c3": c3, "t3": t3, "ccpo": ccpo, "cvt": cvt}
METRIC_OF = {
    "vpr": "credit_fidelity",
    "c3": "context_variance",
    "t3": "cut_quality",
    "ccpo": "vote_contribution",
    "cvt": "constraint_violation",
}


class StopAfter(TrainerCallback):
    """Ends a run early, as a machine that is taken away does after its checkpoint."""

    def __init__(self, updates: int | None) -> None:
        self.updates = updates

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.updates:
            control.should_training_stop = control.should_save = True


class Keep(CreditCallback):
    """The episodes of the last update, with their credit."""

    def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
        credits = {
            decision.id: value
            for sample, values in zip(collected.trained, by_episode(collected.episodes, credit.decisions), strict=True)
            for decision, value in zip(sample.episode.decisions, values, strict=True)
        }
        self.episodes = EpisodeSet(
            episodes=tuple(collected.episodes),
            interaction=trainer.interaction,
            starts=tuple(
                RolloutRequest[Any](task={"instance": one.instance}, seed=place)
                for place, one in enumerate(collected.trained)
            ),
            credits={trainer.method.name: credits},
        )


@dataclass(frozen=True)
class Policies:
    """Tiny policies that the methods start from."""

    sudoku: Path
    evidence: Path


@pytest.fixture(scope="module")
def policies(hub: Served, micro_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Policies:
    """As their own Hub has them: an adapter is published for a model that others can load."""
    game = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    starts = [RolloutRequest[Any](task={"seed": seed}, seed=seed) for seed in range(48)]
    config = MicroConfig(hidden_size=32, layers=2, heads=2, episodes=48, epochs=8, batch_rows=16, learning_rate=8e-3)
    player = OraclePlayer(game.environment, EvidenceOracle(), config.quality)
    folder = init_scripted_policy(game, player, starts, tmp_path_factory.mktemp("evidence"), config)
    where, cache = {"endpoint": hub.url, "token": hub.token()}, tmp_path_factory.mktemp("cache")
    publish_checkpoint(micro_policy, "me/sudoku", **where)
    publish_checkpoint(folder, "me/evidence", **where)
    fetched = (fetch(f"me/{name}", repo_type="model", cache_dir=cache, **where) for name in ("sudoku", "evidence"))
    return Policies(*(one.folder for one in fetched))


def train(name: str, policies: Policies, output: Path, stop: int | None = None, **changed: Any) -> Any:
    resume = changed.pop("resume", None)
    trainer = METHODS[name](policies, output_dir=str(output), **changed)
    facts = {"command": "hf-credit train recipe.yaml", "paper": dict(trainer._paper)}
    trainer.add_callback(RunRecorder({"seed": trainer.args.seed}, facts))
    trainer.add_callback(StopAfter(stop))
    trainer.add_callback(Keep())
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@dataclass(frozen=True)
class Cut:
    """A run that ended early, and what it published."""

    trainer: Any
    folder: Path
    episodes: EpisodeSet
    token: str


@pytest.fixture(scope="module")
def cut(hub: Served, policies: Policies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cut]]:
    """`cut(method)`: a run that was pushed to `me/<method>` when it was cut; one for all tests."""
    token = hub.token()

    @functools.cache
    def run(name: str) -> Cut:
        pushing = {"push_to_hub": True, "hub_model_id": f"me/{name}", "hub_token": token, "hub_strategy": "end"}
        folder = tmp_path_factory.mktemp(name)
        trainer = train(name, policies, folder, stop=2, **pushing)
        trainer.push_to_hub()
        (keep,) = (one for one in trainer.callback_handler.callbacks if isinstance(one, Keep))
        return Cut(trainer, folder, keep.episodes, token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        yield run


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """Of the policy, its adapters and its critics, where it has any."""
    found = dict(trainer.model.state_dict())
    critic = getattr(trainer, "critic", None)
    if critic is not None and hasattr(critic, "state_dict"):
        found |= {f"critic.{name}": value for name, value in critic.state_dict().items()}
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_run_resumed_from_the_hub_ends_bitwise_as_one_undisturbed(
    name: str, cut: Callable[[str], Cut], hub: Served, policies: Policies, tmp_path: Path
) -> None:
    first = cut(name)
    undisturbed = train(name, policies, tmp_path / "whole", save_strategy="no")
    fetched = fetch(f"me/{name}", repo_type="model", endpoint=hub.url)
    assert not [path for path in fetched.files if Path(path).suffix in (".bin", ".pt", ".pth")]
    assert not [path for path, file in fetched.files.items() if first.token.encode() in file.read_bytes()]
    for path in first.folder.rglob("training_args.bin"):
        assert first.token.encode() not in path.read_bytes()
    resumed = train(
        name, policies, tmp_path / "other", resume=f"hub:me/{name}@{fetched.commit}", hub_token=first.token
    )
    before, expected, found = weights(first.trainer), weights(undisturbed), weights(resumed)
    assert found.keys() == expected.keys()
    assert [key for key, value in expected.items() if not torch.equal(value, found[key])] == []
    assert [key for key, value in expected.items() if not torch.equal(value, before[key])]  # the last update counts
    logged = [json.loads(line)["step"] for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(logged)) == [1, 2, 3]


# A client in an environment of its own: with the libraries that everybody has, and without this one.
CLIENT = """
import doctest, importlib.util, json, sys

assert importlib.util.find_spec("hf_credit") is None
from datasets import load_dataset
from huggingface_hub import hf_hub_download, list_repo_files, snapshot_download
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

methods, metrics = json.loads(sys.argv[1])
told = {}


def size(model, word):
    return float(sum(value.double().abs().sum() for name, value in model.state_dict().items() if word in name))


for method in methods:
    tasks = load_dataset(f"me/{method}-tasks")
    episodes = load_dataset(f"me/{method}-episodes", split="train")
    decisions = load_dataset(f"me/{method}-episodes", "decisions", split="train")
    files = list_repo_files(f"me/{method}")
    adapters = [name.rpartition("/")[0] for name in files if name.endswith("adapter_config.json")]
    sizes = {}
    for adapter in adapters:
        about = PeftConfig.from_pretrained(f"me/{method}", subfolder=adapter or None)
        model = AutoModelForCausalLM.from_pretrained(about.base_model_name_or_path, revision=about.revision)
        model = PeftModel.from_pretrained(model, f"me/{method}", **({"subfolder": adapter} if adapter else {}))
        sizes[adapter] = size(model, "lora")
    if not adapters:
        sizes = {"": size(AutoModelForCausalLM.from_pretrained(f"me/{method}"), "")}
    told[method] = {
        "tasks": {split: len(rows) for split, rows in tasks.items()},
        "episodes": len(episodes),
        "decisions": len(decisions),
        "credited": any(given for given in decisions["credits"]),
        "sizes": sizes,
        "template": bool(AutoTokenizer.from_pretrained(f"me/{method}").chat_template),
    }
space = snapshot_download("me/cvt-environment", repo_type="space")
told["space"] = open(f"{space}/openenv.yaml").read().splitlines()[1]
for name in metrics:
    card = open(hf_hub_download(f"me/{name}", "README.md", repo_type="space")).read()
    of_the_hub = card.replace(f'"./{name}"', f'"me/{name}"')
    examples = doctest.DocTestParser().get_doctest(of_the_hub, {}, name, None, 0)
    told[name] = doctest.DocTestRunner().run(examples)
print(json.dumps(told))
"""


def test_stock_clients_load_every_kind_of_artifact_of_every_method(
    cut: Callable[[str], Cut], hub: Served, without_us: Path, tmp_path: Path
) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    expected: dict[str, Any] = {}
    for name in METHODS:
        run = cut(name)
        spec = TaskSpec.of(evaluated(run.trainer.interaction))
        publish_tasks(spec, f"me/{name}-tasks", train=2, held_out=1, **where)
        save_episodes(tmp_path / name, run.episodes)
        publish_episode_folder(tmp_path / name, f"me/{name}-episodes", **where)
        publish_metric(METRIC_OF[name], f"me/{METRIC_OF[name]}", **where)
        if spec.has_prompts():
            played = evaluated(run.trainer.interaction).spec()
            publish_environment(played["task"], f"me/{name}-environment", options=played["task_options"], **where)
        expected[name] = {
            "tasks": {"train": 2, "test": 1},
            "episodes": len(run.episodes),
            "decisions": sum(len(episode.decisions) for episode in run.episodes),
            "credited": True,
            "sizes": pytest.approx(sizes(run.trainer), rel=1e-9),
            "template": True,
        }
        assert load_tasks(f"me/{name}-tasks", **where).spec == spec.complete()
        loaded = load_episodes(f"me/{name}-episodes", interaction=run.trainer.interaction, **where)
        assert loaded.episodes == run.episodes.episodes
        assert listed(loaded.credits) == listed(run.episodes.credits)
    asked = [list(METHODS), list(METRIC_OF.values())]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
    done = subprocess.run(
        [str(without_us), "-c", CLIENT, json.dumps(asked)],
        cwd=tmp_path,
        env={**kept, **client_environment(tmp_path, hub.url, where["token"])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for name in METRIC_OF.values():
        failed, attempted = told.pop(name)
        assert attempted
        assert not failed, done.stdout
    assert told.pop("space") == "name: evidence"
    assert told == expected


def sizes(trainer: Any) -> dict[str, float]:
    """The sums of the weights' sizes: of each adapter that is saved, by its folder, or of the whole model."""
    state = {name: float(value.double().abs().sum()) for name, value in trainer.model.state_dict().items()}
    adapters = {name: value for name, value in state.items() if "lora" in name}
    if not adapters:
        return {"": sum(state.values())}
    if not trainer.args.role_adapters:
        return {"": sum(adapters.values())}
    return {
        role: sum(value for name, value in adapters.items() if f".{role}." in name)
        for role in trainer.args.role_adapters
    }


def listed(credits: Any) -> Any:
    """The same whether the one token of a reply got its credit or the reply."""
    return {
        name: {one: None if value is None else list(np.atleast_1d(value)) for one, value in given.items()}
        for name, given in credits.items()
    }
