"""What must not be published or loaded is refused in one sentence, before it is read in full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save

from hf_credit import parquet
from hf_credit.hub import safety
from hf_credit.hub.client import check_repo, check_revision, connect
from hf_credit.hub.publishing import publish

HEADER = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def safetensors(header: Any, data: bytes = bytes(8), length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "C:\\x", "a\\b", "../a", "a/../b", "a//b", "./a", ".git/config", "a/.GIT/x"),
        *("a\0b", "a\nb", "a\u202eb", "a\u200bb", "\ud800", "x" * 256),
    ],
)
def test_names_that_mean_another_place_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="the name of a file must"):
        safety.check_path(path)


@pytest.mark.parametrize("path", ["a", "data/train-00000-of-00001.parquet", ".gitattributes", ".eval_results/x.yaml"])
def test_plain_names_are_taken(path: str) -> None:
    safety.check_names([path])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "x/optimizer.PT", "a.pkl", "a.npy", "a.zip", "a.tar.gz"])
def test_formats_that_run_code_and_archives_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"must not (run code|be an archive)"):
        safety.check_names([name])


@pytest.mark.parametrize(
    "names", [["README.md", "readme.md"], ["\u00e9", "e\u0301"], ["a", "a/b"], ["\u00e9", "e\u0301/b"]]
)
def test_names_that_are_one_to_some_file_systems_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"differ by more than case|a file's or a folder's"):
        safety.check_names(names)


def test_tensors_as_saved_are_taken() -> None:
    safety.check_safetensors(save({"a": torch.zeros(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        safetensors(HEADER, length=2**40),
        safetensors(HEADER, bytes(4)),
        safetensors(HEADER, bytes(12)),
        safetensors({"a": {**HEADER["a"], "data_offsets": [4, 12]}}, bytes(12)),
        safetensors({"a": HEADER["a"], "b": HEADER["a"]}),
        safetensors({"a": {**HEADER["a"], "shape": [3]}}),
        safetensors({"a": {**HEADER["a"], "dtype": "object"}}),
        safetensors({"a": {**HEADER["a"], "dtype": ["F32"]}}),
        safetensors({"a": {**HEADER["a"], "shape": [2, *[1] * 64]}}),
        safetensors({"a": {**HEADER["a"], "shape": [2**63, 0], "data_offsets": [0, 0]}}, b""),
        safetensors([1]),
        safetensors({"a": 1}),
    ],
)
def test_tensors_that_do_not_fill_their_file_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"; (save it again|save again|fix it)\."):
        safety.check_safetensors(content)


def test_json_is_as_deep_as_32() -> None:
    safety.check_json(b"[" * 31 + b"]" * 31)
    with pytest.raises(ValueError, match="32 deep"):
        safety.check_json(b"[" * 33 + b"]" * 33)
    with pytest.raises(ValueError, match="deep"):
        safety.check_json(b"[" * 100_000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: &x [1]\nb: *x\n", "an alias"),
        ("a: 1\na: 2\n", "twice"),
        ("[" * 60_000, "deep"),
        ("x" * 70_000, "65536 bytes"),
        ("a: !!python/object:os.system x\n", "YAML of plain values"),
    ],
)
def test_yaml_says_each_thing_once(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        safety.check_files({"a.yaml": text.encode()})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"a": [0] * 100_000}), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def test_a_table_is_refused_by_its_footer(table: Path) -> None:
    assert parquet.count_rows({"x": table}) == [100_000]
    with pytest.raises(ValueError, match=r"data/x: a table must have at most 99999 rows, got 100000; split it"):
        parquet.count_rows({"data/x": table}, most_rows=99_999)
    with pytest.raises(ValueError, match="bytes unpacked"):
        parquet.count_rows({"x": table}, most_bytes=100)
    with pytest.raises(ValueError, match=r"data/x\.parquet: a table must be whole parquet, got .*; write or download"):
        safety.check_files({"README.md": b"", "data/x.parquet": table.read_bytes()[:-20]})


def test_a_table_is_read_by_a_process_that_may_not_fill_the_machine(table: Path) -> None:
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 256), pa.array(["x" * 2**22]))
    pq.write_table(pa.table({"a": same}), table, store_schema=False)  # a gigabyte, once it is unpacked
    assert table.stat().st_size < 2**20
    assert parquet.count_rows({"x": table}) == [256]
    with pytest.raises(ValueError, match="must be read within 536870912 bytes of memory") as told:
        list(parquet.read_rows({"x": table}, memory_bytes=2**29))
    assert "\n" not in str(told.value)


def test_a_table_of_values_that_json_has_not_is_refused(table: Path) -> None:
    pq.write_table(pa.table({"a": [b"\xff"]}), table)
    with pytest.raises(ValueError, match=r"x: a table must hold plain values, got .*bytes"):
        list(parquet.read_rows({"x": table}))
    for columns, told in (({"b": "int64"}, r"a \(binary\), b \(missing\)"), ({"a": "int64"}, r"a \(binary\)")):
        with pytest.raises(ValueError, match=f"its columns with their types and no others, got {told}; convert it"):
            list(parquet.read_rows({"x": table}, columns))


def test_links_are_not_published(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="no links"):
        safety.files_of(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(ValueError, match="must hold a file"):
        safety.files_of(tmp_path)


SECRET = "hf_" + "a" * 34


@pytest.mark.parametrize(
    "content",
    [
        *(SECRET, "-----BEGIN RSA PRIVATE KEY-----", "x" * 2**20 + SECRET, "my-own-token"),
        *("key: sk-" + "a" * 20, "ghp_" + "b" * 20, "a github_pat_" + "c" * 20),
    ],
)
def test_a_file_with_a_secret_is_not_published(content: str) -> None:
    with pytest.raises(ValueError, match=r"no token and no key, got one in 'a.txt'") as error:
        publish(
            {"a.txt": content.encode()}, "me/x", repo_type="model", dry_run=True, endpoint=LOCAL, token="my-own-token"
        )
    assert content not in str(error.value)


LOCAL = "http://127.0.0.1:9"


def test_the_stored_token_goes_to_huggingface_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    assert connect().token is False
    monkeypatch.setenv("HF_TOKEN", "hf_environment")
    assert connect().token == "hf_environment"
    assert connect(token="hf_given").token == "hf_given"
    assert connect("https://huggingface.co").token is None
    assert "hf_given" not in repr(connect(token="hf_given"))


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("http://hub.example", "must be https"),
        ("ftp://hub.example", "http or https"),
        ("hub", "http or https"),
        ("https://me:secret@hub.example", "no password"),
    ],
)
def test_an_endpoint_that_would_give_the_token_away_is_refused(endpoint: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as error:
        connect(endpoint)
    assert "secret" not in str(error.value)


def test_uploads_by_xet_stay_at_huggingface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    with pytest.raises(ValueError, match="HF_HUB_DISABLE_XET=1"):
        publish({"a": b"1"}, "me/x", repo_type="model", dry_run=True, endpoint=LOCAL)


@pytest.mark.parametrize("repo", ["", "x", "a/b/c", "../x", "a/..", "me/x.git", "me/ x"])
def test_what_names_no_repository_is_refused(repo: str) -> None:
    with pytest.raises(ValueError, match="named as owner/name"):
        check_repo(repo, "model")


def test_a_revision_is_a_commit_a_branch_or_a_tag() -> None:
    for revision in (None, "main", "v1.0", "refs/pr/3", "a" * 40):
        check_revision(revision)
    for revision in ("", "../x", "a b", "-x", "a\n"):
        with pytest.raises(ValueError, match="a commit, a branch or a tag"):
            check_revision(revision)


def test_a_small_table_does_not_unpack_to_a_large_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int8()), pa.array(["x" * 1_000]))
    pq.write_table(pa.table({"text": column}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="must unpack to at most 200 times its size, got more"):
        list(parquet.read_rows({"rows.parquet": path}))
