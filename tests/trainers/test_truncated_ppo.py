"""T3 from its settings to its gradient: truncation in training but not in evaluation, and weights of sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM

from hf_credit import CreditConfig, CreditTrainer, TruncatedPPOConfig, TruncatedPPOTrainer, make
from hf_credit.collaborations.judged_puzzles import JudgedPuzzles, judged_puzzles
from hf_credit.collaborations.relay import relay
from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Credit
from hf_credit.methods.t3 import Truncated, hypotheses_left, make_rule
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Decision, Ending, EnvironmentInteraction, Episode, by_episode, sequence_mean
from hf_credit.rollouts.rows import Row
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.callbacks import CreditCallback
from hf_credit.trainers.resumption import run_facts
from hf_credit.verifiers.judges import judge_prompt

BASE: dict[str, Any] = {"bf16": False, "use_cpu": True, "report_to": "none"}


class Uneven(EnvironmentInteraction):
    """4x4 Sudoku, three turns, whose outcome depends on the digits filled in."""

    def __init__(self, history: str = "append") -> None:
        super().__init__(make("sudoku", size=4, blanks=4), history, instructions=False, max_turns=3)

    def outcome(self, state: Any) -> float:
        return sum(place * ord(cell) for place, cell in enumerate(state.world.cells, state.turns)) % 5 / 4


class Keep(CreditCallback):
    def __init__(self) -> None:
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.played: list[tuple[RolloutBatch, Credit]] = []

    def on_credit(self, trainer: Any, collected: RolloutBatch, credit: Credit) -> None:
        self.played.append((collected, credit))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.gradients.append({name: one.grad.clone() for name, one in model.named_parameters()})


@pytest.fixture
def trained(micro_policy_append: Path, tmp_path: Path) -> Callable[..., Any]:
    """Trains once; returns the trainer, with its gradients and rollouts in `keep`."""

    def train(interaction: Any = None, resume: Path | None = None, **changed: Any) -> Any:
        values: dict[str, Any] = {
            **BASE,
            "output_dir": str(tmp_path),
            "instances_per_update": 4,
            "per_device_train_batch_size": 4,
            "max_steps": 1,
            "max_completion_length": 12,
            "max_grad_norm": 1e9,
            "beta": 0.0,
            "top_p": 1.0,
            "gradient_checkpointing": False,
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            **changed,
        }
        keep = Keep()
        rows = Dataset.from_list([{"seed": seed} for seed in range(8)])
        trainer: Any = TruncatedPPOTrainer(
            str(micro_policy_append), interaction or Uneven(), TruncatedPPOConfig(**values), rows, callbacks=[keep]
        )
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        trainer.keep = keep
        return trainer

    return train


def test_training_is_cut_evaluation_is_not_and_what_is_saved_is_the_whole_task(
    trained: Callable[..., Any], tmp_path: Path
) -> None:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), instructions=False, max_turns=3)
    cut = {"truncation": "random", "truncation_options": {"probability": 1.0}}
    trainer = trained(game, **cut, algorithm="grpo", group_size=2)
    ((collected, credit),) = trainer.keep.played
    assert {len(one.decisions) for one in collected.episodes} == {1}
    assert Ending.CUT in {one.ending for one in collected.episodes}
    logged = trainer.state.log_history[0]
    assert logged["cut/ratio"] == logged["cut/random"] == logged["endings/cut"] > 0
    assert logged["cut/turn"] == 1
    found = trainer.evaluate(Dataset.from_list([{"seed": 100 + seed} for seed in range(8)]))
    assert found["eval_endings/cut"] == 0
    assert found["eval_turns/mean"] > 1
    assert "eval_cut/ratio" not in found
    trainer.save_model(str(tmp_path))
    spec = TaskSpec.load(tmp_path)
    assert spec is not None
    assert type(spec.build()) is EnvironmentInteraction
    rule = {"name": "random", "options": {"probability": 1.0, "cut": "hard", "train_stalled": True}}
    assert spec.method == {"name": "grpo", "options": {"group_size": 2, "eps": 1e-6, "truncation": rule}}
    assert len(by_episode(collected.episodes, credit.decisions)) == len(collected.episodes) == 8
    facts = run_facts(trainer)
    assert facts["method"]["wrap"]["rule"]["probability"] == 1.0


def test_a_run_goes_on_from_the_middle_of_the_critics_warm_up(trained: Callable[..., Any], tmp_path: Path) -> None:
    settings = {"max_steps": 4, "critic_warmup_steps": 4, "critic_learning_rate": 1e-2, "learning_rate": 1e-3}
    saved = {"save_strategy": "steps", "save_steps": 1}
    whole = trained(**settings, **saved)
    resumed = trained(**settings, **saved, resume=tmp_path / "checkpoint-2")
    weights = [trainer.critics["critic"].weights for trainer in (whole, resumed)]
    assert [own.optimizer.param_groups[0]["lr"] for own in weights] == [0.75e-2] * 2  # of the last step
    heads = [own.parameters["head.weight"] for own in weights]
    assert torch.equal(*heads)
    assert heads[0].abs().max() > 0
    # The first step has a learning rate of 0, so that the critic said 0 in the second update too.
    said = [
        [one[0][0] for one in by_episode(collected.episodes, credit.decisions)]
        for collected, credit in whole.keep.played
    ]
    outcomes = [[one.outcome for one in collected.episodes] for collected, _ in whole.keep.played]
    assert said[:2] == outcomes[:2]
    assert said[2] != outcomes[2]


def by_hand(trainer: Any, model: Any) -> dict[str, torch.Tensor]:
    """The gradient of minus the mean over episodes of the mean over tokens of A log pi (eq. 61, first update)."""
    ((collected, credit),) = trainer.keep.played
    loss, sequences = torch.zeros(()), 0
    for episode, values in zip(collected.episodes, by_episode(collected.episodes, credit.decisions), strict=True):
        total, tokens = torch.zeros(()), 0
        for decision, value in zip(episode.decisions, values, strict=True):
            if value is None:
                continue
            logits = model(torch.tensor([decision.context_ids + decision.action_ids])).logits[0, :-1]
            taken = logits.log_softmax(-1)[-len(decision.action_ids) :].gather(
                1, torch.tensor(decision.action_ids)[:, None]
            )
            total = total + (torch.tensor(value).reshape(-1, 1) * taken).sum()
            tokens += len(decision.action_ids)
        if tokens:
            loss, sequences = loss - total / tokens, sequences + 1
    gradients = torch.autograd.grad(loss / sequences, list(model.parameters()))
    return dict(zip(dict(model.named_parameters()), gradients, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"truncation": "random", "truncation_options": {"probability": 0.5}, "cut": "mask"},
        {"algorithm": "gspo", "group_size": 3},
    ],
    ids=str,
)
def test_the_gradient_is_the_mean_over_episodes_of_the_mean_over_their_trained_tokens(
    trained: Callable[..., Any], micro_policy_append: Path, settings: dict[str, Any]
) -> None:
    trainer = trained(**settings, rows_per_forward=3)
    if "cut" in settings:
        decisions = [one for episode in trainer.keep.played[0][0].episodes for one in episode.decisions]
        credit = trainer.keep.played[0][1].decisions
        assert {one.trained for one in decisions} == {True, False}
        assert credit.keys() == {one.id for one in decisions if one.trained}
    expected = by_hand(trainer, AutoModelForCausalLM.from_pretrained(micro_policy_append))
    assert any(one.abs().max() > 1e-4 for one in expected.values())
    for name, gradient in trainer.keep.gradients[0].items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-6, msg=name)


def test_the_ratio_of_a_sequence_does_not_depend_on_the_layout(trained: Callable[..., Any]) -> None:
    far = {"algorithm": "gspo", "group_size": 3, "num_iterations": 2, "max_steps": 2, "learning_rate": 1e-2,
           "epsilon": 0.2, "epsilon_high": 0.2}  # fmt: skip
    whole = trained(**far, rows_per_forward=100, share_prompts=False)
    parts = trained(**far, rows_per_forward=1, pad_to_multiple_of=16)
    for update in (0, 1):
        expected = whole.keep.gradients[update]
        scale = max(float(one.abs().max()) for one in expected.values())
        for name, gradient in expected.items():
            torch.testing.assert_close(
                parts.keep.gradients[update][name], gradient, rtol=1e-3, atol=1e-5 * scale, msg=name
            )
    first, second = whole.keep.gradients
    assert not all(torch.equal(first[name], second[name]) for name in first)


def test_how_rows_are_cut_does_not_change_what_an_episode_weighs() -> None:
    def row(mask: Sequence[int], value: float) -> Row:
        return Row(
            prompt_ids=(1,),
            completion_ids=(2,) * len(mask),
            loss_mask=tuple(mask),
            advantages=tuple(value * one for one in mask),
            logprobs=None,
        )

    for rows in ([row((1, 0, 1, 1, 1), 0.5)], [row((1, 0, 1), 0.5), row((1, 1), 0.5)]):
        scaled = sequence_mean(rows, tokens=10, sequences=2)
        # 1/10 of the sum over all tokens is half the mean over the four of this episode
        assert sum(sum(one.advantages) for one in scaled) / 10 == pytest.approx(0.5 / 2)
    assert sequence_mean([], tokens=10, sequences=2) == []


class AlwaysAsking(JudgedPuzzles):
    """Every reply is a question, and the outcome depends on the replies and the verdicts."""

    def __init__(self) -> None:
        puzzles: Any = make("situation_puzzles", turns=2, wording="brief")
        puzzles.read_action = lambda reply: f"interact {reply or '?'}"
        super().__init__(puzzles, instructions=False)

    def outcome(self, state: Any) -> float:
        return sum(map(len, (*state.world.queries, *state.world.replies))) % 5 / 4


@pytest.mark.parametrize("algorithm", ["ppo", "gspo"])
def test_a_judge_with_weights_of_its_own_is_asked_of_many_episodes_at_once_and_never_trained(
    tmp_path: Path, algorithm: str
) -> None:
    game = AlwaysAsking()
    rows = game.tasks("train", 8)
    shown = [judge_prompt(row["surface"], row["bottom"], "Was it cold?") for row in rows]
    tokenizer = tokenizer_of([*shown, "Yes No Unknown"])
    policy, judge = (build_model(tokenizer, MicroConfig(hidden_size=32, layers=1, seed=seed)) for seed in (0, 1))
    before = {name: value.clone() for name, value in judge.state_dict().items()}
    for part in (policy, tokenizer):
        part.save_pretrained(tmp_path / "start")
    ruling, batch_sizes = sampler(judge, tokenizer, max_new_tokens=3, temperature=0), []

    def judging(contexts: Sequence[Sequence[int]]) -> Any:
        batch_sizes.append(len(contexts))
        return ruling(contexts)

    args = config(
        tmp_path,
        algorithm=algorithm,
        group_size=2,
        instances_per_update=4,
        per_device_train_batch_size=4,
        max_steps=1,
        max_completion_length=6,
        learning_rate=1e-2,
        beta=0.0,
        gradient_checkpointing=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    keep = Keep()
    trainer = TruncatedPPOTrainer(
        str(tmp_path / "start"), game, args, rows, callbacks=[keep], samplers={"judge": judging}
    )
    trainer.train()
    ((collected, credit),) = keep.played
    assert batch_sizes == [8, 8]
    assert trainer.ledger.decisions == {"agent": 16, "judge": 16}
    for episode, values in zip(collected.episodes, by_episode(collected.episodes, credit.decisions), strict=True):
        assert [one.role for one in episode.decisions] == ["agent", "judge"] * 2
        assert [value is None for value in values] == [False, True] * 2
        for verdict in episode.decisions[1::2]:
            assert verdict.action_ids == tuple(ruling([verdict.context_ids])[0].ids)
    for name, value in judge.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not all(torch.equal(value, trainer.model.state_dict()[name]) for name, value in policy.state_dict().items())
    trainer.evaluate(rows)
    assert batch_sizes[2:] == [8, 8]


def test_samplers_are_refused_for_roles_that_are_learned_from(tmp_path: Path) -> None:
    rows, said = Dataset.from_list([{"seed": seed} for seed in range(8)]), {"samplers": {"agent": lambda contexts: []}}
    with pytest.raises(ValueError, match="the untrained roles of 'judged_puzzles' are judge; leave"):
        TruncatedPPOTrainer("nowhere", judged_puzzles(), config(tmp_path), rows, **said)
    with pytest.raises(ValueError, match="the untrained roles of 'sudoku' are none; leave"):
        TruncatedPPOTrainer("nowhere", Uneven(), config(tmp_path), rows, **said)
    adapters = config(tmp_path, role_adapters=["agent", "judge"])
    judge = {"samplers": {"judge": said["samplers"]["agent"]}}
    cut = Truncated(judged_puzzles(), make_rule("random"))
    with pytest.raises(ValueError, match="reply for every role, got samplers of judge as well; leave one out"):
        TruncatedPPOTrainer("nowhere", cut, adapters, rows, peft_config=LoraConfig(), **judge)


def config(tmp_path: Path, **changed: Any) -> TruncatedPPOConfig:
    return TruncatedPPOConfig(**{**BASE, "output_dir": str(tmp_path), **changed})


def test_the_papers_settings_are_the_defaults(tmp_path: Path) -> None:
    configs = {name: config(tmp_path, algorithm=name) for name in ("ppo", "grpo", "gspo")}
    settings = {
        name: (one.beta, one.epsilon, one.epsilon_high, one.group_size, one.importance_sampling_level)
        for name, one in configs.items()
    }
    assert settings == {
        "ppo": (0.001, 0.2, 0.2, 1, "token"),
        "grpo": (0.001, 0.2, 0.2, 5, "token"),
        "gspo": (0.0, 0.0003, 0.0004, 5, "sequence"),
    }
    ppo = configs["ppo"]
    assert (ppo.gamma, ppo.lam, ppo.learning_rate, ppo.max_steps, ppo.top_p) == (1, 1, 1e-6, 200, 0.95)
    assert (ppo.aggregation, ppo.critic_learning_rate, ppo.max_completion_length) == ("sequence", 1e-5, 512)
    assert config(tmp_path, beta=0.5, epsilon=0.1).beta == 0.5
    assert ppo.method().name == "ppo"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"algorithm": "reinforce"}, "algorithm must be one of ppo, grpo, gspo, got 'reinforce'"),
        ({"algorithm": "grpo", "group_size": 1}, "group_size must be at least 2, got 1"),
        ({"algorithm": "gspo", "importance_sampling_level": "token"}, "of gspo is 'sequence', got 'token'"),
        ({"truncation": "random", "algorithm": "grpo", "cut_value": "bootstrap"}, "needs a critic, got algorithm"),
        ({"algorithm": "grpo", "whiten": True}, "whiten has no effect with algorithm 'grpo', got True; leave it out"),
        ({"advantage_eps": 1e-4}, "advantage_eps has no effect with algorithm 'ppo', got 0.0001; leave it out"),
        ({"truncation": "random", "window": 0}, "window must be at least 1, got 0"),
        ({"truncation": "random", "truncation_options": '{"probability": 2}'}, r"must be in \[0, 1\], got 2"),
        ({"truncation": "random", "truncation_options": "often"}, "must be a mapping, got 'often'"),
        ({"truncation": "sideways"}, "rule must be one of"),
        ({"window": 3}, "window needs truncation, got 3 without"),
        ({"cut_value": "bootstrap"}, "cut_value needs truncation"),
        (
            {"truncation": "random", "cut": "soft", "cut_value": "bootstrap"},
            "that ends the episode, got cut='soft', which plays",
        ),
        (
            {"truncation": "random", "cut": "mask", "cut_value": "bootstrap"},
            "that ends the episode, got cut='mask', which plays",
        ),
        ({"aggregation": "row"}, "aggregation must be one of token, sequence, got 'row'"),
        ({"critic_warmup_steps": -3}, "warmup_steps of a critic must be at least 0, got -3"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused_in_one_sentence(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        config(tmp_path, **changed)
    assert "\n" not in str(refusal.value)


def test_a_rule_that_is_taken_back_takes_its_own_settings_along(tmp_path: Path) -> None:
    rule: dict[str, Any] = {"window": 1, "cut": "soft", "truncation_options": {"ties": True}, "cut_value": "bootstrap"}
    without = config(tmp_path, truncation="none", **rule)
    assert without.to_dict() == config(tmp_path).to_dict()
    assert "truncation" not in without.parts()


def test_episodes_of_several_rows_and_rules_of_other_tasks_are_refused_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    rows = Dataset.from_list([{"seed": seed} for seed in range(8)])
    gspo = config(tmp_path, algorithm="gspo", instances_per_update=2, per_device_train_batch_size=2)
    with pytest.raises(ValueError, match="got the roles reasoner, actor; take 'token'"):
        TruncatedPPOTrainer("nowhere", relay(size=4), gspo, rows)
    with pytest.raises(ValueError, match="got history='current'"):
        TruncatedPPOTrainer("nowhere", Truncated(Uneven("current"), make_rule("random")), gspo, rows)
    shrink = config(tmp_path, truncation="shrink")
    with pytest.raises(ValueError, match="the rule 'shrink' is for CircuitDecoding, GuessNumbers, got 'sudoku'"):
        TruncatedPPOTrainer("nowhere", Uneven(), shrink, rows)
    soft = config(tmp_path, truncation="random", cut="soft")
    with pytest.raises(ValueError, match="a soft cut needs an answer_prompt, got 'sudoku' without one"):
        TruncatedPPOTrainer("nowhere", Uneven(), soft, rows)
    plain = CreditConfig(**BASE, output_dir=str(tmp_path), importance_sampling_level="token")
    with pytest.raises(ValueError, match="the method 'gspo' uses the ratio of whole episodes"):
        CreditTrainer("nowhere", Uneven(), plain, rows, method="gspo")


def test_what_was_left_to_know_is_counted_where_it_can_be() -> None:
    def before(state: Any) -> Episode:
        decision = Decision(
            role="agent", state=state, context_ids=(1,), action_ids=(2,), logprobs=None, action_text=""
        )
        return Episode(decisions=(decision,), outcome=0.0, ending=Ending.FINISHED)

    guessing = EnvironmentInteraction(make("guess_numbers", digits=3))
    task = {"digits": 3, "symbols": 4, "secret": "124", "first_guess": "123", "seed": 0}
    game = Truncated(guessing, make_rule("random", probability=0.0))
    start = game.start(task, 0)
    after = game.advance(start, ["<interact>412</interact>"])
    nothing = Episode(decisions=(), outcome=0.0, ending=Ending.TRUNCATED)
    found = [before(start), nothing, before(after)]
    assert hypotheses_left(game, found) == [3, 1]
    sudoku = Uneven()
    assert hypotheses_left(sudoku, [before(sudoku.start({"seed": 0}, 0))]) == []
    assert hypotheses_left(relay(size=4), [before(None)]) == []
