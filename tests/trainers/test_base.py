"""The seam with TRL: the gradient is the paper's, whatever the layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from hf_credit.rollouts import Decision, EveryEpisodeFailedError, by_episode
from hf_credit.trainers import callbacks
from hf_credit.trainers.callbacks import CreditCallback, EpisodeCallback

# Sums of the same numbers in another order.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-6}


@pytest.fixture
def reference(one_update: Callable[..., Any], micro_policy: Path) -> dict[str, torch.Tensor]:
    """The gradient of the whole update in one go."""
    return one_update(micro_policy).kept[0]


def assert_same_gradient(gradient: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> None:
    assert gradient.keys() == reference.keys()
    assert any(value.abs().max() > 1e-4 for value in reference.values())
    for name, value in reference.items():
        torch.testing.assert_close(gradient[name], value, **TOLERANCE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("history", ["current", "append"])
def test_the_gradient_is_that_of_the_surrogate_summed_decision_by_decision(
    one_update: Callable[..., Any], micro_policy: Path, micro_policy_append: Path, history: str
) -> None:
    policy = micro_policy if history == "current" else micro_policy_append
    seen: list[tuple[Decision, float]] = []

    def remember(trainer: Any) -> None:
        original = trainer.credit

        def credit(collected: Any) -> Any:
            advantages = original(collected)
            seen.extend((one, advantages[one.id]) for episode in collected.episodes for one in episode.decisions)
            return advantages

        trainer.credit = credit

    trainer = one_update(policy, history=history, on_built=remember)
    model = AutoModelForCausalLM.from_pretrained(policy)
    tokens = sum(len(decision.action_ids) for decision, _ in seen)
    # One forward pass for each decision by itself. At a ratio of 1 the gradient of eq. 5 is that of A * log pi.
    for decision, advantage in seen:
        ids = torch.tensor([decision.context_ids + decision.action_ids])
        logits = model(input_ids=ids).logits[0, len(decision.context_ids) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, torch.tensor(decision.action_ids)[:, None])
        (-advantage * logprobs.sum() / tokens).backward()
    expected = {name: value.grad for name, value in model.named_parameters()}
    assert_same_gradient(trainer.kept[0], expected)


@pytest.mark.parametrize("per_device", [1, 2, 4])
def test_gradient_accumulation_does_not_change_the_gradient(
    one_update: Callable[..., Any], micro_policy: Path, reference: dict[str, torch.Tensor], per_device: int
) -> None:
    trainer = one_update(micro_policy, per_device_train_batch_size=per_device)
    assert trainer.args.gradient_accumulation_steps == 8 // per_device
    assert_same_gradient(trainer.kept[0], reference)


def test_rows_without_loss_do_not_change_the_gradient(
    one_update: Callable[..., Any], micro_policy: Path, reference: dict[str, torch.Tensor]
) -> None:
    def pad(trainer: Any) -> None:
        most = trainer.ranks.all_max
        trainer.ranks.all_max = lambda count: most(count) + (13 if count > 8 else 0)  # as if another process had more

    padded = one_update(micro_policy, on_built=pad)
    assert_same_gradient(padded.kept[0], reference)
    logged, plain = padded.state.log_history[0], one_update(micro_policy).state.log_history[0]
    for name in ("loss", "entropy", "clip_ratio/region_mean"):
        assert logged[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-6), name


def test_an_update_without_signal_steps_as_if_all_its_rows_had_been_read(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    read: dict[str, list[int]] = {}

    def silenced(name: str) -> Callable[[Any], None]:
        """The second update credits every decision with 0."""

        def watch(trainer: Any) -> None:
            credit, scores, read[name] = trainer.credit, trainer.scores_of_rows, []

            def scored(model: Any, rows: dict[str, torch.Tensor], **asked: Any) -> Any:
                read[name].append(len(rows["prompt_ids"]))
                return scores(model, rows, **asked)

            trainer.credit = lambda collected: {
                one: 0.0 if trainer.state.global_step else value for one, value in credit(collected).items()
            }
            trainer.scores_of_rows = scored
            if name == "all read":
                trainer.to_read = lambda rows: rows

        return watch

    # Momentum and weight decay move weights whose gradient is 0.
    settings = {"max_steps": 3, "warmup_steps": 0, "weight_decay": 0.1}
    plain, full = (one_update(micro_policy, on_built=silenced(name), **settings) for name in ("skipped", "all read"))
    assert [one["passes/skipped"] for one in plain.state.log_history[:3]] == [0.0, 1.0, 1.0]
    assert read["skipped"] == [*read["all read"][: len(read["skipped"]) - 2], 1, 1]
    assert sum(read["all read"]) > 1.5 * sum(read["skipped"])
    weights = full.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in plain.model.state_dict().items())
    moved = [one.kept[2].keys() for one in (plain, full)]
    assert moved[0] == moved[1] == plain.kept[0].keys()
    assert not any(value.any() for value in plain.kept[2].values())
    assert all(one["entropy"] > 0 for one in plain.state.log_history[:3])


def test_rows_without_a_gradient_are_not_read_and_count_in_the_denominator(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    read: dict[str, int] = {}

    def first_decisions_alone(name: str) -> Callable[[Any], None]:
        def watch(trainer: Any) -> None:
            credit, scores, read[name] = trainer.credit, trainer.scores_of_rows, 0

            def scored(model: Any, rows: dict[str, torch.Tensor], **asked: Any) -> Any:
                read[name] += len(rows["prompt_ids"])
                return scores(model, rows, **asked)

            def credited(collected: Any) -> dict[str, float]:
                first = {episode.decisions[0].id for episode in collected.episodes}
                return {one: value if one in first else 0.0 for one, value in credit(collected).items()}

            trainer.credit, trainer.scores_of_rows = credited, scored
            if name == "all read":
                trainer.to_read = lambda rows: rows

        return watch

    part, full = (one_update(micro_policy, on_built=first_decisions_alone(name)) for name in ("part", "all read"))
    assert read["part"] < read["all read"]
    assert part.state.log_history[0]["passes/skipped"] == pytest.approx(1 - read["part"] / read["all read"])
    assert_same_gradient(part.kept[0], full.kept[0])
    assert part.state.log_history[0]["loss"] == pytest.approx(full.state.log_history[0]["loss"], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("term", [{"beta": 0.1}, {"entropy_coef": 0.1}])
def test_an_update_with_another_term_in_the_loss_is_read_whatever_its_advantages(
    one_update: Callable[..., Any], micro_policy: Path, term: dict[str, float]
) -> None:
    def silence(trainer: Any) -> None:
        credit = trainer.credit
        trainer.credit = lambda collected: dict.fromkeys(credit(collected), 0.0)

    logged = one_update(micro_policy, on_built=silence, **term).state.log_history[0]
    assert logged["passes/skipped"] == 0


def test_padding_to_a_multiple_does_not_change_the_gradient(
    one_update: Callable[..., Any], micro_policy: Path, reference: dict[str, torch.Tensor]
) -> None:
    assert_same_gradient(one_update(micro_policy, pad_to_multiple_of=64).kept[0], reference)


def test_rolling_out_a_few_episodes_at_a_time_does_not_change_the_gradient(
    one_update: Callable[..., Any], micro_policy: Path, reference: dict[str, torch.Tensor]
) -> None:
    assert_same_gradient(one_update(micro_policy, max_concurrent_episodes=3).kept[0], reference)


def test_slices_of_one_generation_may_each_take_an_optimizer_step(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(
        micro_policy,
        instances_per_update=None,
        per_device_train_batch_size=4,
        steps_per_generation=2,
        gradient_accumulation_steps=1,
        max_steps=2,
    )
    assert len(trainer.kept) == 2


def test_a_reference_policy_and_repeated_updates_are_trls_own(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(micro_policy, beta=0.1, num_iterations=2, max_steps=2, warmup_steps=0)
    assert trainer.state.log_history[0]["kl"] == pytest.approx(0, abs=1e-5)
    assert trainer.state.log_history[1]["kl"] > 0


# Plain descent at a high rate, after which the policy is far from the old policy.
FAR = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_steps": 2}


def test_the_ratios_of_a_second_update_are_to_the_policy_that_sampled(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    again = one_update(micro_policy, num_iterations=2, epsilon=1e-3, **FAR)
    assert [logged["clip_ratio/region_mean"] for logged in again.state.log_history[:1]] == [0]
    assert again.state.log_history[1]["clip_ratio/region_mean"] > 0.1


def test_the_reference_stays_the_initial_policy(one_update: Callable[..., Any], micro_policy: Path) -> None:
    batches: list[Any] = []

    def watch(trainer: Any) -> None:
        reference = trainer._reference_logprobs
        trainer._reference_logprobs = lambda batch: batches.append((batch, reference(batch))) or batches[-1][1]

    trainer = one_update(micro_policy, beta=0.1, on_built=watch, **FAR)
    assert trainer.state.log_history[1]["kl"] > 1e-3  # of replies that the trained policy made
    start = AutoModelForCausalLM.from_pretrained(micro_policy)
    (_, _), (batch, found) = batches
    for row, own in enumerate(batch["completion_mask"].bool()):
        ids = torch.cat(
            [batch["prompt_ids"][row][batch["prompt_mask"][row].bool()], batch["completion_ids"][row][own]]
        )
        expected = start(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        torch.testing.assert_close(found[row][own], expected[-int(own.sum()) :], rtol=1e-3, atol=1e-4)


def test_lora_trains_only_the_adapter_and_saves_it(
    one_update: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = one_update(micro_policy, trainer_kwargs={"peft_config": lora}, beta=0.1, warmup_steps=0)
    assert trainer.kept[0]
    assert all("lora_" in name for name in trainer.kept[0])
    trainer.save_model(str(tmp_path / "adapter"))
    base, tokens = AutoModelForCausalLM.from_pretrained(micro_policy), torch.arange(12)[None]
    before = base(tokens).logits.detach()
    loaded = PeftModel.from_pretrained(base, tmp_path / "adapter")
    trained = trainer.model.state_dict()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, trained[name]), name
    after = trainer.model.eval()(tokens).logits
    assert (after - before).abs().max() > 1e-4
    assert torch.equal(loaded(tokens).logits, after)


def test_a_policy_in_four_bits_trains_its_adapter(one_update: Callable[..., Any], micro_policy: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="quantisation needs bitsandbytes")
    kwargs = {
        "peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        "quantization_config": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    }
    trainer = one_update(micro_policy, trainer_kwargs=kwargs)
    assert any(type(module).__name__ == "Linear4bit" for module in trainer.model.modules())
    assert all("lora_" in name for name in trainer.kept[0])
    assert any(value.abs().max() > 0 for value in trainer.kept[0].values())


def test_truncated_replies_have_no_loss_when_masked(one_update: Callable[..., Any], micro_policy: Path) -> None:
    # Three tokens hold no whole action, so every reply is cut.
    cut = {"max_completion_length": 3, "mask_truncated_completions": True}
    trainer = one_update(micro_policy, **cut)
    assert trainer.state.log_history[0]["replies/cut"] == 1
    assert all(value.abs().max() == 0 for value in trainer.kept[0].values())


def test_evaluation_plays_episodes_and_logs_their_metrics(one_update: Callable[..., Any], micro_policy: Path) -> None:
    trainer = one_update(micro_policy)
    metrics = trainer.evaluate(trainer.train_dataset)
    assert 0 <= metrics["eval_completion"] <= 1
    assert metrics["eval_replies/length"] > 0
    assert not any("advantages/" in name for name in metrics)  # nobody credits an evaluation


class KeepBatches(EpisodeCallback):
    def __init__(self) -> None:
        self.batches: list[list[float]] = []

    def on_episodes(self, trainer: Any, collected: Any, advantages: Any) -> None:
        if not trainer.model.training:
            self.batches.append([one.metrics["completion"] for one in collected.episodes])


def test_metrics_of_an_evaluation_are_means_over_episodes_of_uneven_batches(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    played = KeepBatches()
    trainer = one_update(micro_policy, trainer_kwargs={"callbacks": [played]}, per_device_eval_batch_size=2)
    metrics = trainer.evaluate(trainer.train_dataset.select(range(5)))
    assert list(map(len, played.batches)) == [2, 2, 1]
    assert metrics["eval_completion"] == pytest.approx(fmean(one for batch in played.batches for one in batch))
    assert metrics["eval_completion"] != pytest.approx(fmean(map(fmean, played.batches)))


def test_metrics_of_several_evaluations_have_their_names(one_update: Callable[..., Any], micro_policy: Path) -> None:
    trainer = one_update(micro_policy)
    trainer.evaluate({"easy": trainer.train_dataset.select(range(4)), "hard": trainer.train_dataset.select(range(2))})
    easy, hard = trainer.state.log_history[-2:]
    assert {"eval_easy_reward", "eval_easy_turns/mean"} <= easy.keys()
    assert {"eval_hard_reward", "eval_hard_turns/mean"} <= hard.keys()
    assert not any(name.startswith("eval_reward") or name.endswith("_loss") for name in {**easy, **hard})


def test_only_tied_weights_may_be_missing_in_a_checkpoint(one_update: Callable[..., Any], micro_policy: Path) -> None:
    trainer = one_update(micro_policy)
    saved = {name: value for name, value in trainer.model.state_dict().items() if name != "lm_head.weight"}
    tied = trainer.model.load_state_dict(saved, strict=False)
    trainer._issue_warnings_after_load(tied)
    del saved["model.norm.weight"]
    missing = trainer.model.load_state_dict(saved, strict=False)
    with pytest.raises(ValueError, match=r"without model\.norm\.weight; download"):
        trainer._issue_warnings_after_load(missing)


def test_the_card_has_the_base_model_and_a_bibtex_citation(one_update: Callable[..., Any], micro_policy: Path) -> None:
    trainer = one_update(micro_policy)
    trainer.create_model_card(model_name="mine")
    card = (Path(trainer.args.output_dir) / "README.md").read_text()
    assert "None" not in card
    assert "This model was trained from a policy that is not on the Hub." in card
    assert "@misc{vprfar,\n  title = {{Verifiable Process Rewards for Agentic Reasoning}}," in card


def test_each_decision_is_logged_as_a_row_with_its_credit(
    one_update: Callable[..., Any], micro_policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pandas as pd

    seen: list[Any] = []

    class Watch(CreditCallback):
        def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
            for episode, values in zip(
                collected.episodes, by_episode(collected.episodes, credit.decisions), strict=True
            ):
                seen.extend(zip(episode.decisions, values, strict=True))

    kwargs = {"num_completions_to_print": 1, "trainer_kwargs": {"callbacks": [Watch()]}}
    trainer = one_update(micro_policy, log_completions=True, **kwargs)
    printed = capsys.readouterr().out
    assert printed.count("Step 1") == printed.count("--- ended: ") == 1
    assert "--- agent reads " in printed
    assert "advantage " in printed
    assert "Completion" not in printed  # of TRL's table
    table = pd.read_parquet(Path(trainer.args.output_dir) / "completions" / "completions_00001.parquet")
    assert len(table) == len(seen) > 8  # more decisions than episodes
    assert [reply[0]["content"] for reply in table["completion"]] == [decision.action_text for decision, _ in seen]
    assert table["advantage"].tolist() == pytest.approx([credit for _, credit in seen])
    assert table["verdict"].tolist() == [decision.verdict.score for decision, _ in seen]
    assert {"prompt", "outcome", "ending", "episode", "turn", "role", "alternatives"} <= set(table.columns)
    assert "event" not in table.columns  # each is its role


def test_an_error_of_an_environment_ends_only_its_episode(one_update: Callable[..., Any], micro_policy: Path) -> None:
    def break_some(trainer: Any) -> None:
        step = trainer.environment.step

        def fail_on_some(state: Any, action: str) -> Any:
            if state.seed % 4 == 0:
                raise RuntimeError("no such wall")
            return step(state, action)

        trainer.environment.step = fail_on_some

    trainer = one_update(micro_policy, on_built=break_some)
    logged = trainer.state.log_history[0]
    assert logged["endings/error"] == pytest.approx(0.25)
    assert math.isfinite(logged["loss"])


def test_an_update_in_which_every_episode_failed_stops_the_run_with_the_first_failure(
    one_update: Callable[..., Any], micro_policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def break_all(trainer: Any) -> None:
        def fail(task: Any, seed: int) -> Any:
            raise RuntimeError("closed")

        trainer.environment.initial_state = fail

    with pytest.raises(EveryEpisodeFailedError, match=r"got 8 of 8 .* the first with RuntimeError: closed") as stopped:
        one_update(micro_policy, on_built=break_all)
    assert str(stopped.value.__cause__) == "closed"
    assert caplog.text.count('raise RuntimeError("closed")') == 1


def test_an_evaluation_in_which_every_episode_failed_stops_the_run(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(micro_policy)

    def fail(task: Any, seed: int) -> Any:
        raise RuntimeError("closed" if seed else "not yet open")

    step, trainer.environment.initial_state = trainer.environment.initial_state, fail
    with pytest.raises(EveryEpisodeFailedError, match=r"episode of an evaluation .* RuntimeError\('closed'\)"):
        trainer.evaluate(trainer.train_dataset)
    trainer.environment.initial_state = lambda task, seed: step(task, seed) if seed else fail(task, seed)
    assert 0 < trainer.evaluate(trainer.train_dataset)["eval_endings/error"] < 1


def test_replies_as_long_as_the_models_positions_are_refused(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    with pytest.raises(ValueError, match="the model's 4096 positions, got a maximum of 4096 tokens"):
        one_update(micro_policy, max_completion_length=4096)
    with pytest.raises(ValueError, match=r"at most 6 tokens, .* got more in each of the first 8 tasks; lower"):
        one_update(micro_policy, max_completion_length=4090)


def test_a_resumed_run_ends_with_bitwise_the_weights_of_an_uninterrupted_run(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    changed = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "top_k": 0, "warmup_steps": 0}
    whole = one_update(micro_policy, **changed)
    checkpoint = Path(whole.args.output_dir) / "checkpoint-2"
    resumed = one_update(micro_policy, resume_from=checkpoint, **changed)
    assert len(resumed.kept) == 2
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


@pytest.mark.parametrize(
    "trainer_kwargs",
    [{}, {"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")}],
    ids=["full", "lora"],
)
def test_replies_with_cached_keys_and_values_are_those_of_trls_generation(
    one_update: Callable[..., Any], micro_policy_append: Path, trainer_kwargs: dict[str, Any]
) -> None:
    played: dict[bool, list[Any]] = {}
    columns: dict[bool, int] = {}
    for reuse in (True, False):

        def watch(trainer: Any, reuse: bool = reuse) -> None:
            original, generate = trainer.credit, trainer.engine.generate
            playing = False

            def counted(contexts: Any) -> Any:
                nonlocal playing
                playing = True
                replies = generate(contexts)
                playing = False
                return replies

            def count(module: Any, args: Any, kwargs: Any) -> None:
                columns[reuse] = columns.get(reuse, 0) + (kwargs["input_ids"].numel() if playing else 0)

            def remember(collected: Any) -> Any:
                played.setdefault(reuse, []).append([e.decisions for e in collected.episodes])
                return original(collected)

            trainer.engine.generate, trainer.credit = counted, remember
            base = trainer.model.get_base_model() if trainer_kwargs else trainer.model
            base.model.register_forward_pre_hook(count, with_kwargs=True)

        settings = {"history": "append", "max_steps": 2, "warmup_steps": 0, "learning_rate": 3e-2}
        trainer = one_update(
            micro_policy_append, trainer_kwargs=trainer_kwargs, on_built=watch, reuse_prefixes=reuse, **settings
        )
        assert trainer.model.training
    for with_reuse, without in zip(played[True], played[False], strict=True):
        assert [[d.action_ids for d in episode] for episode in with_reuse] == [
            [d.action_ids for d in episode] for episode in without
        ]
    first, second = ([d.action_ids for episode in update for d in episode] for update in played[True])
    assert first != second  # the update changed what the policy says
    assert max(len(episode) for episode in played[True][0]) > 2
    assert columns[True] < 0.6 * columns[False]


@pytest.mark.parametrize("fails", [False, True])
def test_no_keys_and_values_are_held_after_the_rollouts(
    one_update: Callable[..., Any], micro_policy_append: Path, fails: bool
) -> None:
    built: list[Any] = []

    def watch(trainer: Any) -> None:
        built.append(trainer)
        original = trainer.credit

        def credit(collected: Any) -> Any:
            assert trainer._continuing.cache is not None
            if fails:
                raise RuntimeError("the judge is out")
            return original(collected)

        trainer.credit = credit

    with pytest.raises(RuntimeError, match="the judge is out") if fails else nullcontext():
        one_update(micro_policy_append, history="append", on_built=watch)
    assert built[0]._continuing.cache is None


def test_a_long_update_says_what_it_does(
    one_update: Callable[..., Any],
    micro_policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(callbacks, "_PRINTED", 1e-3)
    one_update(micro_policy, disable_tqdm=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("update ")]
    assert any(line.startswith("update 1: generating, 0 of ") for line in lines)
    assert any(line.startswith("update 1: learning, ") for line in lines)
    monkeypatch.setattr(callbacks, "_PRINTED", 1e6)
    one_update(micro_policy, disable_tqdm=True)
    assert "update 1:" not in capsys.readouterr().out
