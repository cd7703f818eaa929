"""Images are apart from the JSON that holds them, each once, and come together again as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as pil

from hf_credit.content import Image, Text
from hf_credit.pictures import apart, forget, keep, kept, name_of, naming, together

RED, BLUE = (Image.of(pil.new("RGB", (4, 3), colour)) for colour in ("red", "blue"))
_TEXTS = st.sampled_from(["", '"png":', f'"png":"{RED.png}"', name_of(RED), f'"png":"{name_of(BLUE)}"', "\ud800"])
_CONTENTS: st.SearchStrategy[Any] = _TEXTS | st.lists(st.sampled_from([RED, BLUE]) | _TEXTS.map(Text), max_size=4)


@given(st.dictionaries(_TEXTS, st.lists(_CONTENTS, max_size=3)), st.sampled_from([(", ", ": "), (",", ":")]))
def test_images_are_apart_and_come_together_whatever_texts_are_beside_them(
    value: dict[str, Any], separators: tuple[str, str]
) -> None:
    text = json.dumps(value, default=vars, separators=separators)
    short, images = apart(text)
    named: dict[str, Image] = {}
    assert json.loads(json.dumps(value, default=naming(named))) == json.loads(short)
    assert images == named
    assert set(images.values()) == {
        one for row in value.values() for said in row for one in said if one in (RED, BLUE)
    }
    assert together(short, images) == text
    assert together(short, {}) == short
    if not images:
        assert short == text


def test_what_only_looks_like_an_image_stays() -> None:
    for png in ("iVBORw0KGgo", "iVBORw0KGgoAAAANSUhEUgAAAAAAAAAB"):
        assert apart(json.dumps({"png": png})) == (json.dumps({"png": png}), {})


def test_an_image_is_kept_once_in_the_file_of_its_digest(tmp_path: Path) -> None:
    text = json.dumps([RED, BLUE, RED], default=vars)
    short = keep(text, tmp_path)
    assert {path.name for path in tmp_path.glob("pictures/*")} == {f"{one.digest}.png" for one in (RED, BLUE)}
    assert (tmp_path / name_of(RED)).read_bytes() == RED.encoded()
    assert kept(short, tmp_path) == text
    forget(tmp_path, but=json.dumps([name_of(RED)]))
    assert [path.name for path in tmp_path.glob("pictures/*")] == [f"{RED.digest}.png"]
    with pytest.raises(ValueError, match=r"an image must be in its file, got none or another one in"):
        kept(short, tmp_path)


def test_another_file_in_the_place_of_an_image_is_refused(tmp_path: Path) -> None:
    short = keep(json.dumps([RED], default=vars), tmp_path)
    (tmp_path / name_of(RED)).write_bytes(BLUE.encoded())
    with pytest.raises(ValueError, match="got none or another one"):
        kept(short, tmp_path)


def test_other_files_in_the_folder_are_not_removed(tmp_path: Path) -> None:
    keep(json.dumps([RED], default=vars), tmp_path)
    (tmp_path / "pictures" / "mine.png").write_bytes(b"")
    forget(tmp_path)
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["mine.png"]
