"""Presets: a method with the settings of its paper, as data that the config of either way to train takes."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_origin, get_type_hints

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.methods import Method
from hf_credit.options import MAPPING, NUMBER_OR_WORD, arguments_in, options_of
from hf_credit.registry import did_you_mean
from hf_credit.rollouts import Interaction
from hf_credit.safe_io import as_mapping
from hf_credit.trainers import arguments
from hf_credit.trainers.config import RunSettings, default_of, documented_field
from hf_credit.trainers.credit import CreditTrainer

_HELP = "options of the method, a mapping. They are fields of their own, too."


class Preset:
    """Mixed into a config: the options of a method as fields, and the defaults of a paper.

        class ReplayLOOConfig(Preset, CreditConfig, method="replay_loo", defaults={"beta": 0.001}): ...

    The class becomes a dataclass. An option takes its help and its default from the method's factory, a setting its
    help from the config, unless the docstring of the class explains it. An option that is an object, such as an
    oracle, is a field only if the class has one.

    Args:
        method: class argument: the name of the method.
        defaults: class argument: the paper's options and settings, by name.
    """

    method_name: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]]

    if TYPE_CHECKING:  # the fields are data, which no type checker reads
        method_options: Any

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(
        cls, method: str | None = None, defaults: Mapping[str, Any] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if method is None:  # a subclass of a preset
            return
        cls.method_name, cls.defaults = method, defaults
        config = next(one for one in cls.__mro__[1:] if issubclass(one, RunSettings))
        settings, kinds = {one.name: one for one in dataclasses.fields(config)}, get_type_hints(config)
        options, texts, body = options_of(methods.find(method)), arguments_in(cls.__doc__ or ""), vars(cls).copy()
        fields = inspect.get_annotations(cls)
        for name, option in options.items():
            if option.field_type is not None:
                fields.setdefault(name, option.field_type)
        for name in defaults:
            fields.setdefault(name, kinds.get(name))
        for name in fields:
            text, bounds, default = texts.get(name, ""), "", defaults.get(name, body.get(name))
            if name in options:
                option = options[name]
                text = text or option.text
                bounds = f"; {option.values}" if get_origin(option.kind) is Annotated else ""
                default = default if name in defaults or name in body else option.default
            if text or name not in settings:
                setattr(cls, name, documented_field(default, text, bounds))
            else:
                setattr(cls, name, dataclasses.field(default=default, metadata=settings[name].metadata))
        cls.method_options = documented_field(None, _HELP)
        cls.__annotations__ = {**fields, "method_options": MAPPING}
        dataclasses.dataclass(cls)

    def __post_init__(self) -> None:
        fields, options = self._fields(), options_of(methods.find(self.method_name))
        for name, value in as_mapping("method_options", self.method_options).items():
            if name not in options or name not in fields:
                remedy = did_you_mean(name, options) or "correct or remove it."
                raise ValueError(f"method_options must be options of {self.method_name!r}, got {name!r}; {remedy}")
            if getattr(self, name) not in (default_of(fields[name]), value):
                raise ValueError(
                    f"{name} is given twice, as {getattr(self, name)} and {value}; leave one of them out."
                )
            setattr(self, name, value)
        self.method_options = None
        for name in fields.keys() & options.keys():
            if options[name].field_type == MAPPING and (value := getattr(self, name)) is not None:
                setattr(self, name, as_mapping(name, value, '{"tampering": 0.02}'))
            if options[name].field_type == NUMBER_OR_WORD:
                with contextlib.suppress(TypeError, ValueError):  # a word, or nothing
                    setattr(self, name, float(getattr(self, name)))
        super().__post_init__()  # type: ignore[misc]  # of the config
        self.composed(self.method())  # refuses options out of range

    def _fields(self) -> dict[str, dataclasses.Field]:
        return {one.name: one for one in dataclasses.fields(self)}  # type: ignore[arg-type]  # a subclass is one

    def options(self) -> dict[str, Any]:
        """The options of the method, by name."""
        fields = self._fields()
        return {name: getattr(self, name) for name in options_of(methods.find(self.method_name)) if name in fields}

    def method(self, **objects: Any) -> Method:
        """The method with the options of these settings.

        Args:
            **objects: options that are no fields, such as an oracle.
        """
        return methods.make(self.method_name, **self.options(), **objects)


class PresetTrainer(CreditTrainer):
    """A `CreditTrainer` whose settings, of `config_class`, determine the method."""

    config_class: ClassVar[type[Any]]

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: Any = None,
        train_dataset: Dataset | IterableDataset | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or self.config_class()
        arguments.require(interaction, args, self.config_class)
        super().__init__(model, interaction, args, train_dataset, method=args.method(), **kwargs)
