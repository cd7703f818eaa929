"""Replay and the confined re-run."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hf_credit.rollouts import Ending, Episode
from hf_credit.tasks import TaskSpec
from hf_credit_leaderboard import confined, playing
from hf_credit_leaderboard.confined import ISOLATION, ConfinedError, Limits, confined_play
from hf_credit_leaderboard.entries import PlayedEpisode
from hf_credit_leaderboard.records import REPLAYED, VERIFIED, Record, linked
from hf_credit_leaderboard.results import read_results
from hf_credit_leaderboard.seasons import SeasonSecret, print_key, secret_seeds, starts_of
from hf_credit_leaderboard.verification import Refusal, replay_entry, replay_episode, require_seeds, verify_entry
from hf_credit_leaderboard.weights import check_folder, parameters, template_digest, tensor_digest

from .conftest import Board, Listed, commit_of, scripted_sudoku


def replayed(listed: Listed, **changed: Any) -> None:
    interaction = listed.season.board("sudoku").task().build()
    episode = dataclasses.replace(scripted_sudoku(listed.season)[0], **changed)
    (start,) = starts_of(interaction, [episode.seed])
    replay_episode(interaction, start, episode)


def test_replies_that_lead_to_their_outcome_pass_the_replay(listed: Listed) -> None:
    replayed(listed)


def test_what_does_not_come_of_its_replies_is_refused(listed: Listed) -> None:
    honest = scripted_sudoku(listed.season)[0]
    last = len(honest.replies) - 1
    for changed, reason in (
        ({"outcome": honest.outcome + 0.5}, "its outcome"),
        ({"ending": "turn_limit"}, "its ending"),
        ({"events": ("actor", *honest.events[1:])}, "its events"),
        ({"ending": "error"}, "outcome of a failure") if honest.outcome else ({"ending": "cut"}, "its ending"),
        (
            {
                "replies": (*honest.replies, "more"),
                "events": (*honest.events, "agent"),
                "tokens": (*honest.tokens, 1),
            },
            "number of its replies",
        ),
        ({"replies": (*honest.replies[:last], "nonsense")}, "its outcome|its ending"),
    ):
        with pytest.raises(ValueError, match=reason):
            replayed(listed, **changed)


def test_where_outcomes_can_be_negative_no_episode_gains_by_not_being_played() -> None:
    lowest = dict[str, set[float]]()
    for task, options in (("tic_tac_toe", {}), ("sudoku", {"size": 4, "blanks": 4}), ("relay", {"size": 5})):
        interaction = TaskSpec.of_name(task, options).build()
        (start,) = starts_of(interaction, [5])
        for ending, outcome in ((Ending.ERROR, math.nan), (Ending.TRUNCATED, 0.0)):
            unplayed = Episode(decisions=(), outcome=outcome, ending=ending)
            episode = PlayedEpisode.of(0, 5, unplayed, interaction)
            replay_episode(interaction, start, episode)
            lowest.setdefault(task, set()).add(episode.outcome)
            with pytest.raises(Refusal, match="outcome"):
                replay_episode(interaction, start, dataclasses.replace(episode, outcome=episode.outcome + 1))
    assert lowest == {"tic_tac_toe": {-1.0}, "sudoku": {0.0}, "relay": {0.0}}


def test_every_public_task_must_be_played_once_and_no_other(listed: Listed) -> None:
    row = read_results(listed.folder, listed.season).row(listed.ids["claimed"])
    played = scripted_sudoku(listed.season)
    require_seeds(row.entry, listed.season, played)
    for forged, reason in (
        ([*played, played[0]], "got 2 episodes"),
        (played[1:], "got 0 episodes"),
        ([dataclasses.replace(played[0], seed=7), *played[1:]], "a training task"),
        ([dataclasses.replace(played[0], seed=2**32 + 1), *played[1:]], "got 1 episodes of the seed 4294967297"),
        ([*played, dataclasses.replace(played[0], checkpoint=1)], "and checkpoint 1; play"),
    ):
        with pytest.raises(ValueError, match=reason):
            require_seeds(row.entry, listed.season, forged)


def test_a_replay_ends_when_its_time_is_over(listed: Listed) -> None:
    entry = read_results(listed.folder, listed.season).row(listed.ids["claimed"]).entry
    episodes = scripted_sudoku(listed.season)
    replay_entry(entry, listed.season, episodes, seconds=600)
    with pytest.raises(Refusal, match="a replay must take at most 0 seconds, got more; shorten replies"):
        replay_entry(entry, listed.season, episodes, seconds=0)


def test_a_checkpoint_is_played_again_without_network_or_other_files(board: Board) -> None:
    entry, episodes = board.entries["good"]
    record = verify_entry("0" * 32, entry, episodes, board.season, board.secret, board.download)
    assert record.public["p"] == 1.0
    assert record.public["claimed"] == record.public["found"]
    assert record.notes[0].startswith("One training seed")
    if sys.platform == "linux":
        assert set(record.isolation) <= set(ISOLATION)
    assert Record.read(record.signed(board.secret), board.season) == record
    with pytest.raises(ValueError, match="signed with the key"):
        Record.read(record.signed(SeasonSecret.new()), board.season)
    assert record.ranked_in(board.season)
    # A record is published while secret tasks are secret: the print says nothing of them without the key.
    task = board.season.board("relay")
    seeds = secret_seeds(board.secret.salt, "relay", task.secret)
    asked = {
        "checkpoints": [[str(board.policies[commit_of("good")]), None]],
        "spec": entry.task(board.season).to_dict(),
        "printed_spec": task.spec,
        "seeds": {"secret": seeds[:16]},
    }
    again = playing.answer({**asked, "print_key": print_key(board.secret.salt, "relay")})["prints"]
    guessed = playing.answer({**asked, "print_key": print_key("0" * 64, "relay")})["prints"]
    assert record.prints == (tuple(again[0]),)
    assert abs(np.corrcoef(again[0], guessed[0])[0, 1]) < 0.4


def changed_policy(board: Board, folder: Path, change: Callable[..., Any]) -> Path:
    """The good policy with other weights, or another vocabulary."""
    shutil.copytree(board.policies[commit_of("good")], folder)
    weights = load_file(folder / "model.safetensors")
    files = {name: json.loads((folder / name).read_text()) for name in ("tokenizer.json", "config.json")}
    change(weights, *files.values())
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def one_number_more(weights: dict[str, Tensor], *_: Any) -> None:
    next(iter(weights.values())).view(-1)[0] += 1e-6


def larger_norm(weights: dict[str, Tensor], *_: Any) -> None:
    weights["model.norm.weight"] *= 1.25


def half_precision(weights: dict[str, Tensor], *_: Any) -> None:
    weights |= {name: value.bfloat16().to(value.dtype) for name, value in weights.items()}


def noise(weights: dict[str, Tensor], *_: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    for value in weights.values():
        value += 5e-3 * value.std() * torch.randn(value.shape, generator=generator)


def renumbered_tokens(weights: dict[str, Tensor], tokenizer: dict[str, Any], _: Any) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    named = {one["id"] for one in tokenizer["added_tokens"]}
    free = [token for token in vocabulary.values() if token not in named]
    moved = dict(zip(free, free[1:] + free[:1], strict=True))
    tokenizer["model"]["vocab"] = {text: moved.get(token, token) for text, token in vocabulary.items()}
    before = weights["model.embed_tokens.weight"].clone()
    for token, place in moved.items():
        weights["model.embed_tokens.weight"][place] = before[token]


def other_spelling(_: Any, tokenizer: dict[str, Any], __: Any) -> None:
    """Tokens of circled digits, which are read and written as plain ones."""
    circled = {digit: chr(0x2460 + int(digit)) for digit in "0123456789"}
    tokenizer["model"]["vocab"] = {
        text.translate(str.maketrans(circled)): token for text, token in tokenizer["model"]["vocab"].items()
    }
    units = tokenizer["pre_tokenizer"]["pattern"]
    units["Regex"] = units["Regex"].replace("0-9", "\u2460-\u2469")
    read, written = circled.items(), [(sign, digit) for digit, sign in circled.items()]
    rules = [
        [{"type": "Replace", "pattern": {"String": one}, "content": other} for one, other in pairs]
        for pairs in (read, written)
    ]
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": rules[0]}
    tokenizer["decoder"] = {"type": "Sequence", "decoders": [tokenizer["decoder"], *rules[1]]}


def more_tokens(weights: dict[str, Tensor], tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    size, width = weights["model.embed_tokens.weight"].shape
    weights["model.embed_tokens.weight"] = torch.cat([weights["model.embed_tokens.weight"], torch.zeros(40, width)])
    tokenizer["model"]["vocab"] |= {f"junk {place}": size + place for place in range(40)}
    config["vocab_size"] = size + 40


CHANGES = (one_number_more, larger_norm, half_precision, noise, renumbered_tokens, other_spelling, more_tokens)


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_told_by_what_its_weights_compute_and_not_by_what_is_sampled(
    board: Board, tmp_path: Path, change: Callable[..., Any]
) -> None:
    names = ("first", "changed", "trained apart")
    folders = (
        board.policies[commit_of("good")],
        changed_policy(board, tmp_path / "policy", change),
        board.policies[commit_of("other")],
    )
    spec = board.entries["good"][0].task(board.season)
    short = dataclasses.replace(spec.sampling, max_new_tokens=1)
    other = dataclasses.replace(spec, sampling=short, chat_template_kwargs={"add_generation_prompt": False})
    first, *others = (
        dataclasses.replace(
            shows(name, (name, name, 0.0)),
            prints=(tuple(playing.prints_of(playing.loaded(folder, None, own, None)[0], spec, b"key", range(16))),),
        )
        for name, folder, own in zip(names, folders, (spec, other, spec), strict=True)
    )
    assert [linked(other, [first]).copy_of for other in others] == ["first", None]


def shows(
    entry: str, *weights: tuple[str, str, float], copy_of: str | None = None, submitter: str = "", scale: float = 1.0
) -> Record:
    """A record of checkpoints, each its owner, its tensors and the angle of its print."""
    return Record(
        entry=entry,
        season="spring",
        board="relay",
        badge=VERIFIED,
        submitter=submitter,
        copy_of=copy_of,
        owners=tuple(owner for owner, _, _ in weights),
        tensors=tuple(tensors for _, tensors, _ in weights),
        prints=tuple((scale * math.cos(angle), scale * math.sin(angle), *[0.0] * 14) * 3 for _, _, angle in weights),
        secret=((1.0, 1.0),) * len(weights),
    )


FIRST = shows("first", ("alice", "a", 1.0))
COPIED = shows("copied", ("mallory", "a", 1.0), copy_of="first")


@pytest.mark.parametrize(
    ("weights", "listed", "copy_of", "related"),
    [
        ([("mallory", "a", 1.0)], [FIRST], "first", ()),
        ([("mallory", "moved a little", 1.005)], [FIRST], "first", ()),
        ([("mallory", "trained apart", 1.2)], [FIRST], None, ()),
        ([("alice", "a", 1.0), ("alice", "one more seed", 3.0)], [FIRST], None, ("first",)),
        ([("Alice", "a", 1.0)], [COPIED, FIRST], None, ("first",)),
        ([("eve", "a", 1.0), ("eve", "own", 4.0)], [COPIED, FIRST], "first", ()),
        ([("mallory", "a", 1.0)], [COPIED, FIRST], "first", ("copied",)),
    ],
)
def test_weights_of_another_account_make_a_copy_and_ones_own_a_link(
    weights: list[tuple[str, str, float]], listed: list[Record], copy_of: str | None, related: tuple[str, ...]
) -> None:
    found = linked(shows("new", *weights, scale=1.7), listed)
    assert (found.copy_of, found.related) == (copy_of, related)


@pytest.mark.parametrize(
    ("earlier", "submitter", "is_ranked"),
    [("alice", "alice", True), ("eve", "Eve", True), ("eve", "alice", True), ("alice", "eve", False)],
)
def test_of_the_same_weights_one_entry_is_ranked_the_newest_of_who_may_decide(
    earlier: str, submitter: str, is_ranked: bool
) -> None:
    first = dataclasses.replace(FIRST, submitter=earlier)
    found = linked(shows("new", ("alice", "a", 1.0), submitter=submitter), [first])
    assert (found.related, found.copy_of) == (("first",), None if is_ranked else "first")


def test_weights_of_ones_own_give_no_right_to_replace_the_entries_of_others() -> None:
    bob = shows("bob's", ("bob", "b", 2.0), submitter="bob")
    weights = [("eve", "bad", 4.0), ("alice", "a", 1.0), ("bob", "b", 2.0)]
    found = linked(shows("eve's", *weights, submitter="eve"), [dataclasses.replace(FIRST, submitter="alice"), bob])
    assert (found.related, found.copy_of) == (("first", "bob's"), "first")


def test_a_policy_whose_chat_template_the_season_does_not_know_is_noted_and_has_no_rank(
    board: Board, tmp_path: Path
) -> None:
    entry, episodes = board.entries["good"]
    folder = Path(shutil.copytree(board.policies[commit_of("good")], tmp_path / "policy"))
    text = "{# plays #}" + (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(text)
    record = verify_entry(
        "0" * 32,
        entry,
        episodes,
        board.season,
        board.secret,
        lambda repo, commit, most_bytes: folder,
        play=lambda request, readable, limits: playing.answer(request),
    )
    (digest,) = record.templates
    assert record.unknown_templates == {digest: text}
    assert f"does not know its chat template ({digest[:12]})" in " ".join(record.notes)
    assert not record.ranked_in(board.season)
    # What it plays could be the template's, so no outcome tells of a secret task until it was read.
    assert (record.secret, record.tokens, record.awaits(board.season)) == ((), None, False)
    accepting = dataclasses.replace(board.season, templates=(digest,))
    assert not record.ranked_in(accepting)
    assert record.awaits(accepting)
    assert not record.awaits(dataclasses.replace(accepting, open=False))
    (folder / "chat_template.jinja").write_text(text + "{#" + "x" * 2**16 + "#}")
    spec = entry.task(board.season).to_dict()
    asked = {"checkpoints": [[str(folder), None]], "spec": spec, "printed_spec": spec, "seeds": {"secret": []}}
    with pytest.raises(ValueError, match="at most 65536 characters, got"):
        playing.answer({"print_key": "", **asked})


def test_a_tokenizer_in_python_whose_files_could_play_is_refused() -> None:
    slow: Any = SimpleNamespace(tokenizer=SimpleNamespace(chat_template="{{ messages }}"))
    with pytest.raises(ValueError, match=r"must have a tokenizer\.json, got a tokenizer in Python"):
        playing._template(slow)


def test_the_unknown_templates_of_an_entry_are_bounded_together(board: Board) -> None:
    entry, episodes = board.entries["good"]

    def play(request: Any, readable: Any, limits: Any) -> dict[str, Any]:
        answer = playing.answer(request)
        return {**answer, "templates": ["x" * 2**15, "y" * (2**15 + 1)]}

    with pytest.raises(Refusal, match="at most 65536 characters together, got 65537; share one"):
        verify_entry("0" * 32, entry, episodes, board.season, board.secret, board.download, play=play)


def context_rule(_: Any, tokenizer: dict[str, Any], __: Any) -> None:
    rule = {"type": "Replace", "pattern": {"Regex": "a(?=b)"}, "content": "c"}
    tokenizer["decoder"] = {"type": "Sequence", "decoders": [tokenizer["decoder"], rule]}


def test_rules_of_a_tokenizer_that_could_play_are_part_of_the_template_and_a_spelling_is_not(
    board: Board, tmp_path: Path
) -> None:
    spec = board.entries["good"][0].task(board.season).to_dict()
    folders = [
        board.policies[commit_of("good")],
        changed_policy(board, tmp_path / "spelling", other_spelling),
        changed_policy(board, tmp_path / "rule", context_rule),
    ]
    checkpoints = [[str(one), None] for one in folders]
    asked = {"checkpoints": checkpoints, "spec": spec, "printed_spec": spec, "seeds": {"secret": []}}
    chat = playing.loaded(folders[0], None, TaskSpec.untrusted(spec), None)[0].chat
    chat.tokenizer.response_template = {"fields": {"content": {"pattern": "(.*)"}}}
    assert "(.*)" in playing._template(chat)
    known, spelled, computing = playing.answer({"print_key": "", **asked})["templates"]
    assert template_digest(spelled) == template_digest(known) == board.season.templates[0]
    assert computing.startswith(known)
    assert '"Regex": "a(?=b)"' in computing[len(known) :]


def test_a_checkpoint_beyond_the_verifiers_means_is_replayed_only(board: Board) -> None:
    entry, episodes = board.entries["good"]
    limits = Limits(parameters=10)
    record = verify_entry("0" * 32, entry, episodes, board.season, board.secret, board.download, limits=limits)
    assert (record.badge, record.ranked_in(board.season)) == (REPLAYED, False)
    assert "at most 10 parameters" in record.notes[0]


@pytest.mark.parametrize("change", [None, one_number_more])
def test_the_same_weights_twice_in_an_entry_are_refused(
    board: Board, tmp_path: Path, change: Callable[..., Any] | None
) -> None:
    entry, episodes = board.entries["good"]
    second = board.policies[commit_of("copy")] if change is None else changed_policy(board, tmp_path / "near", change)
    folders = {commit_of("good"): board.policies[commit_of("good")], commit_of("copy"): second}
    twice = tuple(
        dataclasses.replace(entry.checkpoints[0], commit=commit, seed=seed) for seed, commit in enumerate(folders)
    )
    both = [dataclasses.replace(one, checkpoint=place) for place in range(2) for one in episodes]
    with pytest.raises(Refusal, match="same weights twice"):
        verify_entry(
            "0" * 32,
            dataclasses.replace(entry, checkpoints=twice),
            both,
            board.season,
            board.secret,
            lambda repo, commit, most_bytes: folders[commit],
            play=lambda request, readable, limits: playing.answer(request),
        )


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.bin", b"x", "safetensors, JSON and text"),
        ("code.py", b"x", "safetensors, JSON and text"),
        ("config.json", b'{"auto_map": {"AutoModel": "code.Model"}}', "run no code"),
    ],
)
def test_a_checkpoint_with_code_is_refused(
    board: Board, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    weights = board.policies[commit_of("good")] / "model.safetensors"
    (tmp_path / "model.safetensors").write_bytes(weights.read_bytes())
    check_folder(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        check_folder(tmp_path)


def test_the_digest_is_of_the_tensors_whatever_the_file_is_called(board: Board, tmp_path: Path) -> None:
    good, other = (board.policies[commit_of(name)] for name in ("good", "other"))
    (tmp_path / "renamed.safetensors").write_bytes((good / "model.safetensors").read_bytes())
    assert tensor_digest(tmp_path) == tensor_digest(good) != tensor_digest(other)
    assert parameters(good) == parameters(other) > 10_000


def test_a_checkpoint_of_many_empty_tensors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({str(number): torch.zeros(0) for number in range(5)}, tmp_path / "model.safetensors")
    assert parameters(tmp_path) == 0
    monkeypatch.setattr("hf_credit_leaderboard.weights.MOST_TENSORS", 4)
    with pytest.raises(ValueError, match="at most 4 tensors, got more; join them"):
        parameters(tmp_path)


def test_a_header_longer_than_its_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="header"):
        tensor_digest(tmp_path)


@pytest.mark.usefixtures("copied_confined")
@pytest.mark.parametrize(
    ("request_", "reason"),
    [({"seeds": []}, "has no attribute 'values'"), ({}, "'seeds'")],
)
def test_a_confined_process_that_fails_says_so_in_a_sentence(request_: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfinedError, match=reason):
        confined_play(request_, [], Limits())


@pytest.mark.usefixtures("copied_confined")
@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits memory")
def test_what_a_process_without_a_result_wrote_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    limits: Any = Limits(memory_bytes="much")  # type: ignore[arg-type]
    with pytest.raises(
        ConfinedError, match="must finish within much bytes of memory, got exit code 1; correct"
    ) as told:
        confined_play({}, [], limits)
    assert "TypeError" in caplog.text
    assert "TypeError" not in str(told.value)


@pytest.mark.usefixtures("copied_confined")
def test_no_file_has_the_seeds_of_secret_tasks_while_a_checkpoint_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    run, left = confined.subprocess.run, list[str]()

    def listed(*command: Any, **how: Any) -> Any:
        done = run(*command, **how)
        left.extend(path.name for path in Path(how["cwd"]).iterdir())
        return done

    monkeypatch.setattr(confined.subprocess, "run", listed)
    with pytest.raises(ConfinedError):
        confined_play({}, [], Limits())
    assert "result.json" in left
    assert "request.json" not in left


@pytest.mark.usefixtures("copied_confined")
def test_a_checkpoint_with_a_template_of_its_own_is_verified_within_the_limits(board: Board, tmp_path: Path) -> None:
    entry, episodes = board.entries["good"]
    folder = Path(shutil.copytree(board.policies[commit_of("good")], tmp_path / "policy"))
    template = folder / "chat_template.jinja"
    template.write_text("{# mine #}" + template.read_text())
    verify_entry("0" * 32, entry, episodes, board.season, board.secret, lambda *_: folder)


@pytest.mark.usefixtures("copied_confined")
@pytest.mark.parametrize(
    ("fails", "kind"),
    [("raise_exception(**{text: 1})", "TypeError"), ("raise_exception(text)", "TemplateError")],
)
def test_a_template_that_fails_with_a_secret_prompt_tells_the_log_alone(
    board: Board, tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: str, kind: str
) -> None:
    entry, episodes = board.entries["good"]
    folder = Path(shutil.copytree(board.policies[commit_of("good")], tmp_path / "policy"))
    template = folder / "chat_template.jinja"
    tells = "{%- set text = messages[-1].content %}{%- if 'Problem: secret' in text %}{{ " + fails + " }}{% endif %}"
    template.write_text(tells + template.read_text())
    limits = Limits(device="cpu:0")  # as on a GPU, where templates have a process of their own
    with pytest.raises(Refusal) as told:
        verify_entry("0" * 32, entry, episodes, board.season, board.secret, lambda *_: folder, limits=limits)
    assert str(told.value).startswith(
        f"a checkpoint must play every task, and compute neither NaN nor infinity, got {kind}; play other tasks"
    )
    assert "Problem" not in str(told.value)
    assert "Problem: secret" in caplog.text
    assert kind in caplog.text
