"""The rows of demonstrations are those of a rollout with the same replies."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_credit import make
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.environments.actions import marked, write_call
from hf_credit.oracles import default_oracle
from hf_credit.policies.micro import build_tokenizer, tokenizer_of
from hf_credit.policies.scripted import (
    IGNORED,
    Demonstration,
    demonstrations,
    hold_out,
    select,
    success_of,
    supervised_rows,
    task_of,
    token_shares,
    walk,
)
from hf_credit.rollouts import (
    Chat,
    Decision,
    Ending,
    Engine,
    EnvironmentInteraction,
    Episode,
    Generation,
    RolloutRequest,
    decision_rows,
)
from hf_credit.rollouts.scripts import OraclePlayer

SUDOKU = make("sudoku", size=4, blanks=4)
PLAYER = OraclePlayer(SUDOKU, default_oracle(SUDOKU), 0.7)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Library:
    """A world with a tool."""

    def reset(self, **row):
        return "Answer with the number alone."

    def look_up(self, place: str) -> str:
        """Looks up how high a mountain is.

        Args:
            place: the mountain's name.
        """
        return {"Rigi": "1798"}.get(place, "unknown")


def correct(completions, answer, **columns):
    return [float(run[-1]["content"] == gold) for run, gold in zip(completions, answer, strict=True)]


def looks_up(state, request, draws):
    return "1798" if request.messages[-1]["role"] == "tool" else marked(write_call("look_up", {"place": "Rigi"}))


QUESTION = {"prompt": [{"role": "user", "content": "How high is the Rigi?"}], "answer": "1798"}
LIBRARY = make("tools", factory=Library, columns=["prompt", "answer"], reward_funcs=[correct], turns=2)
WORDS = [
    "How high is the Rigi? Answer with the number alone. 1798 unknown",
    json.dumps(list(LIBRARY.tools)),
    marked(""),
]
TASKS = {
    "append": (EnvironmentInteraction(SUDOKU), PLAYER, {}, build_tokenizer(SUDOKU)),
    "current": (EnvironmentInteraction(SUDOKU, history="current"), PLAYER, {}, build_tokenizer(SUDOKU)),
    "tools": (EnvironmentInteraction(LIBRARY), looks_up, QUESTION, tokenizer_of(WORDS, tools=True)),
    "relay": (relay(4), relay(4).scripted_player(0.5), relay_task(1, 2, size=4), tokenizer_of(["abc xyz 0123"])),
}


def chatml(tokenizer):
    """A tokenizer with another template, in which a line break follows the end of a turn."""
    return type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHATML,
    )


def shown(name, seed=0, tokenizer=None):
    interaction, script, task, own = TASKS[name]
    chat, start = Chat(tokenizer or own), RolloutRequest(task={**task, "seed": seed}, seed=seed)
    (found,) = demonstrations(interaction, chat, script, [(start, walk(interaction, script, start))])
    return interaction, chat, start, found


def rolled_out(interaction, chat, start, found):
    """The rows of an engine's episode with the same replies, as a training has them."""
    replies = iter([decision.action_ids for decision in found.episode.decisions])
    engine = Engine(interaction, chat, lambda contexts: [Generation(ids=next(replies)) for _ in contexts])
    (episode,) = engine.run([start])
    return decision_rows(episode.decisions, [1.0] * len(episode.decisions))


@pytest.mark.parametrize("template", ["own", "chatml"])
@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_the_labels_are_the_tokens_of_a_rollout(name, template, seed):
    tokenizer = chatml(TASKS[name][3]) if template == "chatml" and name != "tools" else None
    interaction, chat, start, found = shown(name, seed, tokenizer)
    rows = rolled_out(interaction, chat, start, found)
    ours = supervised_rows(found)
    assert [row["input_ids"] for row in ours] == [[*row.prompt_ids, *row.completion_ids] for row in rows]
    for row, label in zip(rows, [row["labels"] for row in ours], strict=True):
        learned = [False] * len(row.prompt_ids) + [bool(on) for on in row.loss_mask]
        ids = [*row.prompt_ids, *row.completion_ids]
        assert label == [token if on else IGNORED for token, on in zip(ids, learned, strict=True)]


def test_a_reply_is_learned_to_its_end_token_and_a_tools_result_is_not():
    _, chat, _, found = shown("tools")
    (row,) = supervised_rows(found)
    learned = chat.tokenizer.decode([token for token in row["labels"] if token != IGNORED])
    assert learned == '<tool_call>{"name": "look_up", "arguments": {"place": "Rigi"}}</tool_call><|end|>1798<|end|>'
    assert chat.tokenizer.decode(row["input_ids"]).count("1798") == 2
    assert success_of(found.episode) == 1.0


# The distributions of tokens


def test_each_tokens_share_is_that_of_the_replies_that_continue_with_it():
    # Three replies: 1 5 9 (a half), 1 6 9 (a quarter), 2 6 9 (a quarter). After a 1, two thirds continue with 5.
    replies = {(1, 5, 9): 0.5, (1, 6, 9): 0.25, (2, 6, 9): 0.25}
    assert token_shares((1, 5, 9), replies) == [{1: 0.75, 2: 0.25}, {5: 2 / 3, 6: 1 / 3}, {9: 1.0}]
    assert token_shares((2, 6, 9), replies) == [{1: 0.75, 2: 0.25}, {6: 1.0}, {9: 1.0}]


