"""What a message says is text, or parts, of which those of text alone are read as text."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as pil

from hf_credit.boundary import read
from hf_credit.content import MOST_IMAGE_BYTES, Content, Image, Text, content_of, in_words, joined, text_of

_GIVEN: st.SearchStrategy[Any] = st.text(max_size=3)
_GIVEN = (
    st.none()
    | _GIVEN
    | st.lists(_GIVEN | st.builds(dict, type=st.just("text"), text=_GIVEN) | st.builds(Text, _GIVEN))
)


@given(_GIVEN)
def test_content_is_read_once_and_says_the_same_to_models_and_people(given: Any) -> None:
    content = content_of(given)
    assert content_of(content) == content
    assert text_of(given) == text_of(content) == in_words(content)
    assert isinstance(content, str) or any(isinstance(one, Text) for one in given)


@given(_GIVEN)
def test_content_is_a_value_that_json_keeps(given: Any) -> None:
    content = content_of(given)
    assert read(Content, json.loads(json.dumps(content, default=vars)), "a message") == content
    assert hash(content) == hash(content_of(given))


def test_contents_are_joined_as_texts_or_as_parts() -> None:
    assert joined(["a", "b"], " ") == "a b"
    assert joined([]) == ""
    assert joined(["a", (Text("b"), Text("c"))], " ") == (Text("a"), Text("b"), Text("c"))


@pytest.mark.parametrize(
    "given",
    [
        5,
        [5],
        {"type": "image_url"},
        {"type": "image", "image": "https://example.org/x.png"},
        [{"type": "text", "text": None}],
        ["a", {"text": 1}],
    ],
)
def test_a_part_of_no_known_kind_is_refused(given: Any) -> None:
    for reads in (content_of, text_of, in_words):
        with pytest.raises(ValueError, match="a message must be text or parts of text, got"):
            reads(given)


def _picture(width: int = 4, height: int = 3, colour: str = "red", mode: str = "RGB") -> Any:
    return pil.new(mode, (width, height), colour)


def _file(image: Any, form: str, **options: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, form, **options)
    return written.getvalue()


@pytest.mark.parametrize("form", ["PNG", "WEBP", "GIF"])
def test_an_image_is_the_same_value_from_pil_from_the_form_of_templates_and_from_a_file(form: str) -> None:
    image = Image.of(_picture())
    options = {"lossless": True} if form == "WEBP" else {}
    assert Image.of(_file(_picture(), form, **options)) == image
    for one in (_picture(), {"type": "image", "image": _picture()}, {"type": "image", "image": image}, image):
        assert content_of(one) == (image,)
    assert joined([*map(content_of, ["look", _picture()])]) == (Text("look"), image)


def test_an_image_is_a_plain_value_that_people_see_as_its_size_and_digest() -> None:
    image = Image.of(_picture())
    assert pickle.loads(pickle.dumps(image)) == image
    assert hash(image) == hash(Image.of(_picture()))
    assert read(Content, json.loads(json.dumps([image], default=vars)), "a message") == (image,)
    assert image.size == (4, 3)
    assert image.pil().getpixel((3, 2)) == (255, 0, 0)
    assert in_words(["look", image]) == f"look\n[image 4x3 {image.digest[:8]}]"
    assert repr(image) == f"Image of {image.digest}"
    assert Image.of(_picture(colour="blue")) != image


def test_an_image_is_kept_upright_and_without_its_metadata() -> None:
    turned = pil.Exif()
    turned[0x112], turned[0x10E] = 6, "a secret"  # orientation, description
    image = Image.of(_file(_picture(), "JPEG", exif=turned))
    assert image.size == (3, 4)
    assert b"secret" not in image.encoded()


def test_transparency_is_kept() -> None:
    assert Image.of(pil.new("RGBA", (1, 1), (1, 2, 3, 4))).pil().getpixel((0, 0)) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "given",
    [
        _file(_picture(20_000, 20_000, mode="1", colour="white"), "PNG"),  # 49 kB
        _file(_picture(5_000, 5_000, mode="1", colour="white"), "PNG"),
        b"0" * (MOST_IMAGE_BYTES + 1),
        _file(_picture(), "BMP"),
        _file(_picture(50, 50), "JPEG")[:-200],
        b"",
        "data:image/png;base64,AAAA",
    ],
    ids=["far too many pixels", "too many pixels", "too many bytes", "another format", "cut", "nothing", "a text"],
)
def test_a_file_that_is_too_large_or_no_image_is_refused_in_one_sentence(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^an image must .*, got [^.]*; [^.]*\.$"):
        Image.of(given)


@pytest.mark.parametrize(
    "png", ["", "AAAA", "\xe9", "iVBORw0KGgoAAAANSUhEUgAAAAAAAAAB", Image.of(_picture()).png[:40]]
)
def test_an_image_of_elsewhere_is_refused_where_it_is_no_png(png: str) -> None:
    with pytest.raises(ValueError, match="an image must"):
        Image(png).pil()


def test_who_reads_text_alone_refuses_an_image() -> None:
    with pytest.raises(ValueError, match=r"a message must be text or parts of text, got '.image 4x3 [0-9a-f]{8}.'"):
        text_of(["look", _picture()])
