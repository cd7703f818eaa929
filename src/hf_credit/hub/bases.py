"""The model that a published one is based on: others load it by the name that is published, or it is refused."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from hf_credit.hub.retries import retried
from hf_credit.loading import ADAPTER_CONFIG
from hf_credit.model_cards import hub_id
from hf_credit.safe_io import read_json
from hf_credit.tasks import TASK_FILE

Files = Mapping[str, Path | bytes]
_NAME = "base_model_name_or_path"


@dataclass(frozen=True)
class Bases:
    """Finds the base models of a publication.

    Args:
        api: of the Hub that is asked; if `None`, as in a dry run, only names are judged.
        private: whether the publication is, so that its base may be.
        chosen: the base as owner/name[@revision], in place of what the model itself names.
    """

    api: HfApi | None = None
    private: bool = False
    chosen: str | None = None

    def found(self, named: object, revision: str | None = None) -> tuple[str, str | None] | None:
        """Returns the id and the revision of a model that whoever may load what is published may load, too."""
        if (base := hub_id(named)) is None or self.api is None:
            return base and (base[0], base[1] or revision)
        repo, revision = base[0], base[1] or revision
        stranger = self.api if self.private else HfApi(endpoint=self.api.endpoint, token=False)
        there = retried(lambda: stranger.revision_exists(repo, revision or "main"), f"looking for {repo}")
        return (repo, revision) if there else None

    def require(self, named: object, revision: str | None = None, critic: bool = False) -> tuple[str, str | None]:
        """Returns the same of the base model of an adapter, or of the backbone of a critic.

        Raises:
            ValueError: others cannot load it.
        """
        if (base := self.found(named, revision)) is not None:
            return base
        local = named and hub_id(named) is None
        why = "a folder of this machine" if local else f"not at {self.api and self.api.endpoint} for whoever loads it"
        source = f"hf-credit publish checkpoint {named if local else 'FOLDER'} OWNER/NAME"
        if critic:
            raise ValueError(
                f"a critic must name a backbone that others can load, got {named!r}, which is {why}; publish it "
                f"({source}), and name it there as critic_model of the training, and in {TASK_FILE} of its policy."
            )
        raise ValueError(
            f"an adapter must name a base model that others can load, got {named!r}, which is {why}; publish the base "
            f"({source}) and name it there, by --base OWNER/NAME or as the model of a run that pushes, or merge the "
            "adapter into it (peft: merge_and_unload)."
        )

    def of(self, files: Files, settings: Mapping[str, Any]) -> str | None:
        """Returns the id of the base model of adapters, or of a model that was trained with these settings."""
        for path in _settings(files):
            return str(_read(files[path])[_NAME])
        base = self.found(settings.get("model_name_or_path"), settings.get("model_revision"))
        return base and base[0]

    def adapters(self, files: Files) -> dict[str, bytes]:
        """Returns the settings of the adapters among files, with bases that others can load.

        Raises:
            ValueError: there is none, or it has other weights than the folder that the adapter was trained on.
        """
        found = {}
        for path in _settings(files):
            about = _read(files[path])
            if self.chosen is None:
                base = self.require(about.get(_NAME), about.get("revision"))
            else:
                chosen, _, revision = self.chosen.partition("@")
                base = self._pinned(Path(str(about.get(_NAME))), *self.require(chosen, revision or None))
            about[_NAME], about["revision"] = base
            found[path] = (json.dumps(about, indent=2, sort_keys=True) + "\n").encode()
        return found

    def task(self, files: Files) -> dict[str, bytes]:
        """Returns the description of the task, if it is among files and names the backbone of a critic.

        Raises:
            ValueError: others cannot load the backbone.
        """
        about = _read(files[TASK_FILE]) if TASK_FILE in files else {}
        if about.get("critic_model") is None:
            return {}
        about["critic_model"] = self.require(about["critic_model"], critic=True)[0]
        return {TASK_FILE: (json.dumps(about, indent=2, sort_keys=True) + "\n").encode()}

    def _pinned(self, folder: Path, repo: str, revision: str | None) -> tuple[str, str | None]:
        """Returns a base model with its commit; refuses one with other weights than the folder, if that is here."""
        if self.api is None:
            return repo, revision
        ask = functools.partial(self.api.model_info, repo, revision=revision, files_metadata=True)
        info = retried(ask, f"reading {repo}")
        there = {one.rfilename: one.lfs and one.lfs.sha256 for one in info.siblings or ()}
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                if there.get(path.name) != hashlib.file_digest(file, "sha256").hexdigest():
                    raise ValueError(
                        f"the base model must be that of the adapter, got {repo!r} whose {path.name} is not that of "
                        f"{str(folder)!r}; publish that folder, and name where."
                    )
        return repo, str(info.sha)


def _settings(files: Files) -> list[str]:
    found = [path for path in files if path.rpartition("/")[2] == ADAPTER_CONFIG]
    return sorted(found, key=lambda path: (path.count("/"), path))  # of the policy first


def _read(source: Path | bytes) -> dict[str, Any]:
    return dict(read_json(source) if isinstance(source, Path) else json.loads(source))
