"""Loads models, and refuses files with missing, unexpected or differently shaped tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import find_adapter_config_file

if TYPE_CHECKING:
    from peft import PeftModel  # its import takes a second, which only adapters need

ADAPTER_CONFIG = "adapter_config.json"
"""The file that distinguishes a folder with an adapter from one with a whole model."""
_NO_QUESTION: dict[str, Any] = {"trust_remote_code": False}  # without it transformers reads an answer from stdin
_CHECKPOINT = "checkpoint-"
_CRITIC = "critic"  # the folder of a critic, which may be an adapter too, but is not a policy


class IncompleteModelError(ValueError):
    """The files of a model lack a tensor, or have another one than its config requires."""


def load_model(name: str | Path, **options: Any) -> Any:
    """Loads the causal language model of a folder or of the Hub, with its base model if it is an adapter.

    Args:
        name: the folder, or the id on the Hub.
        **options: as for `from_pretrained`.

    Raises:
        IncompleteModelError: a tensor is missing, unexpected, or of another shape; the error names the first.
        OSError: there is no such model.
    """
    hub = {key: options[key] for key in ("revision",) if options.get(key) is not None}
    if find_adapter_config_file(str(name), **hub) is None:
        checked = {"output_loading_info": True, "ignore_mismatched_sizes": True, **_NO_QUESTION, **options}
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, **checked)
        model, keys = loaded
        require_whole(name, keys["missing_keys"], keys["unexpected_keys"], keys["mismatched_keys"])
        return model
    from peft import PeftConfig

    base = PeftConfig.from_pretrained(str(name), **hub).base_model_name_or_path
    model = load_model(str(base), **{key: value for key, value in options.items() if key != "revision"})
    added = model.load_adapter(str(name), adapter_kwargs=hub)
    require_whole(name, added.missing_keys, added.unexpected_keys, added.mismatched_keys)
    return model


def load_adapter(model: Any, folder: str | Path, name: str = "default") -> PeftModel:
    """Adds the adapter of a folder, under `name`, to a model, which may have others.

    Raises:
        IncompleteModelError: as in `load_model`.
    """
    from peft import PeftModel

    try:
        if not isinstance(model, PeftModel):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Found missing adapter keys")  # refused below
                model = PeftModel.from_pretrained(model, str(folder), adapter_name=name)
        added = model.load_adapter(str(folder), name)
    except RuntimeError as error:  # a tensor of another shape
        raise IncompleteModelError(
            f"an adapter must fit its base model, got {str(folder)!r} ({str(error).splitlines()[-1].strip()}); save "
            "it again."
        ) from None
    require_whole(folder, added.missing_keys, added.unexpected_keys)
    return model


def role_folders(folder: str | Path) -> list[Path]:
    """Returns the folders of a run's roles, each with its adapter; none if all roles share a policy.

    A folder with an adapter of its own has none: folders in it are a reference's, a critic's or checkpoints.
    """
    if Path(folder, ADAPTER_CONFIG).is_file():
        return []
    found = sorted(path.parent for path in Path(folder).glob(f"*/{ADAPTER_CONFIG}"))
    return [path for path in found if path.name != _CRITIC and not path.name.startswith(_CHECKPOINT)]


def refuse_adapters(name: str) -> None:
    """Refuses a folder of adapters as the model that a training begins with."""
    if Path(name, ADAPTER_CONFIG).is_file() or role_folders(name):
        raise ValueError(
            f"a training must begin with a whole model, got adapters in {name!r}; merge them into their model first "
            "(peft: merge_and_unload), or go on with their run (--resume_from_checkpoint true)."
        )


def require_whole_files(name: str, **options: Any) -> Any:
    """Refuses, before training, a model that `load_model` would refuse, without its tensors in memory; else returns
    its config.

    Args:
        name: as in `load_model`.
        **options: as for `from_pretrained`; those about devices and data types have no effect.

    Raises:
        ValueError: it is an adapter.
        IncompleteModelError: as in `load_model`.
    """
    refuse_adapters(name)
    kept: dict[str, Any] = dict(_NO_QUESTION)
    kept.update((key, options[key]) for key in ("revision", "trust_remote_code", "subfolder") if key in options)
    config = AutoConfig.from_pretrained(name, **kept)
    if getattr(config, "quantization_config", None) is None:
        load_model(name, device_map="meta", **kept)
    return config


def require_whole(
    name: str | Path, missing: Iterable[str], unexpected: Iterable[str] = (), mismatched: Iterable[Any] = ()
) -> None:
    """Refuses a model with missing, unexpected or differently shaped tensors.

    Args:
        name: of the model, for the error.
        missing, unexpected: names of tensors.
        mismatched: (name, shape in the file, shape in the model) of tensors.

    Raises:
        IncompleteModelError: there is such a tensor.
    """
    wrong = [
        *(f"without {one}" for one in sorted(missing)),
        *(f"with {one}, which it does not have" for one in sorted(unexpected)),
        *(f"with {one} of shape {(*here,)} for {(*there,)}" for one, here, there in sorted(mismatched)),
    ]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise IncompleteModelError(
            f"the files of a model must hold every tensor that its config names and no other, got {str(name)!r} "
            f"{wrong[0]}{more}; download or save it again."
        )