def test_replies_may_have_different_lengths():
    replies = {(1, 9): 0.5, (1, 1, 9): 0.5}
    assert token_shares((1, 9), replies) == [{1: 1.0}, {9: 0.5, 1: 0.5}]
    assert token_shares((1, 1, 9), replies) == [{1: 1.0}, {9: 0.5, 1: 0.5}, {9: 1.0}]


@pytest.mark.parametrize("name", ["append", "current"])
def test_the_replies_of_an_oracle_player_are_imitated_by_their_probabilities(name):
    rows = supervised_rows(shown(name, 3)[3])
    counts, tokens, shares = ([value for row in rows for value in row[key]] for key in ("counts", "tokens", "shares"))
    said = [token for row in rows for token in row["labels"] if token != IGNORED]
    assert len(rows) == (1 if name == "append" else 4)
    assert len(counts) == len(said) == 4 * 7
    places = [0]
    for count in counts:
        places.append(places[-1] + count)
    own = [dict(zip(tokens[first:end], shares[first:end], strict=True)) for first, end in itertools.pairwise(places)]
    assert all(token in each and sum(each.values()) == pytest.approx(1) for token, each in zip(said, own, strict=True))
    # The digit after the row and the column: the right one has probability 0.7 + 0.3 / 4.
    assert sorted(own[4].values()) == pytest.approx([0.075, 0.075, 0.075, 0.775])


def test_the_shares_of_conversations_side_by_side_stay_with_their_replies():
    decisions = [
        Decision(role=role, state=step, context_ids=context, action_ids=(reply,), logprobs=None, action_text="")
        for role, step, context, reply in [("a", 0, (1,), 2), ("b", 0, (3,), 4), ("a", 1, (1, 2, 5), 6)]
    ]
    episode = Episode(decisions=tuple(decisions), outcome=1.0, ending=Ending.FINISHED)
    shares = tuple([{decision.action_ids[0]: 0.5, 9: 0.5}] for decision in decisions)
    first, second = supervised_rows(Demonstration(task="", episode=episode, shares=shares))
    assert (first["input_ids"], first["labels"], first["tokens"]) == ([1, 2, 5, 6], [-100, 2, -100, 6], [2, 9, 6, 9])
    assert (second["input_ids"], second["labels"], second["tokens"]) == ([3, 4], [-100, 4], [4, 9])


def test_the_replies_of_untrained_roles_are_not_learned():
    _, _, _, found = shown("relay")
    told, said = found.episode.decisions
    untrained = dataclasses.replace(told, trained=False)
    episode = dataclasses.replace(found.episode, decisions=(untrained, said))
    assert len(supervised_rows(found)) == 2
    assert len(supervised_rows(dataclasses.replace(found, episode=episode))) == 1


# Which episodes


def demonstration(task="a", outcome=1.0, context=3, reply=2, **changed):
    decision = Decision(
        role="agent",
        state=None,
        context_ids=(1,) * context,
        action_ids=(2,) * reply,
        logprobs=None,
        action_text="",
    )
    episode = Episode(decisions=(decision,), outcome=outcome, ending=Ending.FINISHED)
    return Demonstration(task=task, episode=dataclasses.replace(episode, **changed))


def test_failed_and_long_episodes_are_left_out_and_counted():
    found = [
        demonstration(),
        demonstration(outcome=0.0),
        demonstration(outcome=math.nan),
        demonstration(outcome=1.0, metrics={"success": 0.0}),
        demonstration(reply=5),
        demonstration(context=9),
        demonstration(context=7, reply=4),
        demonstration(ending=Ending.ERROR),
        demonstration(decisions=()),
    ]
    kept, dropped = select(found, 1.0, max_new_tokens=4, max_context_tokens=8, max_length=10)
    assert kept == [found[0], found[2]]  # without an outcome nothing is known to have failed
    assert dropped == {
        "failed (success below 1)": 2,
        "with a reply above 4 tokens (max_new_tokens)": 1,
        "with a context above 8 tokens": 1,
        "above 10 tokens (max_length)": 1,
        "ended in an error": 1,
        "without a reply of a trained role": 1,
    }
    assert len(select(found)[0]) == 7


@given(
    tasks=st.lists(st.sampled_from("abcdefgh"), max_size=30),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 5),
)
def test_no_task_is_learned_and_held_out(tasks, share, seed):
    found = [demonstration(task) for task in tasks]
    learned, held_out = hold_out(found, share, seed)
    assert len(learned) + len(held_out) == len(found)
    assert {one.task for one in learned}.isdisjoint(one.task for one in held_out)
    assert bool(held_out) == (share > 0 and len(set(tasks)) > 1)
    assert bool(learned) == bool(tasks)


def test_a_task_is_its_row_without_the_seed():
    same = [RolloutRequest(task={"problem": "?", "seed": seed}, seed=seed) for seed in (1, 2)]
    assert task_of(same[0]) == task_of(same[1])
    assert task_of(RolloutRequest(task={}, seed=1)) != task_of(RolloutRequest(task={}, seed=2))
