"""What a model reads of messages besides their text: the one place from images to tokens and pixel inputs.

`Media` is for models of text alone. `Pictures` asks the model's own processor. Another kind of part, such as sound,
would be a class next to it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from hf_credit.content import Image, Text, content_of, text_of
from hf_credit.optional_packages import needed
from hf_credit.rollouts.episode import Context
from hf_credit.rollouts.interaction import Message
from hf_credit.rollouts.templates import ChatTemplateError

_TYPES = {"token_type_ids", "mm_token_type_ids"}  # 1 on the tokens of images, under the name that a family has
_OF_TOKENS = {"input_ids", "attention_mask", *_TYPES}
_MOST_SIZES = 1024  # of images, whose tokens are kept


class Media:
    """What a model of text reads: it refuses other parts.

    Attributes:
        unsampled: the tokens that no reply may have.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.processing_class = self.tokenizer = tokenizer
        self.unsampled: list[int] = []

    def plain(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Returns messages with contents of which the text can be read.

        Raises:
            ValueError: a part is not one that the model reads.
        """
        if all(isinstance(one.get("content"), str) for one in messages):
            return messages
        readers = {"assistant": text_of}  # whose calls and thoughts are read from its text
        return [{**one, "content": readers.get(one["role"], self.read)(one.get("content"))} for one in messages]

    def read(self, content: Any) -> str | list[dict[str, Any]]:
        """Returns what a message says in the form of chat templates: text, or parts if one is no text."""
        return text_of(content)

    def shown(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Returns plain messages in the form that the chat template expects."""
        return messages

    def rendered(self, text: str, messages: Sequence[Message]) -> str:
        """Returns a rendered conversation, or its end, with the tokens of the media of plain messages in place."""
        return text

    def context(self, ids: Sequence[int], messages: Sequence[Message]) -> Context:
        """Returns the tokens of a rendered conversation, or of its end, with the media of plain messages."""
        return tuple(ids)

    def skeleton(self, render: Callable[[Sequence[Message]], str]) -> str:
        """Returns a rendered message with every kind of part, for its special tokens.

        Raises:
            ChatTemplateError: the template does not write every part once.
        """
        return ""

    def of_rows(self, rows: Iterable[tuple[Context, Context]]) -> dict[str, Any]:
        """Returns what a batch of rows, each a prompt and a completion, has besides tensors: plain values by row."""
        return {}

    def inputs(self, model: Any, ids: Any, media: Sequence[Sequence[str]] | None) -> dict[str, Any]:
        """Returns what a model reads of rows besides their tokens and masks, and `None` for positions of its own.

        Args:
            model: the model itself.
            ids: the tokens of the rows, a tensor of shape (rows, columns).
            media: those of the rows, from `of_rows`.
        """
        return {}

    def sample(self) -> tuple[list[int], list[str]]:
        """Returns the tokens and the media of a beginning of a row with every kind of part, to try a model with."""
        return [], []

    def marked(self, rows: list[Any], media: Sequence[Sequence[str]] | None) -> tuple[list[Any], dict[int, str]]:
        """Returns rows of tokens, arrays, with a negative number in place of those of each medium, and the media by
        number: the same number where rows have the same media so far."""
        return rows, {}

    def positions(self, model: Any, ids: Any, mask: Any, media: Sequence[Sequence[str]] | None) -> Any:
        """Returns the positions of rows with media, of shape (axes, rows, columns), in a model with several axes."""
        return None

    def generation_inputs(self, model: Any, contexts: Sequence[Context]) -> dict[str, Any]:
        """Returns what a model reads of contexts besides their tokens; what each token has, as lists."""
        return {}


OF_TEXT = Media(None)
"""Of rows that are text alone."""


def media_of(processing_class: Any) -> Media:
    """Returns how a model reads messages, by its tokenizer or its processor."""
    return Pictures(processing_class) if hasattr(processing_class, "image_processor") else Media(processing_class)


class VisualContext(tuple[int, ...]):
    """Token ids with the images whose tokens are among them. Slices and sums keep them; equal ones have equal images.

    Attributes:
        images: each after the index of its first token.
    """

    images: tuple[tuple[int, Image], ...]

    def __new__(cls, ids: Iterable[int], images: Iterable[tuple[int, Image]] = ()) -> VisualContext:
        made = super().__new__(cls, ids)
        made.images = tuple(images)
        return made

    def __add__(self, other: tuple[Any, ...]) -> VisualContext:
        return VisualContext((*self, *other), (*self.images, *_moved(other, len(self))))

    def __radd__(self, other: tuple[Any, ...]) -> VisualContext:
        return VisualContext((*other, *self), (*_moved(other, 0), *_moved(self, len(other))))

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        if not isinstance(at, slice):
            return super().__getitem__(at)
        start, stop, _ = at.indices(len(self))
        return VisualContext(
            super().__getitem__(at), [one for one in _moved(self, -start) if 0 <= one[0] < stop - start]
        )

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.images == getattr(other, "images", ())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.images)) if self.images else super().__hash__()

    def __repr__(self) -> str:
        return f"{super().__repr__()} with {self.images}" if self.images else super().__repr__()


