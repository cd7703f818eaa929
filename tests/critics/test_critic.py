"""Critics: values, training, checkpoints, and independence of the layout of batches."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from launched import launch
from peft import LoraConfig, get_peft_model

from hf_credit import make
from hf_credit.credit import clipped_value_errors
from hf_credit.critics.critic import Critic, CriticConfig, context_batch
from hf_credit.critics.inputs import context_inputs
from hf_credit.critics.weights import weights_file
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts import Row
from hf_credit.rollouts.batches import pad_rows
from hf_credit.rollouts.method_context import CriticInput

SIZES = {"hidden_size": 16, "heads": 2}


def context_values(critic, contexts):
    """The value of each context."""
    return critic.values(context_batch(contexts, critic.pad_token_id))[:, 0]


def fit_contexts(critic, contexts, returns):
    """A fit on one target for each context, at its end."""
    batch, targets = context_batch(contexts, critic.pad_token_id), returns[:, None]
    return critic.fit(batch, targets, torch.ones_like(targets))


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(make("tic_tac_toe"), episodes=1)


@pytest.fixture
def build(tokenizer, accelerator):
    """`build(backbone, **config)`: a critic, with a separate backbone by default."""

    def build(backbone=None, policy=None, seed=0, **config):
        own = build_model(tokenizer, MicroConfig(**SIZES, seed=seed))
        policy = build_model(tokenizer, MicroConfig(**SIZES, seed=9)) if policy is None else policy
        return Critic(backbone or own, policy, tokenizer, accelerator, CriticConfig(**config))

    return build


def row(prompt, completion, loss_mask=None):
    """A row; by default all its completion tokens are actions."""
    return Row(
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        loss_mask=tuple(loss_mask or [1] * len(completion)),
        advantages=(0.0,) * len(completion),
        logprobs=None,
    )


ROWS = [
    row([5, 6, 7], [8, 9]),
    row([6], [10, 11, 12, 5], [1, 0, 0, 1]),
    row([12, 11, 10, 9, 8], [7]),
    row([7, 5], [9, 9, 6]),
]
RETURNS = torch.tensor([[1.0, 2, 0, 0], [-1, 7, 7, 0.5], [3, 0, 0, 0], [0.25, 0.5, 1, 0]])


@pytest.fixture
def batch():
    return pad_rows(ROWS, pad_token_id=0)


def disturbed(critic, seed=1):
    """The critic with random weights in its head."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        critic.head.weight.normal_()
        critic.head.bias.normal_()
    return critic


