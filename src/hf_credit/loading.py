"""Loads models, for which it imports torch; refuses files with missing, unexpected or differently shaped tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.constants import CONFIG_NAME
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from hf_credit.checkpoints import NUMBERED, latest_complete
from hf_credit.http_guard import bounded, httpx
from hf_credit.tokenizer_process import require_bounded
from hf_credit.trust import installed
from hf_credit.validators import first_line

if TYPE_CHECKING:
    from peft import PeftModel  # its import takes a second, which only adapters need
    from transformers import PreTrainedTokenizerBase

ADAPTER_CONFIG = "adapter_config.json"
"""The file that distinguishes a folder with an adapter from one with a whole model."""
_NO_QUESTION: dict[str, Any] = {"trust_remote_code": False}  # without it transformers reads an answer from stdin
_MODEL_SECONDS = 10.0
_CRITIC = "critic"  # the folder of a critic, which may be an adapter too, but is not a policy


class IncompleteModelError(ValueError):
    """The files of a model lack a tensor, or have another one than its config requires."""


def require_model(model: str | Path, revision: str | None = None) -> None:
    """Refuses a name that is neither a folder nor a model of the Hub; asks the Hub once, with a short time-out.

    Raises:
        ValueError: it is neither.
    """
    if Path(model).is_dir():
        return
    try:
        for name in (CONFIG_NAME, ADAPTER_CONFIG):
            if isinstance(try_to_load_from_cache(str(model), name, revision=revision), str):
                return
        with bounded():
            HfApi().model_info(str(model), revision=revision, timeout=_MODEL_SECONDS)
    except HFValidationError:
        reason = "which is no id on the Hub"
    except RepositoryNotFoundError:
        reason = "which the Hub does not have, or does not show without a token"
    except (OfflineModeIsEnabled, httpx.TransportError) as error:
        reason = f"and the Hub cannot be asked ({type(error).__name__})"
    else:
        return
    raise ValueError(
        f"a model must be a folder with a saved policy or an id on the Hub, got {str(model)!r}, which is no folder, "
        f"{reason}; correct the path, or make a policy there by hf-credit init-policy."
    )


def load_policy(model: str, device: str | None = None, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Loads a causal language model and its tokenizer, or its processor if it sees.

    Args:
        model: a folder, with an adapter or a whole model, or an id on the Hub.
        device: if `None`, a GPU if there is one, else the CPU.
        trust_remote_code: whether code in the folder or repository is run.

    Raises:
        ValueError: there is no such model or device, or the model's files lack a tensor.
    """
    device = device_of(device)
    require_model(model)
    try:
        tokenizer = load_processing_class(model, trust_remote_code)
        network = load_model(model, dtype="auto", trust_remote_code=trust_remote_code)
    except IncompleteModelError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"a model must be a folder with a saved policy or an id on the Hub, got {model!r} ({first_line(error)}); "
            "correct the name, or save the policy again."
        ) from error
    return network.to(device), tokenizer