def images_of(context: Context) -> list[Image]:
    """Returns the images among the tokens of a context, in order."""
    return [image for _, image in _moved(context, 0)]


def _moved(context: Context, by: int) -> list[tuple[int, Image]]:
    return [(place + by, image) for place, image in getattr(context, "images", ())]


class Pictures(Media):
    """What a model with a processor of images reads: each image once, in its place.

    Args:
        processor: of transformers, with a tokenizer and a chat template. Its tokenizer gets that template.

    Raises:
        ValueError: it does not write the tokens of an image as text that its tokenizer reads as the same.
    """

    def __init__(self, processor: Any) -> None:
        super().__init__(processor)
        needed("images need", "PIL.Image", "vision")
        self.tokenizer = processor.tokenizer
        if getattr(processor, "chat_template", None):
            self.tokenizer.chat_template = processor.chat_template
        self.unsampled = list(getattr(processor, "image_token_ids", None) or [processor.image_token_id])
        self._image_ids = frozenset(self.unsampled)
        self._placeholder = str(processor.image_token)
        self._written = functools.lru_cache(_MOST_SIZES)(self._new_written)

    def read(self, content: Any) -> str | list[dict[str, Any]]:
        if isinstance(content := content_of(content), str):
            return content
        found: list[dict[str, Any]] = []
        for kind, group in itertools.groupby(content, type):  # neighbouring texts are one
            parts = list(group)
            found += [_text(text_of(parts))] if kind is Text else ({"type": "image", "image": one} for one in parts)
        return found

    def shown(self, messages: Sequence[Message]) -> Sequence[Message]:
        return [
            {**one, "content": [_text(one["content"])]} if isinstance(one.get("content"), str) else one
            for one in messages
        ]

    def rendered(self, text: str, messages: Sequence[Message]) -> str:
        pieces, images = text.split(self._placeholder), _images(messages)
        if len(pieces) != len(images) + 1:
            raise ChatTemplateError(
                f"the chat template must write every image of a message once, got {len(pieces) - 1} in place of "
                f"{len(images)}; set another tokenizer.chat_template, or show images in messages of the user."
            )
        written = [self._written(image.size)[0] for image in images]
        return "".join(itertools.chain(*zip(pieces, [*written, ""], strict=True)))

    def context(self, ids: Sequence[int], messages: Sequence[Message]) -> Context:
        images = _images(messages)
        if not images:
            return tuple(ids)
        places = [place for place, token in enumerate(ids) if token in self._image_ids]
        firsts = itertools.accumulate((self._written(image.size)[1] for image in images), initial=0)
        return VisualContext(ids, [(places[first], image) for first, image in zip(firsts, images, strict=False)])

    def skeleton(self, render: Callable[[Sequence[Message]], str]) -> str:
        image = Image.of(needed("images need", "PIL.Image", "vision").new("RGB", (64, 48)))
        message = {"role": "user", "content": self.read(["?", image, "?"])}
        return self.rendered(render([message]), [message])

    def of_rows(self, rows: Iterable[tuple[Context, Context]]) -> dict[str, Any]:
        media = [[image.png for part in row for image in images_of(part)] for row in rows]
        return {"media": media} if any(media) else {}

    def inputs(self, model: Any, ids: Any, media: Sequence[Sequence[str]] | None) -> dict[str, Any]:
        images = [Image(png) for row in media or () for png in row]
        is_image = sum(ids == token for token in self._image_ids)
        found = self._inputs(model, images, int(is_image.sum()), is_image)
        return found | {"position_ids": None} if found and _of_axes(model) else found

    def sample(self) -> tuple[list[int], list[str]]:
        image = Image.of(needed("images need", "PIL.Image", "vision").new("RGB", (64, 48), "teal"))
        return list(self.tokenizer(self._written(image.size)[0], add_special_tokens=False)["input_ids"]), [image.png]

    def marked(self, rows: list[Any], media: Sequence[Sequence[str]] | None) -> tuple[list[Any], dict[int, str]]:
        import numpy as np  # takes a while, and rooms without a model import this one

        numbers: dict[tuple[int, str], int] = {}
        found = [row.copy() for row in rows]
        for row, images in zip(found, media or [[]] * len(rows), strict=True):
            of_row = [numbers.setdefault(one, -1 - len(numbers)) for one in enumerate(images)]
            places = np.isin(row, self.unsampled)
            counts = self._counts([Image(png) for png in images], int(places.sum()))
            row[places] = np.repeat(np.array(of_row, dtype=np.int64), counts)
        return found, {number: png for (_, png), number in numbers.items()}

    def positions(self, model: Any, ids: Any, mask: Any, media: Sequence[Sequence[str]] | None) -> Any:
        owner = _of_axes(model)
        if owner is None or not media or not any(media):
            return None
        grids = [self._written(Image(png).size)[2] for row in media for png in row]
        types = sum(ids == token for token in self._image_ids)
        return owner.get_rope_index(ids, types, image_grid_thw=ids.new_tensor(grids), attention_mask=mask)[0]

    def generation_inputs(self, model: Any, contexts: Sequence[Context]) -> dict[str, Any]:
        images = [image for context in contexts for image in images_of(context)]
        types = [[int(token in self._image_ids) for token in context] for context in contexts]
        return self._inputs(model, images, sum(map(sum, types)), types)

    def _inputs(self, model: Any, images: Sequence[Image], tokens: int, types: Any) -> dict[str, Any]:
        """The pixel inputs of images, by the processor, and the types of tokens; raises as `_counts`."""
        self._counts(images, tokens)
        if not images:
            return {}
        text = self._placeholder * len(images)
        made = self.processing_class(images=[image.pil() for image in images], text=[text], return_tensors="pt")
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        known = inspect.signature(type(inner).forward).parameters.keys()
        pixels = {name: made[name].to(model.device) for name in known & made.keys() - _OF_TOKENS}
        if not pixels:
            raise ValueError(f"a model must read images here, got {type(inner).__name__}; use one that sees.")
        return {**pixels, **dict.fromkeys(known & _TYPES, types)}

    def _counts(self, images: Sequence[Image], tokens: int) -> list[int]:
        """The number of tokens of each image.

        Raises:
            ValueError: there are other numbers of `tokens` of images.
        """
        counts = [self._written(image.size)[1] for image in images]
        if tokens != sum(counts):
            raise ValueError(
                f"rows must have the {sum(counts)} tokens of their {len(images)} images, got {tokens}; keep the "
                "contexts of decisions as they are, and let no reply have a token of an image."
            )
        return counts

    def _new_written(self, size: tuple[int, int]) -> tuple[str, int, Any]:
        """What stands in a text for an image of a size, how many of its tokens are of the image, and its grid, if the
        family has one."""
        blank = needed("images need", "PIL.Image", "vision").new("RGB", size)
        made = self.processing_class(images=[blank], text=[self._placeholder], add_special_tokens=False)
        ids = list(made["input_ids"][0])
        text = str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False, spaces_between_special_tokens=False))
        if list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) != ids:
            raise ValueError(
                f"a processor must write the tokens of an image as text that is read as the same, got {text[:99]!r} "
                f"of {type(self.processing_class).__name__}; use a model of another family."
            )
        grid = made["image_grid_thw"][0].tolist() if "image_grid_thw" in made else None
        return text, sum(token in self._image_ids for token in ids), grid


def _of_axes(model: Any) -> Any:
    """The module of a model that gives the tokens of images positions on several axes; `None` without one."""
    return next((one for one in model.modules() if hasattr(one, "get_rope_index")), None)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _images(messages: Sequence[Message]) -> list[Image]:
    """Those in plain messages, in order."""
    parts = (part for one in messages if isinstance(one.get("content"), list) for part in one["content"])
    return [part["image"] for part in parts if part["type"] == "image"]