def weights_of(critic):
    return {name: parameter.detach().clone() for name, parameter in critic.weights.parameters.items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


# Values


def test_a_new_critic_predicts_0_in_float32(build, batch):
    values = build().values(batch)
    assert values.dtype == torch.float32
    assert values.shape == batch["completion_ids"].shape
    assert not values.any()


def test_a_value_is_the_output_of_the_head_at_the_token_before(build, batch):
    critic = disturbed(build())
    values = critic.values(batch)
    for index, sequence in enumerate(ROWS):
        ids = torch.tensor([[*sequence.prompt_ids, *sequence.completion_ids]])
        with torch.no_grad():
            hidden = critic.backbone.model(input_ids=ids).last_hidden_state[0]
            expected = critic.head(hidden)[len(sequence.prompt_ids) - 1 : -1, 0]
        torch.testing.assert_close(values[index, : len(expected)], expected)
        assert not values[index, len(expected) :].any()


def test_a_value_does_not_depend_on_later_tokens(build):
    critic = disturbed(build())
    first = critic.values(pad_rows([row([5, 6], [7, 8, 9])], 0))
    second = critic.values(pad_rows([row([5, 6], [7, 8, 12])], 0))
    torch.testing.assert_close(first, second)


def test_padding_changes_nothing(build, batch):
    critic = disturbed(build())
    wide = critic.values(pad_rows(ROWS, pad_token_id=3, multiple_of=16))
    torch.testing.assert_close(wide[:, : RETURNS.shape[1]], critic.values(batch))
    assert not wide[:, RETURNS.shape[1] :].any()


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_size_of_forward_passes_changes_no_value(build, batch, size):
    one, other = disturbed(build(micro_batch_rows=2)), disturbed(build(micro_batch_rows=size))
    torch.testing.assert_close(one.values(batch), other.values(batch))


def test_the_value_of_a_context_is_that_of_the_first_token_after_it(build, batch):
    critic = disturbed(build())
    contexts = [sequence.prompt_ids for sequence in ROWS]
    torch.testing.assert_close(context_values(critic, contexts), critic.values(batch)[:, 0])
    later = [[*ROWS[1].prompt_ids, *ROWS[1].completion_ids[:3]]]
    torch.testing.assert_close(context_values(critic, later)[0], critic.values(batch)[1, 3])
    assert context_values(critic, []).shape == (0,)


def test_contexts_that_grow_are_read_once_with_the_values_and_the_gradient_of_separate_passes(build):
    text = tuple(5 + place % 8 for place in range(60))
    grown = [text[:turn] for turn in range(5, 61, 5)]
    one, other, read = disturbed(build(clip=None)), disturbed(build(clip=None)), []
    one.backbone.model.register_forward_pre_hook(
        lambda model, args, named: read.append(int(named["attention_mask"].sum())), with_kwargs=True
    )
    inputs = context_inputs([*grown, grown[0]])  # begun again: with a target of its own
    values = one(inputs)
    assert sum(read) == 60 + 5 + 1  # and the end of the shorter row, which nothing follows
    torch.testing.assert_close(torch.tensor(values)[:, 0], context_values(other, [*grown, grown[0]]))
    returns = torch.linspace(-1, 1, len(inputs))
    learned = one.learn(inputs, returns[:, None].tolist(), values)
    assert learned == pytest.approx(fit_contexts(other, [*grown, grown[0]], returns), abs=1e-4)
    for name, weight in weights_of(one).items():
        torch.testing.assert_close(weight, weights_of(other)[name])


def test_a_grown_context_beyond_the_tokens_that_are_read_has_the_value_of_its_last_ones(build):
    critic = disturbed(build())
    critic.max_tokens = 4
    grown = [(5, 6), (5, 6, 7), (5, 6, 7, 8, 9), (5, 6, 7, 8, 9, 10)]
    alone = [critic(context_inputs([one]))[0] for one in grown]
    assert critic(context_inputs(grown)) == [pytest.approx(one, abs=1e-5) for one in alone]


def test_of_what_lies_before_the_tokens_that_are_read_the_last_target_is_learned(build):
    critic, fitted = disturbed(build()), []
    critic.max_tokens = 3
    critic.fit = lambda batch, returns, mask, old: fitted.append((returns[mask].tolist(), old[mask].tolist()))
    critic.learn([CriticInput(ids=(5, 6, 7, 8, 9), at=(1, 2, 4, 5))], [[1.0, 2.0, 3.0, 4.0]], [[0.1, 0.2, 0.3, 0.4]])
    assert fitted == [([2.0, 3.0, 4.0], pytest.approx([0.2, 0.3, 0.4]))]


def test_a_sequence_without_context_is_refused(build):
    with pytest.raises(ValueError, match="the prompt of a critic's sequence must not be empty"):
        build().values(pad_rows([row([5], [6]), row([], [6])], 0))


# Learning


def test_it_learns_a_known_value_function(build):
    # The value of a text is decided by its first token, which lies further back every time.
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(5, 20, (64, 6), generator=generator).tolist()
    rows = [row(text[: 1 + index % 3], text[1 + index % 3 :]) for index, text in enumerate(texts)]
    batch = pad_rows(rows, 0)
    returns = torch.tensor([float(text[0] % 2) for text in texts])[:, None].expand_as(batch["completion_ids"])
    mask = batch["completion_mask"]
    settings = {"mini_batch_rows": 16, "micro_batch_rows": 16, "gradient_checkpointing": False}
    critic = build(learning_rate=2e-2, passes=5, clip=None, **settings)
    before = critic.fit(batch, returns, mask)
    assert before["explained_variance"] == pytest.approx(0, abs=1e-6)
    after = critic.fit(batch, returns, mask)
    assert after["explained_variance"] > 0.9
    assert after["value_loss"] < 0.1 * 0.5 * 0.25
    assert after["skipped_steps"] == 0


@pytest.mark.parametrize("size", [1, 3, 100])
def test_its_gradient_is_that_of_the_clipped_loss_over_the_whole_batch(build, batch, size):
    critic = disturbed(build(micro_batch_rows=size, clip=0.5, max_grad_norm=None, learning_rate=1e-9))
    mask = batch["tool_mask"]
    old = torch.full_like(RETURNS, 0.125)

    plain = disturbed(build())
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    hidden = plain.backbone.model(input_ids=ids, attention_mask=attention).last_hidden_state
    values = plain.head(hidden)[:, batch["prompt_ids"].shape[1] - 1 : -1, 0]
    loss = clipped_value_errors(values, old, RETURNS, 0.5)[0][mask.bool()].mean()
    loss.backward()
    expected = {name: parameter.grad for name, parameter in plain.weights.parameters.items()}

    metrics = critic.fit(batch, RETURNS, mask, old)
    # After one step from nothing, the first moment of AdamW is the gradient, times 1 - beta.
    for name, parameter in critic.weights.parameters.items():
        gradient = critic.weights.optimizer.state[parameter]["exp_avg"] / 0.1
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)
    assert metrics["value_loss"] == pytest.approx(loss.item(), rel=1e-5)
    norm = torch.stack([gradient.square().sum() for gradient in expected.values()]).sum().sqrt()
    assert metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_tokens_without_a_target_do_not_count(build, batch):
    critic, other = disturbed(build(clip=0.5, passes=2)), disturbed(build(clip=0.5, passes=2))
    mask = batch["tool_mask"]
    dirty = torch.where(mask.bool(), RETURNS, torch.nan)
    first = critic.fit(batch, RETURNS, mask)
    idle = pad_rows([*ROWS, row([3], [3], [0])], 0)
    second = other.fit(idle, torch.cat([dirty, torch.full((1, 4), torch.inf)]), idle["tool_mask"])
    assert first == pytest.approx(second, rel=1e-5)
    for name, value in weights_of(critic).items():
        torch.testing.assert_close(weights_of(other)[name], value)


