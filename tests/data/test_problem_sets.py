"""Files with the same rows as on the Hub, real ones if they are available; tests never use the Hub."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from hf_credit.data import PROBLEM_SETS, OverlapError, Problems, is_problem_set, load_problems, refuse_overlap
from hf_credit.data.overlap import find_overlap
from hf_credit.data.rows import COLUMNS
from hf_credit.verifiers.options import option_score

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FILES = {
    "math500/test": "math500.jsonl",
    "math/train": "math_train.json",
    "gsm8k/train": "gsm8k_train.parquet",
    "gsm8k/test": "gsm8k_test.parquet",
    "cmath/dev": "cmath_dev.json",
    "cmath/test": "cmath_test.json",
    "mbpp/prompt": "mbpp.jsonl",
    "mbpp/test": "mbpp.jsonl",
    "mbpp/validation": "mbpp.jsonl",
    "mbpp/train": "mbpp.jsonl",
    "humaneval/test": "humaneval.jsonl.gz",
}
_loaded: dict[str, Problems] = {}


def real(name: str) -> Problems:
    """A set from the folder of real rows."""
    if not DATA.is_dir():
        pytest.skip("the folder of real benchmark rows, shared/data next to the repository, is not there")
    if name not in _loaded:
        _loaded[name] = load_problems(f"{name}={DATA / FILES[name]}", on_missing="drop")
    return _loaded[name]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return f"own/train={path}"


# Real sets


@pytest.mark.parametrize(
    ("name", "rows", "dropped", "fingerprint"),
    [
        ("math500/test", 500, 0, "0aa2d916"),
        ("math/train", 7496, 4, "78be7215"),
        ("gsm8k/train", 7473, 0, "c54f8491"),
        ("gsm8k/test", 1319, 0, "9492aff6"),
        ("cmath/dev", 600, 0, "7ecc6351"),
        ("cmath/test", 1098, 0, "b1021cda"),
        ("mbpp/prompt", 10, 0, "571ce7de"),
        ("mbpp/test", 500, 0, "e82b2b14"),
        ("mbpp/validation", 90, 0, "4a05e2b1"),
        ("mbpp/train", 374, 0, "a25c8dbf"),
        ("humaneval/test", 164, 0, "ea0d281c"),
    ],
)
def test_real_files_are_read_whole_and_have_the_same_fingerprint_everywhere(
    name: str, rows: int, dropped: int, fingerprint: str
) -> None:
    found = real(name)
    assert (len(found.rows), found.dropped, found.fingerprint[:8]) == (rows, dropped, fingerprint)
    assert tuple(found.rows.column_names) == COLUMNS
    assert found.description()["origin"] == FILES[name]
    code = name.startswith(("mbpp", "humaneval"))
    for row in found.rows:
        assert row["domain"] == ("code" if code else "math")
        assert bool(row["answer"]) != code
        assert bool(row["tests"]) == bool(row["entry_point"]) == code


def test_a_row_without_a_gold_answer_is_named_with_its_file() -> None:
    real("math/train")
    with pytest.raises(ValueError, match=r"a row of math_train.json must have a gold answer, got none in row 1634"):
        load_problems(f"math/train={DATA / FILES['math/train']}")


def test_no_prompt_of_mbpp_shows_a_test_or_a_line_of_the_solution() -> None:
    raw = {str(row["task_id"]): row for row in map(json.loads, _lines(DATA / "mbpp.jsonl"))} if DATA.is_dir() else {}
    for name in ("mbpp/train", "mbpp/test"):
        for row in real(name).rows:
            code = [line.strip() for line in raw[row["source_id"]]["code"].splitlines()]
            assert f"def {row['entry_point']}(" in row["problem"]
            assert not [test for test in row["tests"] if test in row["problem"]]
            shown = {line.strip() for line in row["problem"].split("Given is:")[0].splitlines()}
            assert not [line for line in code if line in shown and line and not line.startswith("def ")]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


# The overlap of real sets


def test_a_training_set_that_holds_all_of_math500_is_caught() -> None:
    """A public training set did; here its problems are copied a little carelessly, as they are in the wild."""
    evaluation = real("math500/test").rows
    draws = random.Random(0)
    careless = [
        lambda text: text,
        lambda text: text.upper() if "\\" not in text else text,
        lambda text: text.replace("$", "").replace(" ", "\n"),
        lambda text: "".join(chr(ord(sign) + 0xFEE0) if sign.isdigit() else sign for sign in text),
        lambda text: text.replace("\\frac", "\\dfrac").replace(" =", "\\, =\\;"),
    ]
    copies = [draws.choice(careless)(text) for text in evaluation["problem"]]
    train = Dataset.from_list([{"problem": text} for text in [*real("math/train").rows["problem"], *copies]])
    with pytest.raises(
        OverlapError, match=r"got 500 of its 7,996 rows \(500 in math500/test\), the first .* in row 7496"
    ):
        refuse_overlap(train, {"math500/test": evaluation})


def test_the_training_set_of_math_holds_none_of_math500() -> None:
    refuse_overlap(real("math/train").rows, {"math500/test": real("math500/test").rows})


def test_overlaps_of_other_official_splits() -> None:
    """Three problems of CMATH's dev are in its test; three texts of MBPP's train are those of test problems."""
    common = {}
    for train, evaluation in [
        ("gsm8k/train", "gsm8k/test"),
        ("cmath/dev", "cmath/test"),
        ("mbpp/train", "mbpp/test"),
        ("mbpp/validation", "mbpp/test"),
        ("mbpp/train", "humaneval/test"),
    ]:
        found = find_overlap(real(train).rows, {evaluation: real(evaluation).rows})
        common[train, evaluation] = [real(train).rows[one.row]["source_id"] for one in found]
    assert {pair: len(rows) for pair, rows in common.items() if rows} == {
        ("cmath/dev", "cmath/test"): 3,
        ("mbpp/train", "mbpp/test"): 3,
    }
    assert set(common["mbpp/train", "mbpp/test"]) == {"602", "704", "872"}


# Files


ROW = {"problem": "1 + 1", "answer": "2"}


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".json.gz", ".jsonl.gz", ".parquet"])
def test_every_kind_of_file_gives_the_same_set(tmp_path: Path, suffix: str) -> None:
    rows = [ROW, {"problem": "芳芳\u2028", "answer": "3"}]
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        Dataset.from_list(rows).to_parquet(path)
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        text = "\n".join(lines) if "jsonl" in suffix else f"[{','.join(lines)}]"
        path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    found = load_problems(f"own/train={path}")
    assert found.rows["problem"] == ["1 + 1", "芳芳\u2028"]
    assert found.name == "own/train"
    assert [row["source"] + "/" + row["split"] for row in found.rows] == ["own/train"] * 2


def test_rows_without_an_answer_are_dropped_and_counted_on_request(tmp_path: Path) -> None:
    wanted = write(tmp_path / "rows.jsonl", {"problem": "1", "answer": ""}, ROW, {"problem": "2", "answer": None})
    with pytest.raises(ValueError, match=r"a row of rows.jsonl must have a gold answer, got none in row 0 \(from 0\)"):
        load_problems(wanted)
    found = load_problems(wanted, on_missing="drop")
    assert (found.dropped, found.rows["problem"], found.rows["source_id"]) == (2, ["1 + 1"], ["1"])


def test_rows_whose_program_cannot_be_read_are_dropped_and_counted_on_request(tmp_path: Path) -> None:
    row = {"task_id": 601, "text": "Add.", "code": "def add(a): return a", "test_list": ["assert add(1) == 1"]}
    wanted = write(tmp_path / "rows.jsonl", {**row, "code": "def add("}, row, {**row, "code": "x = 1"})
    with pytest.raises(ValueError, match=r"a program that Python can parse, .* in row 0 .* on_missing: drop"):
        load_problems(wanted)
    found = load_problems(wanted, on_missing="drop")
    assert (found.dropped, len(found.rows)) == (2, 1)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("rows.txt", "", r"must end in \.json, .*got 'rows.txt'; convert"),
        ("rows.jsonl", "{", r"must be JSON in UTF-8, got .* in 'rows.jsonl'; correct"),
        ("rows.json", '{"problem": "1"}', "must be a list of JSON objects"),
        ("rows.jsonl", "", "must have problems, got none"),
        ("rows.jsonl", '{"a": 1}', "must have the columns of a known dataset"),
        ("rows.jsonl.gz", "no gzip", "must be JSON in UTF-8"),
        (
            "rows.jsonl",
            '{"problem": "1", "answer": "2"}\n{"problem": "1"}',
            "must have a gold answer, got none in row 1",
        ),
        (
            "rows.jsonl",
            '{"prompt": "def f(): pass", "entry_point": "f", "test": "f()"}',
            r"must be complete, got KeyError\('task_id'\) in row 0",
        ),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=complaint):
        load_problems(f"own/train={tmp_path / name}")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        load_problems(f"own/train={tmp_path / 'nowhere.jsonl'}")


def test_an_unknown_on_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_missing must be one of refuse, drop, got 'ignore'"):
        load_problems(write(tmp_path / "rows.jsonl", ROW), on_missing="ignore")


def test_no_test_is_shown(tmp_path: Path) -> None:
    row = {"text": "Add.", "code": "def add(a): return a", "task_id": 700, "test_list": ["assert add(1) == 1"]}
    wanted = write(tmp_path / "rows.jsonl", {**row, "test_setup_code": ""})
    assert "assert" not in load_problems(wanted).rows[0]["problem"]


# The Hub


def test_every_known_set_is_pinned_but_those_that_no_public_record_pins() -> None:
    assert set(FILES) <= set(PROBLEM_SETS)
    for name, source in PROBLEM_SETS.items():
        assert (source.revision is None) == name.startswith(("cmath/", "gaokao2023en/", "logiqa/"))
        assert source.revision is None or re.fullmatch("[0-9a-f]{40}", source.revision)


def test_only_a_commit_pins_a_set() -> None:
    with pytest.raises(
        ValueError, match=r"a revision must be a commit of 40 hexadecimal digits, got 'main' for cmath/dev"
    ):
        load_problems("cmath/dev@main")


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"math/train, .*, or NAME=FILE, got 'math/trian'; did you mean 'math/train'\?$"
    ):
        load_problems("math/trian")


def test_without_the_hub_a_set_needs_a_file() -> None:
    with pytest.raises(OSError, match=r"MATH-500"):
        load_problems("math500/test")


def test_names_of_sets_are_distinguished_from_other_datasets() -> None:
    assert is_problem_set("math500/test")
    assert is_problem_set("cmath/dev@" + "0" * 40)
    assert is_problem_set("own/train=rows.jsonl")
    assert not is_problem_set("openai/gsm8k")
    assert not is_problem_set("data/rows.jsonl")


def test_an_existing_path_with_an_equals_sign_is_not_a_set(tmp_path: Path) -> None:
    path = tmp_path / "year=2024" / "rows.jsonl"
    assert is_problem_set(str(path))
    path.parent.mkdir()
    path.write_text("{}")
    assert not is_problem_set(str(path))


def test_the_sets_of_competitions_are_read_with_the_columns_that_they_have_on_the_hub(tmp_path: Path) -> None:
    rows = {
        "aime24": {"id": 60, "problem": "Find $m+n$.", "solution": "...", "answer": "204", "url": "", "year": "2024"},
        "aime25": {"problem": "Find $b$.", "answer": "70", "id": "0"},
        "amc23": {"id": 0, "question": "How far?", "answer": "27.0", "url": ""},
        "minervamath": {"question": "What is the speed?", "answer": "4.5e33"},
        "gaokao2023en": {"question": "Given $z$, find $|z|$.", "answer": "$\\sqrt{5}$"},
    }
    for name, row in rows.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        found = load_problems(f"{name}/test={path}").rows[0]
        assert (found["problem"], found["answer"]) == (row.get("problem") or row["question"], row["answer"])
        assert (found["domain"], found["source"]) == ("math", name)


def test_a_gsm8k_solution_without_its_mark_has_no_answer(tmp_path: Path) -> None:
    """The same columns in a set that is not known to hold plain answers are those of GSM8K."""
    with pytest.raises(ValueError, match=r"must have a gold answer behind ####, .* got none in row 0"):
        load_problems(write(tmp_path / "own.jsonl", {"question": "1 + 1?", "answer": "One and one make 2."}))


def test_a_choice_shows_its_options_behind_letters_and_is_scored_by_the_letter(tmp_path: Path) -> None:
    row = {"context": "All A are B.", "query": "Which follows?", "options": ["No A.", "Some B."], "correct_option": 1}
    found = load_problems(write(tmp_path / "logiqa.jsonl", row)).rows[0]
    assert found["problem"] == "All A are B.\n\nWhich follows?\n\nA. No A.\nB. Some B."
    assert (found["answer"], found["domain"]) == ("B", "choice")
    assert option_score(found, "So it is \\boxed{B}.") == 1
    assert option_score(found, "The answer is (a).") == 0


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"correct_option": 2}, "the index of the right option, from 0 to 1, got 2"),
        ({"correct_option": None}, "the index of the right option, from 0 to 1, got None"),
        ({"options": ["Only one."]}, "from 2 to 26 options, got 1"),
        ({"context": "", "query": " "}, "must have a problem, got an empty text"),
    ],
)
def test_a_choice_without_a_right_option_is_refused(tmp_path: Path, changed: dict[str, Any], complaint: str) -> None:
    row = {"context": "All A are B.", "query": "Which?", "options": ["No.", "Yes."], "correct_option": 0} | changed
    with pytest.raises(ValueError, match=complaint):
        load_problems(write(tmp_path / "logiqa.jsonl", row))


def test_rows_of_ones_own_with_the_columns_of_mbpp_are_taken_whatever_their_ids(tmp_path: Path) -> None:
    row = {"text": "Adds one.", "code": "def f(x):\n    return x + 1", "test_list": ["assert f(1) == 2"]}
    wanted = write(tmp_path / "own.jsonl", *({**row, "text": f"Adds {k}.", "task_id": k} for k in (1, 600, 975)))
    assert len(load_problems(wanted).rows) == 3


def test_a_row_of_the_common_format_must_have_what_scores_it(tmp_path: Path) -> None:
    whole = {**dict.fromkeys(COLUMNS, "x"), "tests": [], "domain": "math"}
    wanted = write(tmp_path / "own.jsonl", whole, {**whole, "answer": ""}, {**whole, "domain": "code"})
    assert (load_problems(wanted, "drop").rows.to_list(), load_problems(wanted, "drop").dropped) == ([whole], 2)
    with pytest.raises(ValueError, match="must have a gold answer, got none in row 1"):
        load_problems(wanted)


def test_own_rows_with_the_columns_of_mbpp_need_no_number(tmp_path: Path) -> None:
    rows = [{"text": f"Add {n}.", "code": "def add(): pass", "test_list": ["add()"], **own}
            for n, own in enumerate([{}, {"task_id": "mine/1"}])]  # fmt: skip
    found = load_problems(write(tmp_path / "own.jsonl", *rows)).rows
    assert found["source_id"] == ["0", "mine/1"]
