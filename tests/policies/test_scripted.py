"""Scripted play has the given quality, and is recorded like that of a policy."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hf_credit import make
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.environments.actions import tag
from hf_credit.oracles import default_oracle
from hf_credit.policies.micro import build_tokenizer, tokenizer_of
from hf_credit.policies.scripted import play, walk, walks
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    EnvironmentInteraction,
    Generation,
    Interaction,
    Request,
    RolloutRequest,
    verify,
)
from hf_credit.rollouts.scripts import OraclePlayer

SUDOKU = make("sudoku", size=4, blanks=4)
ORACLE = default_oracle(SUDOKU)
STARTS = [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(100)]


def scripted_episode(interaction, chat, oracle, quality, start):
    return play(interaction, chat, OraclePlayer(interaction.environment, oracle, quality), start)


def scripted_episodes(interaction, chat, oracle, quality, starts):
    return [scripted_episode(interaction, chat, oracle, quality, start) for start in starts]


@pytest.fixture(scope="module")
def chat():
    return Chat(build_tokenizer(SUDOKU))


def share_of_valid(episodes):
    verdicts = [
        decision.verdict.valid
        for episode in verify(episodes, ORACLE, EnvironmentInteraction(SUDOKU))
        for decision in episode.decisions
    ]
    return sum(verdicts) / len(verdicts)


def test_the_best_player_always_plays_oracle_valid_actions(chat):
    episodes = scripted_episodes(EnvironmentInteraction(SUDOKU), chat, ORACLE, 1.0, STARTS[:20])
    assert share_of_valid(episodes) == 1
    assert {episode.outcome for episode in episodes} == {1.0}
    assert {(episode.ending, episode.metrics["success"]) for episode in episodes} == {(Ending.FINISHED, 1.0)}


@pytest.mark.parametrize("quality", [0.0, 0.5, 0.9])
def test_its_other_actions_are_random_legal_ones(chat, quality):
    episodes = scripted_episodes(EnvironmentInteraction(SUDOKU), chat, ORACLE, quality, STARTS)
    assert {episode.ending for episode in episodes} == {Ending.FINISHED}
    assert {len(episode.decisions) for episode in episodes} == {4}
    # One of the four digits of an empty cell is valid. Three standard deviations of 400 decisions are 0.075 at most.
    assert share_of_valid(episodes) == pytest.approx(quality + (1 - quality) / 4, abs=0.075)


def test_an_oracle_player_returns_the_probability_of_each_reply():
    player = OraclePlayer(SUDOKU, ORACLE, 0.6)
    interaction = EnvironmentInteraction(SUDOKU)
    state = interaction.start(STARTS[0].task, 0)
    (request,) = interaction.pending(state)
    shares = player.probabilities(state, request)
    # Four empty cells: 16 legal actions share 0.4, and the four valid ones 0.6 besides.
    valid = {tag(action) for action in ORACLE.valid_actions(state.world)}
    assert {text for text, share in shares.items() if share > 0.1} == valid
    assert sorted(shares.values()) == pytest.approx([0.4 / 16] * 12 + [0.6 / 4 + 0.4 / 16] * 4)
    draws = random.Random(0)
    drawn = Counter(player(state, request, draws) for _ in range(4000))
    assert drawn.keys() <= shares.keys()
    # Five standard deviations of a share of 4000 draws are 0.03 at most.
    assert all(drawn[text] / 4000 == pytest.approx(share, abs=0.03) for text, share in shares.items())


def test_replies_that_a_player_never_gives_have_no_probability():
    interaction = EnvironmentInteraction(SUDOKU)
    state = interaction.start(STARTS[0].task, 0)
    (request,) = interaction.pending(state)
    assert set(OraclePlayer(SUDOKU, ORACLE, 1.0).probabilities(state, request).values()) == {0.25}
    assert set(OraclePlayer(SUDOKU, ORACLE, 0.0).probabilities(state, request).values()) == {1 / 16}


@pytest.mark.parametrize("history", ["append", "current"])
@pytest.mark.parametrize("name", ["sudoku", "sokoban", "tic_tac_toe", "minesweeper"])
def test_a_scripted_episode_equals_an_engines_with_the_same_replies(name, history):
    options = {
        "sokoban": {},
        "sudoku": {"size": 4},
        "tic_tac_toe": {"opponent": "random"},
        "minesweeper": {"rows": 3, "columns": 3},
    }
    environment = make(name, **options[name])
    chat = Chat(build_tokenizer(environment))
    interaction = EnvironmentInteraction(environment, history=history)
    for start in STARTS[:4]:
        scripted = scripted_episode(interaction, chat, default_oracle(environment), 0.5, start)
        replies = iter([decision.action_ids for decision in scripted.decisions])

        def repeat(contexts, replies=replies):
            return [Generation(ids=next(replies)) for _ in contexts]

        assert Engine(interaction, chat, repeat).run([start]) == [scripted]


def test_a_reply_is_an_action_in_tags_closed_by_the_end_token(chat):
    episode = scripted_episode(EnvironmentInteraction(SUDOKU), chat, ORACLE, 1.0, STARTS[0])
    for decision in episode.decisions:
        assert decision.action_text in {
            f"<action>{action}</action>" for action in ORACLE.valid_actions(decision.state.world)
        }
        assert chat.tokenizer.decode(decision.action_ids) == f"{decision.action_text}<|end|>"
        assert decision.logprobs is None


def test_the_seed_determines_the_player(chat):
    interaction = EnvironmentInteraction(SUDOKU)
    task = SUDOKU.sample_task(0)
    first, again, other = (
        scripted_episode(interaction, chat, ORACLE, 0.5, RolloutRequest(task=task, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again
    assert [d.action_text for d in first.decisions] != [d.action_text for d in other.decisions]


def test_it_stops_at_the_turn_limit(chat):
    interaction = EnvironmentInteraction(SUDOKU, max_turns=2)
    episode = scripted_episode(interaction, chat, ORACLE, 1.0, STARTS[0])
    assert (episode.ending, len(episode.decisions)) == (Ending.TURN_LIMIT, 2)


@pytest.mark.parametrize("quality", [-0.1, 1.1, float("nan")])
def test_a_quality_out_of_range_is_refused(chat, quality):
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\], got "):
        scripted_episode(EnvironmentInteraction(SUDOKU), chat, ORACLE, quality, STARTS[0])


# Scripts of one's own


VOTE = Collaboration(
    roles={"asker": "ask", "voter": "vote"},
    events=[
        Event("open", "asker"),
        Event("first", "voter", after="open"),
        Event("second", "voter", after="open"),
        Event("count", "asker", after=("first", "second")),
    ],
    final="count",
    scorer=lambda task, text: text == task["answer"],
)


def vote(state, request, draws):
    return request.messages[1]["content"][-1] if request.event == "count" else str(draws.randrange(10))


def test_a_script_plays_all_roles_of_a_collaboration():
    steps, final = walk(VOTE, vote, RolloutRequest(task={"problem": "?", "answer": ""}, seed=3))
    assert [[request.event for request in requests] for _, requests, _ in steps] == [
        ["open"],
        ["first", "second"],
        ["count"],
    ]
    assert [reply for _, _, replies in steps for reply in replies] == [text for _, text in final.transcript]
    assert steps[0][0] == VOTE.start({"problem": "?", "answer": ""}, 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_scripts_episode_equals_an_engines(seed):
    chat = Chat(tokenizer_of(["Problem: ?\n\nContext: 0123456789", "ask", "vote"]))
    start = RolloutRequest(task={"problem": "?", "answer": "4"}, seed=seed)
    scripted = play(VOTE, chat, vote, start)
    replies = iter([decision.action_ids for decision in scripted.decisions])
    assert Engine(VOTE, chat, lambda contexts: [Generation(ids=next(replies)) for _ in contexts]).run([start]) == [
        scripted
    ]
    assert [decision.event for decision in scripted.decisions] == ["open", "first", "second", "count"]
    assert scripted.outcome == float(scripted.decisions[2].action_text == "4")


def test_the_seed_of_a_start_determines_the_script():
    player = relay().scripted_player(0.0)
    transcripts = [
        walk(relay(), player, RolloutRequest(task=relay_task(1, 2), seed=seed))[1].transcript for seed in range(20)
    ]
    assert len(set(transcripts)) > 10
    assert transcripts[3] == walk(relay(), player, RolloutRequest(task={**relay_task(1, 2), "seed": 3}))[1].transcript


class Endless(Interaction):
    """Asks for ever; the state counts the replies."""

    def start(self, task, seed):
        return 0

    def pending(self, state):
        return (Request(role="walker", messages=[{"role": "user", "content": "on?"}]),)

    def advance(self, state, replies):
        return state + 1

    def outcome(self, state):
        return 0.0


def test_a_scripted_episode_without_an_end_is_dropped():
    dropped = Counter()
    starts = [RolloutRequest(task={}, seed=0)]
    assert not list(walks(Endless(), lambda state, request, draws: "on", starts, dropped))
    assert dropped == {"raised ValueError": 1}