def test_without_targets_weights_do_not_change(build, batch):
    critic = build()
    before = weights_of(critic)
    metrics = critic.fit(batch, RETURNS, torch.zeros_like(batch["tool_mask"]))
    assert set(metrics.values()) == {0.0}
    assert fit_contexts(critic, [], torch.zeros(0))["value_loss"] == 0
    assert same(before, weights_of(critic))


def test_missing_old_values_are_computed(build, batch):
    critic, other = (disturbed(build(clip=0.25, passes=3, learning_rate=1e-2)) for _ in range(2))
    first = critic.fit(batch, RETURNS, batch["tool_mask"])
    assert other.fit(batch, RETURNS, batch["tool_mask"], other.values(batch)) == first
    assert same(weights_of(critic), weights_of(other))
    assert first["clip_fraction"] > 0


def test_explained_variance_is_that_of_the_values_before_the_fit(build, batch):
    critic = build()
    mask = batch["tool_mask"].bool()
    old = 0.5 * RETURNS + 3
    assert critic.fit(batch, RETURNS, mask, old)["explained_variance"] == pytest.approx(1 - 0.25)
    assert critic.fit(batch, torch.ones_like(RETURNS), mask, old)["explained_variance"] == 0


def test_each_pass_has_every_sequence_in_one_mini_batch(build):
    critic = build(passes=3, mini_batch_rows=4)
    steps = list(critic._mini_batches(10))
    passes = [steps[first : first + 3] for first in (0, 3, 6)]
    assert [[len(step) for step in steps] for steps in passes] == [[4, 4, 2]] * 3
    for steps in passes:
        assert sorted(torch.cat(steps).tolist()) == list(range(10))
    assert torch.cat(passes[0]).tolist() != torch.cat(passes[1]).tolist()


