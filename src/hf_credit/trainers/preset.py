"""What a paper's ready-made trainer and its settings share: the options of its method are fields of the settings."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, get_origin

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.methods import Method
from hf_credit.options import Option, options_of
from hf_credit.rollouts import Interaction
from hf_credit.trainers import arguments
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.credit import CreditTrainer

OPTION: Any = object()
"""In the body of a `PresetConfig`, stands for the default of the method's factory."""


@dataclass
class PresetConfig(CreditConfig):
    """Settings of a paper: those of every trainer, and the options of its method.

        @dataclass
        class ReplayLOOConfig(PresetConfig, method="replay_loo"):
            budget: int = OPTION

    A field that is called as an option of the method's factory takes its help from there, and its default where that
    is `OPTION`.
    """

    method_name: ClassVar[str]

    def __init_subclass__(cls, method: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if method is None:  # a subclass of a preset
            return
        cls.method_name = method
        for name, option in options_of(methods.find(method)).items():
            if name in cls.__annotations__ and not isinstance(getattr(cls, name), dataclasses.Field):
                setattr(cls, name, _field(option, getattr(cls, name)))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.composed(self.method())  # refuses its own settings

    def method_options(self) -> dict[str, Any]:
        """The options of the method by name, as the fields have them."""
        fields = {one.name for one in dataclasses.fields(self)}
        return {name: getattr(self, name) for name in options_of(methods.find(self.method_name)) if name in fields}

    def method(self) -> Method:
        """The method that these settings make."""
        return methods.make(self.method_name, **self.method_options())


class PresetTrainer(CreditTrainer):
    """A `CreditTrainer` whose settings say the method.

    Attributes:
        config_class: of its settings, the paper's by default.
    """

    config_class: ClassVar[type[PresetConfig]]

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: PresetConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or self.config_class()
        arguments.require(interaction, args, self.config_class)
        super().__init__(model, self.prepared(interaction, args), args, train_dataset, method=args.method(), **kwargs)

    @staticmethod
    def prepared(interaction: Interaction[Any], args: Any) -> Interaction[Any]:
        """What training plays in place of an Interaction, before a model is loaded; may complete the settings."""
        return interaction


def _field(option: Option, given: Any) -> Any:
    default = option.default if given is OPTION else given
    metadata = {"help": _help(option)}
    if isinstance(default, tuple):
        return field(default_factory=partial(list, default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _help(option: Option) -> str:
    """The first sentence that the factory says of an option, and the range of a number."""
    sentence = re.split(r"(?<=\.) (?=[A-Z])", option.text.replace("`", ""))[0].rstrip(".")
    bounds = f"; {option.values}" if get_origin(option.kind) is Annotated else ""
    return f"{sentence[:1].upper()}{sentence[1:]}{bounds}."
