"""Publishes to and loads from the Hugging Face Hub.

    publish_environment, _tasks, _episodes, _checkpoint, _metric, _cells, _leaderboard
                                                one commit each, public after verification
    load_environment, _tasks, _episodes, _checkpoint, _metric, _cells, _results
                                                at one commit, every byte verified
    publish, fetch                              the same for any files

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hf_credit.trust import imported

if TYPE_CHECKING:
    from hf_credit.hub.cell_sets import load_cells, publish_cells
    from hf_credit.hub.checkpoints import load_checkpoint, publish_checkpoint
    from hf_credit.hub.environments import load_environment, publish_environment
    from hf_credit.hub.episode_sets import (
        EpisodeSet,
        load_episode_folder,
        load_episodes,
        publish_episode_folder,
        publish_episodes,
        save_episodes,
    )
    from hf_credit.hub.leaderboards import load_results, publish_leaderboard
    from hf_credit.hub.loading import fetch
    from hf_credit.hub.metrics import load_metric, publish_metric
    from hf_credit.hub.publishing import publish
    from hf_credit.hub.task_sets import load_tasks, publish_tasks

_HOMES = {
    "EpisodeSet": "episode_sets",
    "fetch": "loading",
    "load_cells": "cell_sets",
    "load_checkpoint": "checkpoints",
    "load_environment": "environments",
    "load_episode_folder": "episode_sets",
    "load_episodes": "episode_sets",
    "load_metric": "metrics",
    "load_results": "leaderboards",
    "load_tasks": "task_sets",
    "publish": "publishing",
    "publish_cells": "cell_sets",
    "publish_checkpoint": "checkpoints",
    "publish_environment": "environments",
    "publish_episode_folder": "episode_sets",
    "publish_episodes": "episode_sets",
    "publish_leaderboard": "leaderboards",
    "publish_metric": "metrics",
    "publish_tasks": "task_sets",
    "save_episodes": "episode_sets",
}

__all__ = [
    "EpisodeSet",
    "fetch",
    "load_cells",
    "load_checkpoint",
    "load_environment",
    "load_episode_folder",
    "load_episodes",
    "load_metric",
    "load_results",
    "load_tasks",
    "publish",
    "publish_cells",
    "publish_checkpoint",
    "publish_environment",
    "publish_episode_folder",
    "publish_episodes",
    "publish_leaderboard",
    "publish_metric",
    "publish_tasks",
    "save_episodes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hf_credit.hub' has no attribute {name!r}")
    return imported(f"hf_credit.hub.{_HOMES[name]}:{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
