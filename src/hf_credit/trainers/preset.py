"""The base classes of presets: trainers of one paper each, whose settings have the options of the method as fields."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_origin

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.methods import Method
from hf_credit.options import arguments_in, options_of
from hf_credit.rollouts import Interaction
from hf_credit.trainers import arguments
from hf_credit.trainers.config import CreditConfig, documented_field
from hf_credit.trainers.credit import CreditTrainer

OPTION: Any = object()
"""In the body of a `PresetConfig`: the default of the method's factory."""


@dataclass
class PresetConfig(CreditConfig):
    """Settings of a paper: those of every trainer, and the options of its method.

        @dataclass
        class ReplayLOOConfig(PresetConfig, method="replay_loo"):
            budget: int = OPTION

    A field with the name of an option of the method's factory takes its help text from the factory, unless the
    docstring of the config explains it, and with `OPTION` its default, too. A field of the base class keeps its help.
    """

    method_name: ClassVar[str]

    def __init_subclass__(cls, method: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if method is None:  # a subclass of a preset
            return
        cls.method_name = method
        options, texts = options_of(methods.find(method)), arguments_in(cls.__doc__ or "")
        inherited = {one.name: one.metadata for one in dataclasses.fields(cls.__mro__[1])}  # type: ignore[arg-type]
        for name in cls.__annotations__:
            default = getattr(cls, name)
            if isinstance(default, dataclasses.Field):
                continue
            if name in options:
                option = options[name]
                bounds = f"; {option.values}" if get_origin(option.kind) is Annotated else ""
                default = option.default if default is OPTION else default
                setattr(cls, name, documented_field(default, texts.get(name, option.text), bounds))
            elif name in texts:
                setattr(cls, name, documented_field(default, texts[name]))
            elif name in inherited:
                setattr(cls, name, dataclasses.field(default=default, metadata=inherited[name]))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.composed(self.method())  # refuses options out of range

    def method_options(self) -> dict[str, Any]:
        """The options of the method, by name."""
        fields = {one.name for one in dataclasses.fields(self)}
        return {name: getattr(self, name) for name in options_of(methods.find(self.method_name)) if name in fields}

    def method(self) -> Method:
        """The method with the options of these settings."""
        return methods.make(self.method_name, **self.method_options())


class PresetTrainer(CreditTrainer):
    """A `CreditTrainer` whose settings, of `config_class`, determine the method."""

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
        """Checks an Interaction before a model is loaded, and may complete the settings."""
        return interaction
