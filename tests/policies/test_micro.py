"""Micro policies: tokenizer round trips, deterministic weights, and the warm-up."""

from __future__ import annotations

import json
import math
import re
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make
from hf_credit.collaborations.relay import relay, relay_pairs, relay_player, relay_task
from hf_credit.environments.actions import tag
from hf_credit.environments.randomness import stream
from hf_credit.oracles import default_oracle
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import (
    MicroConfig,
    _examples,
    build_model,
    build_tokenizer,
    init_collaboration_policy,
    init_policy,
    init_scripted_policy,
    token_shares,
    tokenizer_of,
    warm_up,
)
from hf_credit.policies.scripted import scripted_episodes, walk
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, RolloutRequest, Row, decision_rows
from hf_credit.rollouts.scripts import OraclePlayer

SUDOKU = make("sudoku", size=4, blanks=4)
SMALL = MicroConfig(hidden_size=16, layers=1, heads=2)
WORLDS = {
    "sudoku 4x4": make("sudoku", size=4),
    "sudoku 9x9": make("sudoku"),
    "tic_tac_toe": make("tic_tac_toe", opponent_simulations=20),
    "minesweeper": make("minesweeper"),
    "minesweeper 11x12": make("minesweeper", rows=11, columns=12, mines=60),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request):
    return WORLDS[request.param]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(SUDOKU)


@pytest.fixture(scope="module")
def rows(tokenizer):
    starts = [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(24)]
    interaction = EnvironmentInteraction(SUDOKU, history="current", instructions=False)
    episodes = scripted_episodes(interaction, Chat(tokenizer), default_oracle(SUDOKU), 1.0, starts)
    return [row for episode in episodes for row in decision_rows(episode.decisions, [1.0] * len(episode.decisions))]


def texts(environment, seeds):
    """All texts and replies of episodes of other seeds, including their ends."""
    yield environment.instructions
    for seed in seeds:
        draws = stream(seed, "another walk")
        state = environment.initial_state(environment.sample_task(seed), seed)
        yield environment.observe(state)
        while actions := environment.legal_actions(state):
            yield from map(tag, actions)
            yield environment.step(state, "?").observation
            state = environment.step(state, draws.choice(actions)).state
            yield environment.observe(state)


# The tokenizer


def test_the_tokenizer_round_trips_every_text_of_its_environment(world):
    tokenizer = build_tokenizer(world)
    every = list(dict.fromkeys(texts(world, range(5000, 5008))))
    encoded = tokenizer(every, add_special_tokens=False)["input_ids"]
    assert tokenizer.batch_decode(encoded) == every
    assert not any(tokenizer.unk_token_id in ids for ids in encoded)