def load_tokenizer(
    name: str | Path, trust_remote_code: bool = False, revision: str | None = None
) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder or of the Hub, which pads on the left, as generation needs it.

    Args:
        trust_remote_code: whether code in the folder or repository is run; without it transformers is not to ask, and
            the tokenizer is tried first.

    Raises:
        OSError: there is none.
        ValueError: it takes too much time or memory.
    """
    from transformers import AutoTokenizer

    if not trust_remote_code:
        require_bounded(name, revision)
    known: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": revision}
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, padding_side="left", **known)
    return tokenizer


def load_processing_class(name: str | Path, trust_remote_code: bool = False, revision: str | None = None) -> Any:
    """Loads the processor of a model that sees, or the tokenizer of any other; as `load_tokenizer`."""
    from transformers import AutoConfig, AutoProcessor

    known: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    base, base_revision = _base_of(name, revision) or (name, revision)
    config = AutoConfig.from_pretrained(base, revision=base_revision, **known)
    if not installed("PIL") or not hasattr(config, "vision_config"):
        return load_tokenizer(name, trust_remote_code, revision)
    if not trust_remote_code:
        require_bounded(name, revision)
    try:
        return AutoProcessor.from_pretrained(name, padding_side="left", revision=revision, **known)
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"the processor of {str(name)!r} must load, got {first_line(error)!r}; give it what it lacks."
        ) from None


def load_model(name: str | Path, **options: Any) -> Any:
    """Loads the causal language model of a folder or of the Hub, with its base model if it is an adapter.

    Args:
        name: the folder, or the id on the Hub.
        **options: as for `from_pretrained`.

    Raises:
        IncompleteModelError: a tensor is missing, unexpected, or of another shape; the error names the first.
        OSError: there is no such model.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    hub = {key: options[key] for key in ("revision",) if options.get(key) is not None}
    if _base_of(name, hub.get("revision")) is None:
        checked = {"output_loading_info": True, "ignore_mismatched_sizes": True, **_NO_QUESTION, **options}
        known = {key: checked[key] for key in ("revision", "trust_remote_code", "subfolder") if key in checked}
        sees = hasattr(AutoConfig.from_pretrained(name, **known), "vision_config")
        kind: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        loaded: Any = kind.from_pretrained(name, **checked)
        model, keys = loaded
        require_whole(name, keys["missing_keys"], keys["unexpected_keys"], keys["mismatched_keys"])
        return model
    model = load_base(name, **options)
    added = model.load_adapter(str(name), adapter_kwargs=hub)
    require_whole(name, added.missing_keys, added.unexpected_keys, added.mismatched_keys)
    return model


def load_base(name: str | Path, revision: str | None = None, **options: Any) -> Any:
    """Loads the base model that an adapter names, at the revision that it names; arguments are as in `load_model`."""
    base, revision = _base_of(name, revision) or (str(name), revision)
    return load_model(base, **options, revision=revision)


def _base_of(name: str | Path, revision: str | None) -> tuple[str, str | None] | None:
    """The model that an adapter names as its base, and its revision; `None` for a whole model."""
    from transformers.utils import find_adapter_config_file

    hub: dict[str, Any] = {} if revision is None else {"revision": revision}
    if find_adapter_config_file(str(name), **hub) is None:
        return None
    from peft import PeftConfig

    named = PeftConfig.from_pretrained(str(name), **hub)
    return str(named.base_model_name_or_path), named.revision


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
    return [path for path in found if path.name != _CRITIC and not path.name.startswith(NUMBERED)]


def refuse_stopped(folder: Path) -> None:
    """Refuses the folder of a run that has checkpoints, and not yet the policy of its end."""
    if not folder.is_dir() or any(folder.glob("*.safetensors")) or role_folders(folder):
        return
    if (latest := latest_complete(folder)) is not None:
        raise ValueError(
            f"a run must have ended to have its policy in its folder, got {str(folder)!r}, which was stopped before "
            f"its end; name its newest checkpoint, {latest}, or resume the run."
        )


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
    from transformers import AutoConfig

    refuse_adapters(name)
    kept: dict[str, Any] = dict(_NO_QUESTION)
    kept.update((key, options[key]) for key in ("revision", "trust_remote_code", "subfolder") if key in options)
    config = AutoConfig.from_pretrained(name, **kept)
    if getattr(config, "quantization_config", None) is None:
        load_model(name, device_map="meta", **kept)
    return config


def half_precision(parameters: Iterable[Any]) -> str:
    """Names the types of parameters that lose updates below 1/256 of a weight; none if all are float32 or float64."""
    return ", ".join(sorted({str(one.dtype) for one in parameters} - {"torch.float32", "torch.float64"}))


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


def device_of(device: str | None) -> str:
    """Returns a device, by default a GPU if there is one, and refuses one that torch does not find here."""
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # an AssertionError where torch was built without CUDA
        raise ValueError(
            f"device must be one that torch finds here, such as cpu or cuda:0, got {device!r} ({first_line(error)}); "
            "name another."
        ) from None
    return device
