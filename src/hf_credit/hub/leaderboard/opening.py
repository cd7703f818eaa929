"""Opening a season: its boards, the policies whose credit is looked at, and what its dataset says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from hf_credit.hub.leaderboard.seasons import SEASON_FILE, CreditTask, Season, SeasonSecret, SeasonTask
from hf_credit.hub.leaderboard.submission import Hub
from hf_credit.hub.leaderboard.weights import template_digest, tensor_digest
from hf_credit.policies.micro import CHAT_TEMPLATE
from hf_credit.tasks.spec import Sampling, TaskSpec

EVAL_FILE = "eval.yaml"

_ENUMERABLE = Sampling(max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=0)
_ACTIONS = dataclasses.replace(_ENUMERABLE, max_new_tokens=16)  # room for the longest action, and its end


def standard_boards(public: int = 128, secret: int = 128) -> tuple[SeasonTask, ...]:
    """The library's games and collaborations that make tasks of their own, micro ones and full ones.

    Args:
        public, secret: how many instances of each kind a board has.
    """
    micro: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("sudoku 4x4", "sudoku", {"size": 4, "blanks": 8, "notation": "named"}),
        ("minesweeper 4x4", "minesweeper", {"rows": 4, "columns": 4, "mines": 3}),
        ("tic-tac-toe", "tic_tac_toe", {"opponent": "mixture", "opponent_simulations": 100}),
        ("guess numbers, brief", "guess_numbers", {"digits": 3, "turns": 6, "wording": "brief"}),
        ("relay", "relay", {"size": 10}),
        ("hinted relay", "hinted_relay", {"size": 8}),
        ("vote", "sum_vote", {"size": 6}),
    )
    full: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("sudoku 9x9", "sudoku", {"size": 9}),
        ("minesweeper 5x5", "minesweeper", {}),
        ("guess numbers", "guess_numbers", {}),
    )
    return tuple(
        SeasonTask(name=name, spec=_spec(task, options), public=public, secret=secret, size=size)
        for size, boards in (("micro", micro), ("full", full))
        for name, task, options in boards
    )


def credit_board(name: str, spec: TaskSpec, policy: Path, **settings: Any) -> CreditTask:
    """A board of credit on the decisions of a policy.

    Args:
        name: of the board, which is also how its policy is called in the benchmark.
        spec: a collaboration whose replies can be enumerated; or an environment with `history="current"`, whose rules
            draw nothing at random or say in `ways` what may come of an action. Its sampling is set to what can be
            enumerated.
        policy: the folder of its policy.
        **settings: `instances`, `repeats`, `floor` and `warm_up`, as in `CreditTask`.

    Raises:
        ValueError: the environment is shown otherwise.
    """
    if spec.environment and spec.history != "current":
        raise ValueError(
            f"decisions are enumerated where a state has one context, got history={spec.history!r} for "
            f"{spec.environment!r}; make the policy with --history current."
        )
    sampling = _ACTIONS if spec.environment else _ENUMERABLE
    own = dataclasses.replace(spec, sampling=sampling, method=None, critic_model=None).complete().to_dict()
    return CreditTask(
        name=name,
        spec={field: value for field, value in own.items() if value not in (None, {})},
        policy=f"policies/{name.replace(' ', '-')}",
        policy_digest=tensor_digest(policy),
        **settings,
    )


def open_season(
    hub: Hub,
    name: str,
    benchmark: str,
    results: str,
    secret: SeasonSecret,
    tasks: Sequence[SeasonTask],
    credit: Sequence[tuple[CreditTask, Path]] = (),
) -> Season:
    """Publishes a season: its dataset, and an empty one for results. It knows the chat template of micro policies.

    Args:
        hub: as an account that may make both.
        name: of the season.
        benchmark, results: the two datasets.
        secret: the salt and the key, which are not published.
        tasks: the boards of policies.
        credit: the boards of credit, each with the folder of its policy.

    Raises:
        ValueError: a board is not possible.
    """
    season = Season(
        name=name,
        benchmark=benchmark,
        results=results,
        tasks=tuple(tasks),
        credit=tuple(task for task, _ in credit),
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
        templates=(template_digest(CHAT_TEMPLATE),),
    )
    files: dict[str, Path | bytes] = {
        SEASON_FILE: season.to_json().encode("utf-8"),
        "README.md": card(season).encode("utf-8"),
        EVAL_FILE: eval_yaml(season).encode("utf-8"),
    }
    for task, folder in credit:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                files[f"{task.policy}/{path.relative_to(folder).as_posix()}"] = path
    # The Hub checks eval.yaml against its own list of frameworks, and may not take it: it goes last, alone.
    hub.publish(files, benchmark, "dataset", message=f"Open the season {name}", last=[EVAL_FILE])
    text = f"---\ntags: [hf-credit, leaderboard]\n---\n\n# Results of the season {name} of {benchmark}\n"
    hub.publish({"README.md": text.encode("utf-8")}, results, "dataset", message="Begin")
    return season


def close_season(hub: Hub, benchmark: str, secret: SeasonSecret) -> Season:
    """Ends a season: it takes no entry any more, and its salt is published.

    Raises:
        ValueError: the secret is another season's.
    """
    season, _, _ = hub.season(benchmark)
    over = dataclasses.replace(season, open=False, salt=secret.salt)
    files: dict[str, Path | bytes] = {SEASON_FILE: over.to_json().encode("utf-8")}
    files["README.md"] = card(over).encode("utf-8")
    hub.publish(files, benchmark, "dataset", message=f"Close the season {season.name}")
    return over


def accept_templates(hub: Hub, benchmark: str, digests: Iterable[str]) -> Season:
    """Makes chat templates known to a season, after somebody has read them: entries that use them rank from now on.

    Args:
        hub: as an account that may write the benchmark.
        benchmark: the dataset of the season.
        digests: of the templates.
    """
    season, _, _ = hub.season(benchmark)
    known = dataclasses.replace(season, templates=tuple(dict.fromkeys([*season.templates, *digests])))
    hub.publish({SEASON_FILE: known.to_json().encode("utf-8")}, benchmark, "dataset", message="Accept a chat template")
    return known


def card(season: Season) -> str:
    """What the dataset of a season says of itself."""
    boards = [f"- {one.name}: {one.public} public and {one.secret} secret tasks ({one.size})" for one in season.tasks]
    boards += [f"- {one.name}: credit, {one.repeats} updates of {one.instances} task rows" for one in season.credit]
    salt = "It will be published when the season is over." if season.salt is None else f"It was `{season.salt}`."
    lines = [
        "---",
        "tags: [hf-credit, leaderboard, credit-assignment]",
        "---",
        "",
        f"# {season.benchmark}: the season {season.name}",
        "",
        "Tasks on which methods of credit assignment are compared, with hf-credit. Public tasks are the first",
        "held-out tasks of each board; secret ones follow from a salt.",
        "",
        *boards,
        "",
        f"The salt's SHA-256 is `{season.salt_sha256}`. {salt} Records are signed with the Ed25519 key",
        f"`{season.public_key}`.",
        "",
        f"    hf-credit submit OWNER/POLICY BOARD --benchmark {season.benchmark}",
    ]
    return "\n".join(lines) + "\n"


def eval_yaml(season: Season) -> str:
    """The Hub's own description of a benchmark."""
    values = {
        "name": f"hf-credit, season {season.name}",
        "description": "Held-out tasks of games and collaborations; verified by playing them again.",
        "evaluation_framework": "hf-credit",
        "tasks": [{"id": one.name, "split": "public"} for one in season.tasks],
    }
    return yaml.safe_dump(values, sort_keys=False)


def _spec(task: str, options: dict[str, Any]) -> dict[str, Any]:
    """A task with every option written out, so that a later change of defaults changes no season."""
    own = TaskSpec.of_name(task, options).complete().to_dict()
    return {name: value for name, value in own.items() if value not in (None, {})}