def test_the_order_of_sequences_differs_between_fits(build, batch):
    critic = build(mini_batch_rows=1)
    seen = []

    def remember(rows, sums):
        seen.append(rows["prompt_ids"][0].tolist())
        return 0.0

    critic._one_step = remember
    for _ in range(4):
        critic.fit(
            batch, RETURNS, torch.tensor([list(one.loss_mask) + [0] * (4 - len(one.loss_mask)) for one in ROWS])
        )
    orders = [tuple(map(tuple, seen[start : start + 4])) for start in range(0, 16, 4)]
    assert all(len(set(order)) == 4 for order in orders)
    assert len(set(orders)) > 1


def test_a_step_that_is_not_finite_is_skipped_and_counted(build, batch):
    critic = disturbed(build(clip=None, max_grad_norm=None))
    before = weights_of(critic)
    metrics = critic.fit(batch, torch.full_like(RETURNS, 3e38), batch["tool_mask"], torch.zeros_like(RETURNS))
    assert metrics["skipped_steps"] == 1
    assert same(before, weights_of(critic))


def test_bf16_keeps_the_values_and_the_weights_in_float32(tokenizer, batch):
    AcceleratorState._reset_state(True)
    try:
        policy, own = (build_model(tokenizer, MicroConfig(**SIZES, seed=seed)) for seed in (9, 0))
        config = CriticConfig(learning_rate=1e-2, passes=5, clip=None)
        critic = Critic(own, policy, tokenizer, Accelerator(cpu=True, mixed_precision="bf16"), config)
        first = critic.fit(batch, RETURNS, batch["tool_mask"])
        assert critic.values(batch).dtype == torch.float32
        assert {value.dtype for value in weights_of(critic).values()} == {torch.float32}
        assert critic.fit(batch, RETURNS, batch["tool_mask"])["value_loss"] < first["value_loss"]
    finally:
        AcceleratorState._reset_state(True)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_targets_that_are_not_finite_are_refused(build, batch, value):
    with pytest.raises(ValueError, match="a critic's targets must be finite"):
        build().fit(batch, torch.full_like(RETURNS, value), batch["tool_mask"])


def test_targets_of_another_shape_are_refused(build, batch):
    with pytest.raises(
        ValueError, match=r"the shape of completion_ids, \(4, 4\), got \(4, 3\), \(4, 4\) and \(4, 4\); pass"
    ):
        build().fit(batch, RETURNS[:, :3], batch["tool_mask"])
    with pytest.raises(ValueError, match=r"got \(4, 4\), \(4, 4\) and \(4,\); pass"):
        build().fit(batch, RETURNS, batch["tool_mask"], old_values=RETURNS[:, 0])


# Checkpoints


def test_a_saved_critic_of_normalised_targets_predicts_in_the_unit_of_the_reward(build, batch, tmp_path):
    first, second = disturbed(build()), build(seed=1)
    first.weights.save(weights_file(tmp_path, "critic"), rate=0.5, mean=3.0, scale=2.0)
    second.load(tmp_path)
    mask = batch["tool_mask"].bool()
    torch.testing.assert_close(second.values(batch)[mask], 3 + 2 * first.values(batch)[mask])


@pytest.mark.parametrize("kind", ["own", "adapter"])
def test_it_resumes_exactly_from_a_checkpoint(build, batch, tokenizer, tmp_path, kind):
    def critic(seed):
        settings = {"clip": 0.5, "passes": 2, "mini_batch_rows": 2, "learning_rate": 1e-2, "warmup_steps": 6}
        if kind == "own":
            return build(seed=seed, **settings)
        policy = get_peft_model(build_model(tokenizer, MicroConfig(**SIZES)), LoraConfig(r=2))
        return build(LoraConfig(r=2), policy, **settings)

    first = critic(seed=0)
    first.fit(batch, RETURNS, batch["tool_mask"])
    torch.save(first.state(), tmp_path / "state.pt")
    straight = first.fit(batch, RETURNS, batch["tool_mask"])

    second = critic(seed=1)
    second.load_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert second.fit(batch, RETURNS, batch["tool_mask"]) == straight
    assert same(weights_of(first), weights_of(second))
    assert (first.fits, first.weights.steps) == (second.fits, second.weights.steps) == (2, 8)


