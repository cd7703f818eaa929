"""Where task rows come from, the task itself or a dataset, and whether they fit the task."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from hf_credit.collaborations import Collaboration
from hf_credit.data import is_problem_set, load_problems
from hf_credit.environments.randomness import derive
from hf_credit.environments.tasks import Split, require_task_columns, task_seed, tasks
from hf_credit.evaluation.games import held_out_starts
from hf_credit.evaluation.setup import GameSetup
from hf_credit.rollouts import EnvironmentInteraction, Interaction, Start

OWN_TASKS = {"relay": "hf_credit.collaborations.relay:relay_tasks"}
"""Who draws task rows of a collaboration: a function of split, rows and start, and of the collaboration's options."""

PLAYERS = {"relay": "hf_credit.collaborations.relay:relay_player"}
"""Who plays a collaboration from a script: a function of the quality, and of the collaboration's options."""

_FILES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}


def open_task(setup: GameSetup) -> Interaction[Any]:
    """The setup's Interaction. A scorer that it names may lie in the folder that the program was started in.

    Raises:
        ValueError: the name, an option or a setting is not possible.
    """
    if "scorer" not in setup.options:
        return setup.interaction()
    with _importing_from_here():
        return setup.interaction()


def most_replies(interaction: Interaction[Any]) -> int:
    """How many replies an episode has at most."""
    if isinstance(interaction, Collaboration):
        graph = interaction.graph
        return len(graph.events) * (1 + sum(loop.times for loop in graph.loops.values()))
    assert isinstance(interaction, EnvironmentInteraction)
    return interaction.max_turns


def own_rows(
    setup: GameSetup, interaction: Interaction[Any], split: Split, size: int, start: int = 0
) -> Dataset | IterableDataset:
    """Rows `start` to `start + size - 1` of the task's own.

    Raises:
        ValueError: it has none, or not these.
    """
    if isinstance(interaction, EnvironmentInteraction):
        return tasks(interaction.environment, split, size, start, lazy=True)
    if setup.name not in OWN_TASKS:
        raise ValueError(
            f"the collaboration {setup.name!r} has no tasks of its own, got no dataset; name one, in a recipe with "
            "dataset_name and for an evaluation with --dataset."
        )
    rows: Dataset = _function(OWN_TASKS[setup.name])(split, size, start=start, **setup.complete().options)
    return rows


def scripted_player(setup: GameSetup) -> Callable[[float], Any] | None:
    """Makes a scripted player of a quality, where the collaboration has one."""
    if setup.name not in PLAYERS:
        return None
    player, options = _function(PLAYERS[setup.name]), setup.complete().options
    return lambda quality: player(quality, **options)


def require_columns(interaction: Interaction[Any], rows: Dataset | IterableDataset) -> None:
    """Refuses rows that do not have what the task shows.

    Raises:
        ValueError: a column is missing.
    """
    columns = rows.column_names  # a stream may not know its own
    if columns is None:
        return
    if isinstance(interaction, EnvironmentInteraction):
        require_task_columns(columns, interaction.environment)
    elif isinstance(interaction, Collaboration):
        missing = {event.column for event in interaction.graph.events} - set(columns)
        if missing:
            raise ValueError(
                f"a dataset must have the columns that the events show, got {', '.join(columns)} without "
                f"{', '.join(sorted(missing))}; rename a column, or name another one in the collaboration's options."
            )


def load_splits(
    name: str, only: str, config: str | None = None, streaming: bool = False
) -> Mapping[str, Dataset | IterableDataset]:
    """The splits of a dataset; rows without splits are the one called `only`.

    Args:
        name: a file, a folder of `save_to_disk`, or an id on the Hub.
        only: see above.
        config: which subset of a dataset on the Hub.
        streaming: whether rows are read as they are needed.

    Raises:
        ValueError: it is a file of another kind.
        OSError: there is no such dataset.
    """
    try:
        return _load_splits(name, only, config, streaming)
    except (DatasetsError, RecursionError) as error:
        reason = (str(error.__cause__ or error) or type(error).__name__).splitlines()[0][:300]
        raise ValueError(f"a dataset must be readable, got {name!r} ({reason}); mend it.") from error


def _load_splits(name: str, only: str, config: str | None, streaming: bool) -> Mapping[str, Dataset | IterableDataset]:
    path = Path(name)
    loaded: Any
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        loaded = load_from_disk(name)
    elif path.is_file():
        if path.suffix not in _FILES:
            raise ValueError(f"a dataset's file must end in {', '.join(_FILES)}, got {name!r}; convert it.")
        loaded = load_dataset(_FILES[path.suffix], data_files={only: name}, streaming=streaming)
    else:
        loaded = load_dataset(name, name=config, streaming=streaming)
    return loaded if isinstance(loaded, DatasetDict | IterableDatasetDict) else {only: loaded}


def require_split(splits: Mapping[str, Any], split: str, remedy: str) -> Any:
    """The rows of a split.

    Raises:
        ValueError: there is no such split.
    """
    if split not in splits:
        raise ValueError(f"the dataset must have the split {split!r}, got {', '.join(map(repr, splits))}; {remedy}.")
    return splits[split]


def evaluation_starts(
    setup: GameSetup,
    interaction: Interaction[Any],
    episodes: int | None = None,
    first: int = 0,
    dataset: str | None = None,
    split: str = "test",
) -> list[Start[Any]]:
    """One start for each task of an evaluation, the same for every policy.

    Args:
        setup, interaction: what is played.
        episodes: how many tasks; 256 of the task's own, or the rest of the dataset, if `None`.
        first: the first task's place.
        dataset: whose rows are the tasks, as in `load_splits`, or a set of problems, as in `load_problems`; held-out
            tasks of the task's own if `None`.
        split: of the dataset; a set of problems is one split.

    Raises:
        ValueError: there are not so many tasks, or they do not fit.
    """
    if dataset is None:
        count = 256 if episodes is None else episodes
        if isinstance(interaction, EnvironmentInteraction):
            return held_out_starts(count, first)
        rows = own_rows(setup, interaction, "held_out", count, first)
        return [Start(task=row, seed=task_seed("held_out", first + place)) for place, row in enumerate(rows)]
    if is_problem_set(dataset):
        found = load_problems(dataset).rows
    else:
        found = require_split(load_splits(dataset, only=split), split, "name one of these with --split")
    require_columns(interaction, found)
    last = len(found) if episodes is None else first + episodes
    if not first < last <= len(found):
        raise ValueError(
            f"the dataset must have the tasks that are played, got {len(found)} rows for {last - first} tasks from "
            f"row {first}; ask for fewer."
        )
    seeded = isinstance(interaction, EnvironmentInteraction)
    chosen = found.select(range(first, last))
    return [Start(task=row, seed=row["seed"] if seeded else _seed(first + n, row)) for n, row in enumerate(chosen)]


def _seed(place: int, row: Mapping[str, Any]) -> int:
    """Of a row without one: two policies are compared task by task, so another row must not have the same."""
    return derive(place, json.dumps(row, sort_keys=True, default=str))


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@contextlib.contextmanager
def _importing_from_here() -> Iterator[None]:
    """The current folder comes last: nothing that is installed is hidden by what lies there."""
    before, here = list(sys.path), str(Path.cwd())
    # It is in front where Python was told `-m` or `-c`.
    sys.path[:] = [*(path for path in before if path not in ("", here)), here]
    try:
        yield
    finally:
        sys.path[:] = before
