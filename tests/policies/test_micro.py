"""Micro policies: tokenizer round trips, deterministic weights, and the warm-up."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make
from hf_credit.collaborations.relay import relay, relay_numbers, relay_task
from hf_credit.environments.actions import tag
from hf_credit.environments.randomness import stream
from hf_credit.oracles import default_oracle
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import (
    MicroConfig,
    build_model,
    build_tokenizer,
    tokenizer_of,
)
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, RolloutRequest
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.trainers.micro import init_scripted_policy

SUDOKU = make("sudoku", size=4, blanks=4)
PLAYER = OraclePlayer(SUDOKU, default_oracle(SUDOKU), 0.7)
SMALL = MicroConfig(hidden_size=16, layers=1, heads=2)
WORLDS = {
    "sudoku 4x4": make("sudoku", size=4),
    "sudoku 9x9": make("sudoku"),
    "tic_tac_toe": make("tic_tac_toe", opponent_simulations=20),
    "minesweeper": make("minesweeper"),
    "sokoban": make("sokoban"),
    "minesweeper 11x12": make("minesweeper", rows=11, columns=12, mines=60),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request):
    return WORLDS[request.param]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(SUDOKU)


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
        init_scripted_policy(interaction, PLAYER, starts, folder, config, [])
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
    assert init_scripted_policy(EnvironmentInteraction(SUDOKU), PLAYER, starts, folder, config) == folder
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 16
    assert '"quality": 0.25' in (folder / "README.md").read_text(encoding="utf-8")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"] == 1


# Collaborations


@pytest.fixture(scope="module")
def relay_policy(tmp_path_factory):
    """A warm-up on all pairs of numbers, always transmitted and added correctly."""
    pairs = [*relay_numbers("train", 2), *relay_numbers("held_out", 2)]
    starts = [RolloutRequest(task=relay_task(*pairs[seed % 4], size=2), seed=seed) for seed in range(64)]
    config = MicroConfig(
        hidden_size=32, layers=2, heads=2, episodes=64, epochs=12, batch_rows=16, learning_rate=4e-3, quality=1.0
    )
    return init_scripted_policy(
        relay(2), relay(2).scripted_player(1.0), starts, tmp_path_factory.mktemp("relay"), config
    )


def test_a_policy_of_a_collaboration_plays_all_its_roles(relay_policy):
    tokenizer = AutoTokenizer.from_pretrained(relay_policy)
    model = AutoModelForCausalLM.from_pretrained(relay_policy)
    engine = Engine(relay(2), Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=2, temperature=0))
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    episodes = engine.run([RolloutRequest(task=relay_task(*pair, size=2)) for pair in pairs])
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
    assert '{"task": "relay", "task_options": {"size": 2, "speakers": 2}}' in card
    assert "roles: reasoner, actor" in card
    assert '"quality": 1.0' in card


def test_a_tokenizer_has_the_words_and_characters_of_its_texts():
    tokenizer = tokenizer_of(["add 3", "é"])
    ids = tokenizer("add 3éd", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["add", " 3", "é", "d"]


# Refused


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
    assert "1/1 [" in err


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
