"""Models whose every tensor comes from their files: none is missing, unexpected or of another shape."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import find_adapter_config_file

if TYPE_CHECKING:
    from peft import PeftModel  # takes a second, which only those with an adapter should wait

ADAPTER_CONFIG = "adapter_config.json"
"""What a folder with an adapter holds, and one with a whole model does not."""
_CRITIC = "critic"  # the folder of a critic, which may be an adapter too, but is no policy


class IncompleteModelError(ValueError):
    """A tensor of a model is missing from its files, or is another than its config says; told in one sentence."""


def load_model(name: str | Path, **options: Any) -> Any:
    """The causal language model of a folder or of the Hub, with its adapter where it is one.

    Args:
        name: the folder, or the id on the Hub.
        **options: as for `from_pretrained`.

    Raises:
        IncompleteModelError: a tensor is missing, unexpected, or of another shape; the sentence names the first.
        OSError: there is no such model.
    """
    hub = {key: options[key] for key in ("revision",) if options.get(key) is not None}
    if find_adapter_config_file(str(name), **hub) is None:
        checked = {"output_loading_info": True, "ignore_mismatched_sizes": True, **options}
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, **checked)
        model, found = loaded
        require_whole(name, found["missing_keys"], found["unexpected_keys"], found["mismatched_keys"])
        return model
    from peft import PeftConfig

    base = PeftConfig.from_pretrained(str(name), **hub).base_model_name_or_path
    model = load_model(str(base), **{key: value for key, value in options.items() if key != "revision"})
    added = model.load_adapter(str(name), adapter_kwargs=hub)
    require_whole(name, added.missing_keys, added.unexpected_keys, added.mismatched_keys)
    return model


def load_adapter(model: Any, folder: str | Path, name: str = "default") -> PeftModel:
    """A model, which may have others already, with the adapter of a folder, called `name`.

    Raises:
        IncompleteModelError: as `load_model`.
    """
    from peft import PeftModel

    try:
        if not isinstance(model, PeftModel):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Found missing adapter keys")  # refused below
                model = PeftModel.from_pretrained(model, str(folder), adapter_name=name)
        found = model.load_adapter(str(folder), name)
    except RuntimeError as error:  # a tensor of another shape
        raise IncompleteModelError(
            f"an adapter must fit its base model, got {str(folder)!r} ({str(error).splitlines()[-1].strip()}); save "
            "it again."
        ) from None
    require_whole(folder, found.missing_keys, found.unexpected_keys)
    return model


def role_folders(folder: str | Path) -> list[Path]:
    """The folders of a run's roles, each with the adapter of one; none where all roles share a policy."""
    return sorted(path.parent for path in Path(folder).glob(f"*/{ADAPTER_CONFIG}") if path.parent.name != _CRITIC)


def require_whole_files(name: str, **options: Any) -> None:
    """Refuses, before training, a model that `load_model` would refuse; nothing is kept in memory.

    Args:
        name: as in `load_model`.
        **options: as for `from_pretrained`; what says where tensors go and how they are made is left out.

    Raises:
        IncompleteModelError: as `load_model`.
    """
    kept = {key: options[key] for key in ("revision", "trust_remote_code", "subfolder") if key in options}
    if getattr(AutoConfig.from_pretrained(name, **kept), "quantization_config", None) is None:
        load_model(name, device_map="meta", **kept)


def require_whole(
    name: str | Path, missing: Iterable[str], unexpected: Iterable[str] = (), mismatched: Iterable[Any] = ()
) -> None:
    """Refuses what a loader found to be missing, unexpected or of another shape.

    Args:
        name: of the model, for the sentence.
        missing, unexpected: names of tensors.
        mismatched: name, shape in the file, and shape in the model of tensors.

    Raises:
        IncompleteModelError: there is one.
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