def test_a_tag_and_a_label_are_one_token_each(tokenizer):
    ids = tokenizer(" C1 C2\nR1 2 .<action>fill 1 2 3</action>", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == [
        " C1",
        " C2",
        "\n",
        "R1",
        " 2",
        " .",
        "<action>",
        "fill",
        " 1",
        " 2",
        " 3",
        "</action>",
    ]


def test_a_cell_with_its_value_or_candidates_is_one_token():
    tokenizer = build_tokenizer(make("sudoku", size=4, blanks=8, notation="candidates"))
    ids = tokenizer("a1=2 a2?3\nb1?14", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["a1=2", " a2?3", "\n", "b1?14"]


def test_the_template_closes_every_turn_with_the_end_token(tokenizer):
    chat = Chat(tokenizer)
    messages = [
        {"role": "user", "content": "R1 2"},
        {"role": "assistant", "content": "C1"},
        {"role": "user", "content": "."},
    ]
    assert (
        tokenizer.decode(chat.context(messages))
        == "<|user|>R1 2<|end|><|assistant|>C1<|end|><|user|>.<|end|><|assistant|>"
    )
    assert tokenizer.eos_token == "<|end|>"
    assert len({tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id}) == 3


@given(st.text(max_size=30) | st.text("R1fill \n<>/action", max_size=30))
def test_the_tokenizer_accepts_any_text_and_round_trips_known_characters(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert all(0 <= token < len(tokenizer) for token in ids)
    decoded = tokenizer.decode(ids)
    if set(text) <= set(tokenizer.get_vocab()):
        assert decoded == text
        assert tokenizer.unk_token_id not in ids


def test_building_a_tokenizer_is_deterministic(tokenizer):
    assert build_tokenizer(SUDOKU).get_vocab() == tokenizer.get_vocab()


# The model


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_the_weights_depend_only_on_the_seed(tokenizer):
    torch.manual_seed(1)
    first = weights(build_model(tokenizer, SMALL))
    torch.manual_seed(2)
    assert torch.equal(weights(build_model(tokenizer, SMALL)), first)
    assert not torch.equal(
        weights(build_model(tokenizer, MicroConfig(hidden_size=16, layers=1, heads=2, seed=1))), first
    )


def test_building_does_not_change_torchs_generator(tokenizer):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build_model(tokenizer, SMALL)
    assert torch.equal(torch.rand(3), expected)


def test_the_model_has_the_chosen_size(tokenizer):
    model = build_model(tokenizer, MicroConfig(hidden_size=32, layers=3, heads=4), context=77)
    assert model.config.model_type == "qwen3"
    assert (model.config.hidden_size, model.config.num_hidden_layers, model.config.num_attention_heads) == (32, 3, 4)
    assert model.config.max_position_embeddings == 77
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 32)
    assert model.dtype == torch.float32


# Warm-up


def imitation_loss(model, rows):
    """Mean cross entropy of the tokens in the loss, row by row and without padding."""
    losses = []
    for row in rows:
        ids = [*row.prompt_ids, *row.completion_ids]
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        for position, on in enumerate(row.loss_mask, start=len(row.prompt_ids)):
            if on:
                losses.append(-logprobs[position - 1, ids[position]].item())
    return sum(losses) / len(losses)


def test_warm_up_lowers_the_loss(tokenizer, rows):
    model = build_model(tokenizer, SMALL)
    before = imitation_loss(model, rows)
    assert before == pytest.approx(math.log(len(tokenizer)), rel=0.5)
    warm_up(
        model, rows, tokenizer.pad_token_id, MicroConfig(hidden_size=16, layers=1, heads=2, epochs=4, batch_rows=8)
    )
    assert imitation_loss(model, rows) < before / 2
    assert not model.training


def test_each_step_reports_the_loss_before_it(tokenizer, rows):
    model = build_model(tokenizer, SMALL)
    first = imitation_loss(model, rows)
    steps = []
    config = MicroConfig(hidden_size=16, layers=1, heads=2, epochs=2, batch_rows=len(rows))
    warm_up(model, rows, tokenizer.pad_token_id, config, lambda *step: steps.append(step))
    assert [step[:2] for step in steps] == [(1, 2), (2, 2)]
    assert steps[0][2] == pytest.approx(first, rel=1e-4)


def test_every_row_is_used_once_per_epoch(tokenizer, rows):
    steps = []
    config = MicroConfig(hidden_size=16, layers=1, heads=2, epochs=3, batch_rows=40)
    warm_up(build_model(tokenizer, SMALL), rows, tokenizer.pad_token_id, config, lambda *step: steps.append(step))
    assert len(rows) == 96
    assert len(steps) == 3 * 3  # 40, 40 and 16 rows


def test_only_tokens_in_the_loss_are_imitated(tokenizer):
    # The first completion token is context: the reported loss is that of the second, whatever the first is.
    model = build_model(tokenizer, SMALL)
    row = Row(prompt_ids=(7, 8), completion_ids=(9, 10), loss_mask=(0, 1), advantages=(0.0, 1.0), logprobs=None)
    expected = imitation_loss(model, [row])
    steps = []
    warm_up(model, [row], tokenizer.pad_token_id, SMALL, lambda *step: steps.append(step))
    assert steps[0][2] == pytest.approx(expected, rel=1e-4)


def test_each_tokens_share_is_that_of_the_replies_that_continue_with_it():
    # Three replies: 1 5 9 (a half), 1 6 9 (a quarter), 2 6 9 (a quarter). After a 1, two thirds continue with 5.
    replies = {(1, 5, 9): 0.5, (1, 6, 9): 0.25, (2, 6, 9): 0.25}
    assert token_shares((1, 5, 9), replies) == [{1: 0.75, 2: 0.25}, {5: 2 / 3, 6: 1 / 3}, {9: 1.0}]
    assert token_shares((2, 6, 9), replies) == [{1: 0.75, 2: 0.25}, {6: 1.0}, {9: 1.0}]


def test_replies_may_have_different_lengths():
    replies = {(1, 9): 0.5, (1, 1, 9): 0.5}
    assert token_shares((1, 9), replies) == [{1: 1.0}, {9: 0.5, 1: 0.5}]
    assert token_shares((1, 1, 9), replies) == [{1: 1.0}, {9: 0.5, 1: 0.5}, {9: 1.0}]


def test_shares_of_tokens_are_imitated(tokenizer):
    # The loss is the cross entropy with the shares: the mean of the tokens' losses, weighted by their shares.
    def loss(token, targets=None):
        row = Row(prompt_ids=(7, 8), completion_ids=(token,), loss_mask=(1,), advantages=(1.0,), logprobs=None)
        losses = []
        model = build_model(tokenizer, SMALL)
        warm_up(model, [row], tokenizer.pad_token_id, SMALL, lambda *step: losses.append(step[2]), targets)
        return losses[0]

    assert loss(9, [[{9: 0.75, 10: 0.25}]]) == pytest.approx(0.75 * loss(9) + 0.25 * loss(10), rel=1e-5)


def test_the_replies_of_an_oracle_player_are_imitated_by_their_probabilities(tokenizer):
    interaction = EnvironmentInteraction(SUDOKU, history="append", instructions=False)
    chat, player = Chat(tokenizer), OraclePlayer(SUDOKU, default_oracle(SUDOKU), 0.7)
    start = RolloutRequest(task={"seed": 3}, seed=3)
    ((row, shares),) = _examples(interaction, chat, chat.encode, player, walk(interaction, player, start))
    said = [token for token, on in zip(row.completion_ids, row.loss_mask, strict=True) if on]
    assert len(shares) == len(said) == 4 * 7
    assert all(
        token in share and sum(share.values()) == pytest.approx(1) for token, share in zip(said, shares, strict=True)
    )
    # The digit after the row and the column: the right one has probability 0.7 + 0.3 / 4.
    assert sorted(shares[4].values()) == pytest.approx([0.075, 0.075, 0.075, 0.775])


# The folder


def test_the_folder_loads_with_transformers_and_generates(micro_policy):
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    context = Chat(tokenizer).context([{"role": "user", "content": SUDOKU.observe(state())}])
    output = model.generate(torch.tensor([context]), max_new_tokens=20, do_sample=False)
    reply = tokenizer.decode(output[0, len(context) :])
    assert re.fullmatch(r"<action>fill [1-4] [1-4] [1-4]</action><\|end\|>", reply)


def state():
    return SUDOKU.initial_state(SUDOKU.sample_task(77), 77)


def test_the_saved_tokenizer_loads_unchanged(micro_policy, tokenizer):
    opened = AutoTokenizer.from_pretrained(micro_policy)
    text = f"{SUDOKU.instructions}\n{SUDOKU.observe(state())}{tag('fill 1 2 3')}"
    assert opened(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert opened.decode(opened(text, add_special_tokens=False)["input_ids"]) == text
    assert (opened.pad_token, opened.eos_token, opened.padding_side) == ("<|pad|>", "<|end|>", "left")
    assert opened.chat_template == tokenizer.chat_template


def test_the_card_describes_the_folder(micro_policy):
    card = (micro_policy / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "`sudoku`" in card
    assert '{"size": 4, "blanks": 4, "notation": "grid"}' in card
    assert '"history": "current"' in card
    assert '"quality": 0.7' in card
    parameters = AutoModelForCausalLM.from_pretrained(micro_policy).num_parameters()
    assert f"{parameters:,} parameters" in card


def test_the_same_seed_builds_the_same_policy(tmp_path):
    def build(folder, **changes):
        config = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=4, batch_rows=4, **changes)
        starts = [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(4)]
        interaction = EnvironmentInteraction(SUDOKU, history="current", instructions=False)
        init_policy(interaction, default_oracle(SUDOKU), starts, folder, config)
        return weights(AutoModelForCausalLM.from_pretrained(folder))

    torch.manual_seed(1)
    first = build(tmp_path / "first")
    torch.manual_seed(2)
    assert torch.equal(build(tmp_path / "second"), first)
    assert not torch.equal(build(tmp_path / "third", seed=1), first)


def test_an_old_folder_is_replaced(tmp_path, micro_policy):
    folder = tmp_path / "policy"
    shutil.copytree(micro_policy, folder)
    config = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=2, quality=0.25)
    starts = [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(2)]
    assert init_policy(EnvironmentInteraction(SUDOKU), default_oracle(SUDOKU), starts, folder, config) == folder
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 16
    assert '"quality": 0.25' in (folder / "README.md").read_text(encoding="utf-8")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"] == 1


# Collaborations


@pytest.fixture(scope="module")
def relay_policy(tmp_path_factory):
    """A warm-up on all pairs of numbers, always transmitted and added correctly."""
    pairs = [*relay_pairs("train", 2), *relay_pairs("held_out", 2)]
    starts = [RolloutRequest(task=relay_task(*pairs[seed % 4], 2), seed=seed) for seed in range(64)]
    config = MicroConfig(
        hidden_size=32, layers=2, heads=2, episodes=64, epochs=12, batch_rows=16, learning_rate=4e-3, quality=1.0
    )
    return init_collaboration_policy(
        relay(2), lambda quality: relay_player(quality, 2), starts, tmp_path_factory.mktemp("relay"), config
    )


def test_a_policy_of_a_collaboration_plays_all_its_roles(relay_policy):
    tokenizer = AutoTokenizer.from_pretrained(relay_policy)
    model = AutoModelForCausalLM.from_pretrained(relay_policy)
    engine = Engine(relay(2), Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=2, temperature=0))
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    episodes = engine.run([RolloutRequest(task=relay_task(*pair, 2)) for pair in pairs])
    assert [[d.action_text for d in episode.decisions] for episode in episodes] == [
        ["0", "0"],
        ["0", "1"],
        ["1", "1"],
        ["1", "0"],
    ]
    assert {len(decision.action_ids) for episode in episodes for decision in episode.decisions} == {2}


def test_the_tokenizer_of_a_collaboration_has_the_words_of_its_texts(relay_policy):
    tokenizer = AutoTokenizer.from_pretrained(relay_policy)
    ids = tokenizer("Problem: secret 1\n\nContext:", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["Problem", ":", " secret", " 1", "\n", "\n", "Context", ":"]


def test_the_card_of_a_collaboration_describes_the_folder(relay_policy):
    card = (relay_policy / "README.md").read_text(encoding="utf-8")
    assert "tags: [hf-credit, micro-policy, relay]" in card
    assert "# A micro policy for `relay`" in card
    assert '{"collaboration": "relay", "collaboration_options": {"size": 2, "speakers": 2}}' in card
    assert "roles: reasoner, actor" in card
    assert '"quality": 1.0' in card


def test_a_tokenizer_has_the_words_and_characters_of_its_texts():
    tokenizer = tokenizer_of(["add 3", "é"])
    ids = tokenizer("add 3éd", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["add", " 3", "é", "d"]


# Refused


@pytest.mark.parametrize("quality", [-0.1, 1.5, math.nan])
def test_a_quality_out_of_range_is_refused(quality):
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\], got "):
        MicroConfig(quality=quality)


@pytest.mark.parametrize("name", ["hidden_size", "layers", "heads", "episodes", "epochs", "batch_rows"])
def test_a_size_below_one_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be at least 1, got 0; raise it\."):
        MicroConfig(**{name: 0})


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="hidden_size must be a multiple of heads, got 64 and 5; "):
        MicroConfig(heads=5)


def test_without_a_callback_progress_bars_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("transformers.utils.logging._tqdm_active", True)  # commands in the same process turn bars off
    interaction = relay(size=4)
    starts = [RolloutRequest(task=row, seed=place) for place, row in enumerate(interaction.tasks("train", 4))]
    config = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=4, batch_rows=4)
    init_scripted_policy(interaction, interaction.scripted_player(0.5), starts, tmp_path, config)
    err = capsys.readouterr().err
    assert "scripted play" in err
    assert "warm-up: 100%" in err
    assert "loss" in err


def test_a_tokenizer_of_tasks_with_tools_shows_them_and_reads_their_calls(tmp_path):
    tools = [
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {}}}}}
    ]
    said = '<tool_call>{"name": "look", "arguments": {"at": "a door"}}</tool_call>'
    tokenizer_of(["What now?", "look: at, ", said], tools=True).save_pretrained(tmp_path)
    chat = Chat(AutoTokenizer.from_pretrained(tmp_path))
    messages = [{"role": "user", "content": "What now?"}]
    context = chat.context(messages, None, tools)
    assert chat.tokenizer.decode(context) == "<|system|>look: at, <|end|><|user|>What now?<|end|><|assistant|>"
    reply = chat.reply(chat.reply_ids(said), context, tools)
    assert (reply.content, reply.calls) == ("", (("look", '{"at": "a door"}'),))
    called = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"at": "a door"}}}],
    }
    shown = chat.context([*messages, called, {"role": "tool", "content": "now"}], None, tools)
    assert chat.tokenizer.decode(shown[len(context) :]).startswith(f"{said}<|end|><|user|>now<|end|>")