@pytest.mark.parametrize("kind", ["own", "adapter"])
def test_it_is_saved_in_the_folder_of_the_policy_and_loaded_again(build, batch, tokenizer, tmp_path, kind):
    def critic(seed):
        if kind == "own":
            return build(seed=seed)
        policy = get_peft_model(build_model(tokenizer, MicroConfig(**SIZES)), LoraConfig(r=2))
        return build(LoraConfig(r=2), policy)

    first = disturbed(critic(seed=0))
    first.fit(batch, RETURNS, batch["tool_mask"])
    first.save(tmp_path)
    assert [path.name for path in (tmp_path / "critic").iterdir()] == ["critic.safetensors"]
    second = critic(seed=1)
    second.load(tmp_path)
    assert torch.equal(first.values(batch), second.values(batch))


def test_a_context_batch_has_one_completion_token_per_row():
    batch = context_batch([[5, 6], [7]], pad_token_id=0)
    assert batch["prompt_ids"].tolist() == [[5, 6], [0, 7]]
    assert batch["completion_ids"].shape == (2, 1)
    assert context_batch([], pad_token_id=0)["prompt_ids"].shape == (0, 1)


# Processes


def test_two_processes_fit_the_same_critic_as_one(tmp_path, accelerator):
    script = Path(__file__).with_name("two_critics.py")
    launch(script, tmp_path, processes=2, folder=tmp_path, environment={"ACCELERATE_USE_CPU": "true"})
    spec = importlib.util.spec_from_file_location("two_critics", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one = module.fitted(accelerator)

    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first["processes"] == second["processes"] == 2
    assert same(first["weights"], second["weights"])
    assert first["metrics"] == second["metrics"]
    for mine, theirs in zip(one["metrics"], first["metrics"], strict=True):
        assert theirs == pytest.approx(mine, rel=1e-3, abs=1e-5)
    for name, value in one["weights"].items():
        torch.testing.assert_close(first["weights"][name], value, rtol=1e-3, atol=1e-4)


# Settings


def test_a_critic_with_cross_entropy_learns_the_probability_of_a_rare_event(build, tmp_path):
    critic = build(loss="cross_entropy", learning_rate=0.02)
    assert context_values(critic, [[5, 6]]).tolist() == [0.5]
    contexts = [[5, 6, 7]] * 8
    rare = torch.tensor([1.0] + [0.0] * 7)
    for _ in range(60):
        metrics = fit_contexts(critic, contexts, rare)
    assert critic.rate == pytest.approx(1 / 8)
    assert context_values(critic, [[5, 6, 7]]).item() == pytest.approx(1 / 8, abs=0.02)
    assert metrics["value_loss"] == pytest.approx(math.log(2), abs=0.01)  # both classes weigh the same

    again = build(loss="cross_entropy")
    again.load_state(critic.state())
    critic.save(tmp_path)
    loaded = build(loss="cross_entropy")
    loaded.load(tmp_path)
    for other in (again, loaded):
        assert other.rate == critic.rate
        assert context_values(other, contexts).tolist() == context_values(critic, contexts).tolist()


def test_a_critic_with_cross_entropy_refuses_targets_outside_0_and_1(build):
    critic = build(loss="cross_entropy")
    with pytest.raises(
        ValueError, match=r"targets of a critic with cross-entropy must be in \[0, 1\], got 0.5 to 2.0"
    ):
        fit_contexts(critic, [[5], [6]], torch.tensor([0.5, 2.0]))
