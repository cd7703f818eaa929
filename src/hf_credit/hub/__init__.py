"""Publishes to and loads from the Hugging Face Hub.

    publish_environment, _tasks, _episodes, _checkpoint, _metric   one commit each, public after verification
    load_environment, _tasks, _episodes, _checkpoint, _metric      at one commit, every byte verified
    publish, fetch                                                 the same for any files

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_credit.trust import on_demand

if TYPE_CHECKING:
    from hf_credit.hub.checkpoints import load_checkpoint, publish_checkpoint
    from hf_credit.hub.environments import load_environment, publish_environment
    from hf_credit.hub.episode_sets import (
        EpisodeSet,
        load_episode_folder,
        load_episodes,
        publish_episode_folder,
        save_episodes,
    )
    from hf_credit.hub.loading import fetch
    from hf_credit.hub.metrics import load_metric, publish_metric
    from hf_credit.hub.publishing import publish
    from hf_credit.hub.task_sets import load_tasks, publish_tasks

_HOMES = {
    "checkpoints": ("load_checkpoint", "publish_checkpoint"),
    "environments": ("load_environment", "publish_environment"),
    "episode_sets": (
        *("EpisodeSet", "load_episode_folder", "load_episodes"),
        *("publish_episode_folder", "save_episodes"),
    ),
    "loading": ("fetch",),
    "metrics": ("load_metric", "publish_metric"),
    "publishing": ("publish",),
    "task_sets": ("load_tasks", "publish_tasks"),
}

__all__ = [
    "EpisodeSet", "fetch", "load_checkpoint", "load_environment", "load_episode_folder", "load_episodes",
    "load_metric", "load_tasks", "publish", "publish_checkpoint",
    "publish_environment", "publish_episode_folder", "publish_metric",
    "publish_tasks", "save_episodes",
]  # fmt: skip

__getattr__, __dir__ = on_demand(__name__, _HOMES)
