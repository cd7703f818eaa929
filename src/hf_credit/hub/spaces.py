"""Generates the files of OpenEnv Spaces from environments."""

from __future__ import annotations

import json
import random
import re
import string
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hf_credit import environments
from hf_credit._version import __version__
from hf_credit.content import in_words, text_of
from hf_credit.environments import ENVIRONMENTS, Environment
from hf_credit.environments.tasks import SEEDS_PER_SPLIT
from hf_credit.files import write
from hf_credit.hub.wheel import WHEEL, own_wheel
from hf_credit.oracles import default_oracle
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.safe_io import parse_yaml
from hf_credit.trust import is_code

_MOST_SEEDS = 64  # tried to find an episode in which the oracle earns the highest reward


def templates(folder: Path) -> dict[str, str]:
    """Returns the templates of a Space in a folder, by the paths of their files in the Space."""
    paths = {path.relative_to(folder).as_posix().removesuffix(".tpl"): path for path in sorted(folder.rglob("*.tpl"))}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items()}


def space_files(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    repo: str = "OWNER/SPACE",
    title: str | None = None,
) -> dict[str, bytes]:
    """Returns the files of a Space that serves an environment of this library, by path.

    Its image installs the wheel of this library, `hf_credit.hub.wheel.own_wheel`, which is published with them. Under
    `hf_credit`, its declaration `openenv.yaml` holds the environment, its options and the version, from which
    `load_environment` builds the environment without a server.

    Args:
        name: the name of the environment, one of `hf_credit.environments.ENVIRONMENTS`.
        options: options as plain values; the declaration also lists the defaults of all others.
        repo: the repository of the Space, for the card.
        title: the title of the card; derived from the name if `None`.

    Raises:
        ValueError: the library has no such environment, or an option is invalid or names code or a file.
    """
    if name not in ENVIRONMENTS:
        raise ValueError(
            f"a Space serves one of the environments {', '.join(ENVIRONMENTS)}, got {name!r}; publish your own code "
            "as a package with openenv init."
        )
    environment = environments.make(name, **(options or {}))
    _, all_options = environments.spec(environment)
    refuse_what_stays_behind(all_options)
    seed, actions, injection = _oracle_episode(environment)
    fields = _fields(environment, all_options, actions[0])
    files = {
        path: string.Template(text).substitute(
            fields,
            repo=repo,
            url=space_url(repo) if repo != "OWNER/SPACE" else "https://OWNER-SPACE.hf.space",
            title=title or f"{name.replace('_', ' ').capitalize()} (hf-credit)",
            wheel=WHEEL,
        )
        for path, text in templates(Path(__file__).with_name("space")).items()
    }
    declared = parse_yaml(files["openenv.yaml"])
    declared["hf_credit"]["options"] = dict(all_options)
    files["openenv.yaml"] = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)
    values: dict[str, dict[str, Any]] = {
        "discovery.json": {
            "description": fields["summary"],
            "tags": ["hf-credit", "text", name],
            "license": "Apache-2.0",
            "license_source": "README.md",
        },
        "validation/runtime.json": {
            "plan_schema_version": "1",
            "reset": {"episode_id": "validation", "seed": seed},
            "actions": [{"action": action} for action in actions],
        },
        "validation/oracle.json": injection,
    }
    files |= {path: json.dumps(value, indent=2, ensure_ascii=False) + "\n" for path, value in values.items()}
    return {path: text.encode() for path, text in sorted(files.items())}


def write_space(folder: str | Path, name: str, options: Mapping[str, Any] | None = None, **others: Any) -> Path:
    """Writes `space_files` and the wheel into a folder, created if needed; other arguments and errors are as there."""
    folder = Path(folder)
    for path, content in {**space_files(name, options, **others), **own_wheel()}.items():
        write(folder / path, content)
    return folder


def _oracle_episode(environment: Environment[Any]) -> tuple[int, list[str], dict[str, Any]]:
    """Plays an episode in which the environment's oracle earns the highest reward.

    Returns:
        Its seed, its actions, and the state before the last action with that action and its reward.
    """
    oracle, rewards = default_oracle(environment), environment.reward_range
    if oracle is None or rewards is None:
        raise ValueError(
            f"a Space declares the highest reward and how to earn it, got {environment.name!r} without a default "
            "oracle or reward_range; add them."
        )
    player = OraclePlayer(environment, oracle, 1.0)
    interaction = EnvironmentInteraction(environment)
    for seed in range(_MOST_SEEDS):
        draws, state = random.Random(seed), interaction.start({}, seed)
        actions: list[str] = []
        last = state.world
        text_of(environment.observe(last))  # a Space sends no images
        while pending := interaction.pending(state):
            reply = player(state, pending[0], draws)
            last = state.world
            actions.append(environment.read_action(reply))
            state = interaction.advance(state, [reply])
        if interaction.outcome(state) == state.reward == rewards[1]:
            before = {
                "episode_id": "oracle",
                "step_count": len(actions) - 1,
                "environment_state": last.to_json(),
                "seed": seed,
            }
            injected = {"reset": {"injected_state": before}, "actions": [{"action": actions[-1]}]}
            return seed, actions, {**injected, "reward": state.reward}
    raise ValueError(
        f"an oracle must earn the highest reward in one of {_MOST_SEEDS} episodes, got none of {rewards[1]} in "
        f"{environment.name!r}; correct its reward_range or its oracle."
    )


def _fields(environment: Environment[Any], options: Mapping[str, Any], action: str) -> dict[str, str]:
    assert environment.reward_range is not None
    low, high = environment.reward_range
    opening = environment.observe(environment.initial_state(environment.sample_task(0), 0))
    return {
        "name": environment.name,
        "prefix": "".join(word.capitalize() for word in environment.name.split("_")),
        "package": f"hf_credit_{environment.name}",
        "version": __version__,
        "shown_options": "; ".join(f"`{key}={json.dumps(value)}`" for key, value in options.items()) or "none",
        "summary": (type(environment).__doc__ or environment.name).strip().split("\n\n")[0].replace("\n    ", " "),
        "instructions": environment.instructions,
        "opening": in_words(opening),
        "action": action.replace("\\", "\\\\").replace('"', '\\"'),
        "low": f"{low:g}",
        "high": f"{high:g}",
        "range": json.dumps(environment.reward_range),
        "turns": str(environment.max_turns),
        "tasks": f"{SEEDS_PER_SPLIT:,}",
        "seeds": str(SEEDS_PER_SPLIT),
    }


def space_url(repo: str) -> str:
    """Returns the URL at which the Hub serves a Space."""
    return f"https://{re.sub('[^a-z0-9]', '-', repo.lower())}.hf.space"


def refuse_what_stays_behind(options: Any) -> None:
    """Refuses options that name code or a file: a Space contains neither, and one of others must not choose them."""
    values = options.values() if isinstance(options, Mapping) else options
    for value in values:
        if isinstance(value, Mapping | list | tuple):
            refuse_what_stays_behind(value)
        elif isinstance(value, str) and (is_code(value) or "/" in value or Path(value).exists()):
            raise ValueError(f"the options of a Space must not name code or files, got {value[:100]!r}; remove it.")


if __name__ == "__main__":
    for file_name, content in space_files(sys.argv[1]).items():
        write(Path(sys.argv[2]) / file_name, content)
