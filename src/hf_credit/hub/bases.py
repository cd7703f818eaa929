"""The model that a published one is based on: strangers load it by the name that is published, or it is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from hf_credit.hub.retries import retried
from hf_credit.loading import ADAPTER_CONFIG
from hf_credit.model_cards import hub_id
from hf_credit.safe_io import parse_json, read_json

_NAME = "base_model_name_or_path"


@dataclass(frozen=True)
class Bases:
    """Finds the base models of a publication.

    Args:
        repo: that is published.
        chosen: the base as owner/name[@revision], in place of what the model itself names.
        api: of the Hub that is asked; if `None`, as in a dry run, only names are judged.
        private: whether the publication is, so that its base may be.
    """

    repo: str = ""
    chosen: str | None = None
    api: HfApi | None = None
    private: bool = False

    def found(self, named: object, revision: str | None = None) -> tuple[str, str | None] | None:
        """Returns the id and the revision of a base model that whoever may load what is published may load, too."""
        base = hub_id(named)
        if base is None or self.api is None:
            return base and (base[0], base[1] or revision)
        info = self._info(base[0], base[1] or revision)
        return None if info is None or (info.private and not self.private) else (base[0], base[1] or revision)

    def require(self, named: object, revision: str | None = None) -> tuple[str, str | None]:
        """Returns the same of the base model of an adapter.

        Raises:
            ValueError: others cannot load it.
        """
        if (base := self.found(named, revision)) is not None:
            return base
        why, folder = f"not at {self.api and self.api.endpoint} for whoever may load {self.repo}", "FOLDER"
        if hub_id(named) is None:
            why, folder = ("a folder of this machine", str(named)) if named else ("no name", folder)
        raise ValueError(
            f"an adapter must name a base model that others can load, got {named!r}, which is {why}; publish the base "
            f"(hf-credit publish checkpoint {folder} OWNER/NAME) and name it there, as the model of a run that pushes "
            "or by --base OWNER/NAME, or merge the adapter into it (peft: merge_and_unload)."
        )

    def of(self, files: Mapping[str, Path | bytes], settings: Mapping[str, Any]) -> str | None:
        """Returns the id of the base model of a renamed adapter, or of a model with these settings of its run."""
        for path in _adapters(files):
            return str(_read(files[path])[_NAME])
        base = self.found(settings.get("model_name_or_path"), settings.get("model_revision"))
        return base and base[0]

    def rename(self, files: Mapping[str, Path | bytes]) -> dict[str, bytes]:
        """Returns the settings of the adapters among files, as far as they must name their base otherwise.

        Raises:
            ValueError: others cannot load the base model of an adapter, or it has other weights than the folder that
                the adapter was trained on.
        """
        renamed = {}
        for path in _adapters(files):
            about = _read(files[path])
            named = about.get(_NAME), about.get("revision")
            if self.chosen is None:
                base = self.require(*named)
            else:
                chosen, _, revision = self.chosen.partition("@")
                base = self._pinned(Path(str(named[0])), *self.require(chosen, revision or None))
            if named != base:
                about |= {_NAME: base[0], "revision": base[1]}
                renamed[path] = (json.dumps(about, indent=2, sort_keys=True) + "\n").encode()
        return renamed

    def _info(self, repo: str, revision: str | None = None) -> Any:
        def look() -> Any:
            try:
                return self.api and self.api.model_info(repo, revision=revision, files_metadata=True)
            except (RepositoryNotFoundError, RevisionNotFoundError):
                return None

        return retried(look, f"looking for {repo}")

    def _pinned(self, folder: Path, repo: str, revision: str | None) -> tuple[str, str | None]:
        """Returns a base model with its commit; refuses one with other weights than the folder, if that is here."""
        if (info := self._info(repo, revision)) is None:
            return repo, revision
        there = {one.rfilename: one.lfs and one.lfs.sha256 for one in info.siblings}
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if there.get(path.name) != digest:
                raise ValueError(
                    f"the base model must be that of the adapter, got {repo!r} whose {path.name} is not that of "
                    f"{str(folder)!r}; publish that folder, and name where."
                )
        return repo, str(info.sha)


def _adapters(files: Mapping[str, Path | bytes]) -> list[str]:
    """The settings of adapters among files, that of the policy first."""
    return sorted(
        (path for path in files if PurePosixPath(path).name == ADAPTER_CONFIG), key=lambda path: path.count("/")
    )


def _read(source: Path | bytes) -> dict[str, Any]:
    return dict(parse_json(source.decode()) if isinstance(source, bytes) else read_json(source))
