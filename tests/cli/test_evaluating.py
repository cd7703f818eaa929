from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hf_credit import make
from hf_credit.environments.tasks import task_seed
from hf_credit.evaluation.play import evaluate_model
from hf_credit.loading import load_policy
from hf_credit.oracles import make as make_oracle
from hf_credit.policies.saved import load_sampler
from hf_credit.rollouts import Chat, EnvironmentInteraction
from hf_credit.tasks.spec import Sampling, TaskSpec
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.saving import task_spec
from hf_credit.trainers.training import build_trainer

SETUP = TaskSpec(
    task="sudoku",
    task_options={"size": 4, "blanks": 4},
    history="current",
    instructions=False,
    sampling=Sampling(max_new_tokens=12, temperature=1.0, top_p=1.0, top_k=0),
)


def test_the_same_seed_gives_the_same_games(micro_policy: Path) -> None:
    first, again = (evaluate_model(str(micro_policy), SETUP, 12, seed=3) for _ in range(2))
    assert first == again
    other = evaluate_model(str(micro_policy), SETUP, 12, seed=4)
    assert [one.seed for one in other.records] == [one.seed for one in first.records]
    assert other.records != first.records


def test_results_record_the_task(micro_policy: Path) -> None:
    results = evaluate_model(str(micro_policy), SETUP, 2, first_task=5)
    assert results.about == {"model": micro_policy.name, "setup": SETUP.to_dict(), "first_task": 5, "seed": 0}
    assert [one.seed for one in results.records] == [2**31 + 5, 2**31 + 6]


def test_a_conversation_that_outgrows_the_model_is_cut_and_counted(micro_policy: Path) -> None:
    network, tokenizer = load_policy(str(micro_policy))
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), instructions=False)
    (request,) = game.pending(game.start({}, task_seed("held_out", 0)))
    first = len(Chat(tokenizer).context(request.messages))
    long = Sampling(max_new_tokens=network.config.max_position_embeddings - first, temperature=0.0)
    setup = TaskSpec(task="sudoku", task_options={"size": 4, "blanks": 4}, instructions=False, sampling=long)
    records = evaluate_model(str(micro_policy), setup, 8).records
    cut = [one for one in records if one.ending == "truncated"]
    assert {one.turns for one in cut} == {1}
    assert 0 < len(cut) <= len(records)


def test_an_oracle_of_another_game_is_refused_before_the_games(micro_policy: Path) -> None:
    with pytest.raises(ValueError, match="must be made for the environment 'sudoku'"):
        evaluate_model(str(micro_policy), SETUP, 2, oracle=make_oracle("mcts"))


@pytest.mark.parametrize("model", ["no/such/folder", "nobody/nothing"])
def test_a_missing_model_is_named(model: str) -> None:
    with pytest.raises(ValueError, match=f"must be a folder with a saved policy or an id on the Hub, got '{model}'"):
        load_policy(model)


def test_a_run_with_an_adapter_for_each_role_is_trained_and_evaluated(
    together: Callable[..., Path], tmp_path: Path
) -> None:
    recipe = together(role_adapters=["reasoner", "actor"], use_peft=True, lora_target_modules="all-linear")
    trainer = build_trainer(read_job(["--config", str(recipe)]))
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    spec = task_spec(trainer.evaluation_interaction, trainer.method, trainer.args)
    results = evaluate_model(str(tmp_path / "saved"), spec, 4)
    assert len(results.records) == 4
    network, _, generate = load_sampler(str(tmp_path / "saved"), spec.sampling)
    assert set(network.peft_config) == set(generate) == {"reasoner", "actor"}
