"""Supervised training on demonstrations: the loss is that of the replies, and nothing else is learned."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from launched import launch
from safetensors.torch import load_file
from small_runs import SHARDED
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig

from hf_credit import make
from hf_credit.oracles import default_oracle
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer, tokenizer_of
from hf_credit.policies.micro_vision import build_vision_model, processor_of
from hf_credit.policies.scripted import Demonstration, demonstrations, supervised_rows, walk
from hf_credit.rollouts import Chat, Decision, Ending, EnvironmentInteraction, Episode, RolloutRequest
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.trainers.micro import settings_of
from hf_credit.trainers.warm_up import WarmUpTrainer, dataset_of

SUDOKU = make("sudoku", size=4, blanks=4)
SMALL = MicroConfig(hidden_size=16, layers=1, heads=2)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(SUDOKU)


def played(tokenizer, history, quality=1.0, episodes=24):
    interaction = EnvironmentInteraction(SUDOKU, history=history, instructions=False)
    player = OraclePlayer(SUDOKU, default_oracle(SUDOKU), quality)
    starts = [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(episodes)]
    walks = [(start, walk(interaction, player, start)) for start in starts]
    return list(demonstrations(interaction, Chat(tokenizer), player, walks))


@pytest.fixture(scope="module")
def shown(tokenizer):
    return played(tokenizer, "current")


def one(context, reply, shares=()):
    decision = Decision(
        role="agent", state=None, context_ids=context, action_ids=reply, logprobs=None, action_text="", step=0
    )
    return Demonstration(
        task="", episode=Episode(decisions=(decision,), outcome=1.0, ending=Ending.FINISHED), shares=shares
    )


def without_shares(found):
    return [Demonstration(task=each.task, episode=each.episode) for each in found]


def trainer_of(model, tokenizer, found, folder, held_out=(), **changed):
    settings = settings_of(folder, MicroConfig(**{"hidden_size": 16, "layers": 1, "heads": 2, **changed}), quiet=True)
    settings.logging_steps = 1
    return WarmUpTrainer(model, settings, found, held_out, processing_class=tokenizer)


def losses(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def expected_loss(model, found, media=None):
    """Mean cross entropy of the labels or their shares, row by row and without padding."""
    values = []
    for row in (row for each in found for row in supervised_rows(each)):
        ids = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            others = {} if media is None else media.inputs(model, ids, [row["media"]])
            logprobs = model(ids, **others).logits[0].log_softmax(-1)
        at = 0
        for place in (place for place, label in enumerate(row["labels"]) if label != -100):
            count = row["counts"].pop(0) if "counts" in row else 1
            tokens = row.get("tokens", row["labels"])
            first = at if "counts" in row else place
            shares = row["shares"][at : at + count] if "counts" in row else [1.0]
            pairs = zip(tokens[first : first + count], shares, strict=True)
            values.append(-sum(logprobs[place - 1, token].item() * share for token, share in pairs))
            at += count
    return sum(values) / len(values)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("history", ["current", "append"])
def test_the_loss_is_the_mean_over_the_tokens_of_replies(tokenizer, tmp_path, history, shared):
    found = played(tokenizer, history, 0.7, episodes=6)
    found = found if shared else without_shares(found)
    model = build_model(tokenizer, SMALL)
    expected = expected_loss(model, found)
    assert expected == pytest.approx(math.log(len(tokenizer)), rel=0.5)
    # Of one batch, and of two accumulated ones of different lengths.
    assert losses(trainer_of(model, tokenizer, found, tmp_path, batch_rows=24))[0] == pytest.approx(expected, rel=1e-4)
    accumulating = trainer_of(build_model(tokenizer, SMALL), tokenizer, found, tmp_path, batch_rows=2)
    accumulating.args.gradient_accumulation_steps = 12
    assert losses(accumulating)[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("history", ["current", "append"])
def test_the_loss_with_images_is_that_of_each_row_with_its_own(tmp_path, history, shared):
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=3, notation="picture"), history=history)
    processor = processor_of(tokenizer_of(interaction.texts(2), images=True), 32)
    model, chat = build_vision_model(processor, SMALL), Chat(processor)
    starts = [RolloutRequest(task=dict(row)) for row in interaction.tasks("train", 3)]
    player = interaction.scripted_player(0.7)
    walks = [(start, walk(interaction, player, start)) for start in starts]
    found = list(demonstrations(interaction, chat, player, walks))
    assert [len(row["media"]) for row in supervised_rows(found[0])] == ([1, 1, 1] if history == "current" else [3])
    found = found if shared else without_shares(found)
    expected = expected_loss(model, found, chat.media)
    assert losses(trainer_of(model, processor, found, tmp_path, batch_rows=9))[0] == pytest.approx(expected, rel=1e-4)


def test_what_rows_begin_with_is_read_once(tokenizer, tmp_path):
    # A context of 40 tokens and a reply each, of which the last is only predicted: alone, 2 rows of 40 columns.
    found = [one(tuple(range(6, 16)) * 4, (token,), ([{token: 1.0}],)) for token in (7, 8)]
    model, read = build_model(tokenizer, SMALL), []
    model.model.register_forward_pre_hook(
        lambda module, args, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    losses(trainer_of(model, tokenizer, found, tmp_path))
    assert read[3:] == [41]  # after the trial: the context, and its last token again for the second reply


def test_it_lowers_the_held_out_loss(tokenizer, tmp_path, shown):
    model = build_model(tokenizer, SMALL)
    trainer = trainer_of(model, tokenizer, shown[:18], tmp_path, shown[18:], epochs=6, batch_rows=8)
    before = trainer.evaluate()["eval_loss"]
    assert before == pytest.approx(expected_loss(model, shown[18:]), rel=1e-4)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 2
    assert model.config.use_cache  # which generation needs, and is saved with the model


def test_every_row_is_used_once_per_epoch(tokenizer, tmp_path, shown):
    found = losses(trainer_of(build_model(tokenizer, SMALL), tokenizer, shown, tmp_path, epochs=3, batch_rows=40))
    assert len(found) == 3 * 3  # 40, 40 and 16 of 96 rows


def test_shares_of_tokens_are_imitated(tokenizer, tmp_path):
    # The loss is the cross entropy with the shares: the mean of the tokens' losses, weighted by their shares.
    def loss(token, shares=()):
        model = build_model(tokenizer, SMALL)
        return losses(trainer_of(model, tokenizer, [one((7, 8), (token,), shares)], tmp_path))[0]

    mixed = loss(9, ([{9: 0.75, 10: 0.25}],))
    assert mixed == pytest.approx(0.75 * loss(9) + 0.25 * loss(10), rel=1e-4)


def test_shares_that_some_demonstrations_lack_are_not_used(tokenizer):
    mixed = dataset_of([one((7, 8), (9,), ([{9: 0.5, 10: 0.5}],)), one((7, 8), (9,))])
    assert mixed.column_names == ["input_ids", "labels"]


def test_a_model_of_another_family_is_trained_too(tokenizer, tmp_path, shown):
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    for found in (shown, without_shares(shown)):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        before = expected_loss(model, found)
        trainer = trainer_of(model, tokenizer, found, tmp_path, epochs=2, batch_rows=8, learning_rate=1e-2)
        assert losses(trainer)[0] == pytest.approx(before, rel=0.2)  # of a part of the rows
        assert expected_loss(trainer.model.eval(), found) < before / 2


def test_training_depends_only_on_the_seed(tokenizer, tmp_path, shown):
    def weights(noise, **changed):
        torch.manual_seed(noise)
        trainer = trainer_of(build_model(tokenizer, SMALL), tokenizer, shown, tmp_path, batch_rows=8, **changed)
        trainer.train()
        return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])

    assert torch.equal(weights(1), weights(2))
    assert not torch.equal(weights(1), weights(1, seed=5))


# Refused


def test_a_warm_up_needs_a_demonstration(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="must have a demonstration to learn from, got none; give more episodes"):
        trainer_of(build_model(tokenizer, SMALL), tokenizer, [], tmp_path)


def test_a_row_that_would_be_truncated_is_refused(tokenizer, tmp_path):
    settings = SFTConfig(output_dir=str(tmp_path), max_length=4, use_cpu=True, bf16=False, report_to="none")
    with pytest.raises(ValueError, match="at most max_length = 4 tokens, as none is truncated, got 5"):
        WarmUpTrainer(build_model(tokenizer, SMALL), settings, [one((7, 8, 9), (9, 10))], processing_class=tokenizer)


@pytest.mark.parametrize("setting", [{"packing": True}, {"assistant_only_loss": True}, {"eos_token": "<|pad|>"}])
def test_a_setting_that_changes_the_tokens_is_refused(tokenizer, tmp_path, shown, setting):
    settings = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", **setting)
    with pytest.raises(
        ValueError,
        match=f"{next(iter(setting))} must be .*, got .*: demonstrations are rows of tokens already",
    ):
        WarmUpTrainer(build_model(tokenizer, SMALL), settings, shown, processing_class=tokenizer)


@pytest.mark.parametrize("setting", [{"loss_type": "dft"}, {"label_smoothing_factor": 0.5}], ids=str)
@pytest.mark.filterwarnings("ignore:.*label_smoothing_factor. is deprecated:FutureWarning")
def test_a_loss_of_trl_is_used_on_recorded_replies_and_refused_on_the_probabilities_of_a_player(
    tokenizer, tmp_path, shown, setting
):
    losses = []
    for changed in ({}, setting):
        args = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", max_steps=1, **changed)
        torch.manual_seed(0)
        model = build_model(tokenizer, SMALL)
        trainer = WarmUpTrainer(model, args, [one((7, 8, 9), (9, 10))], processing_class=tokenizer)
        trainer.train()
        losses.append(trainer.state.log_history[-1]["train_loss"])
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be .*: the player tells the probabilities"):
        WarmUpTrainer(model, args, shown, processing_class=tokenizer)


def test_an_adapter_of_sharded_weights_is_saved_whole(tokenizer, tmp_path):
    build_model(tokenizer, SMALL).save_pretrained(tmp_path / "policy")
    tokenizer.save_pretrained(tmp_path / "policy")
    script, environment = Path(__file__).with_name("warm_up_of_adapter.py"), {"ACCELERATE_USE_CPU": "true", **SHARDED}
    asked = tmp_path / "policy", tmp_path / "warm"
    launch(script, *asked, processes=2, folder=tmp_path, environment=environment)
    saved = load_file(tmp_path / "warm" / "adapter_model.safetensors")
    assert {tuple(one.shape) for name, one in saved.items() if "lora_A" in name} == {(4, 16)}
    assert any(one.abs().max() > 0 for name, one in saved.items() if "lora_B" in name)
