"""Every metric: built, loaded from its folder, on its own examples, its card and its page."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import math
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import evaluate
import pytest
import yaml

from hf_credit.metrics import FILES, METRICS, build, find, summary

ROOT = Path(__file__).resolve().parents[2]
NAMES = list(METRICS)
CASES: dict[str, list[dict[str, Any]]] = runpy.run_path(str(Path(__file__).with_name("cases.py")))["CASES"]
BUILD = """
import hashlib, sys, tempfile
from hf_credit.metrics import METRICS, build
with tempfile.TemporaryDirectory() as place:
    for name in METRICS:
        for file in sorted(build(name, place).iterdir()):
            print(name, file.name, hashlib.sha256(file.read_bytes()).hexdigest())
print({"numpy", "torch", "yaml"} & sys.modules.keys(), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("spaces")
    for name in METRICS:
        build(name, place)
    return place


@pytest.fixture(autouse=True)
def _beside_the_folders(spaces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards and docstrings name the folders as they lie next to each other."""
    monkeypatch.chdir(spaces)


def load(name: str, cache: Path) -> Any:
    return evaluate.load(f"./{name}", cache_dir=str(cache), keep_in_memory=True)


def close(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isnan(found) if math.isnan(expected) else math.isclose(found, expected, abs_tol=1e-9)
    return found == expected


def test_there_are_metrics() -> None:
    assert NAMES == [
        "answer_f1",
        "belief_deviation",
        "belief_potential",
        "constraint_violation",
        "context_variance",
        "credit_fidelity",
        "cut_quality",
        "evidence_f1",
        "free_rider_index",
        "hack_rate",
        "influence",
        "intervention_validity",
        "kl_compliance",
        "overlap",
        "pass_at_k",
        "pccc_fidelity",
        "vote_contribution",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_a_space(name: str) -> None:
    assert {path.name for path in Path(name).iterdir() if path.is_file()} == {
        *FILES,
        f"{name}.py",
        "app.py",
    }
    _, front, card = Path(name, "README.md").read_text(encoding="utf-8").split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["sdk"] == "gradio"
    assert about["app_file"] == "app.py"
    assert {"evaluate", "metric"} <= set(about["tags"])
    assert about["title"]
    assert summary(name) == about["description"]
    assert about["license"] == "apache-2.0"
    for heading in ("## How to use", "### Inputs", "### Output", "## Citation"):
        assert heading in card
    wanted = Path(name, "requirements.txt").read_text().split()
    imported = imports_of(Path(name, f"{name}.py"))
    others = imported - set(sys.stdlib_module_names) - {"datasets"}  # evaluate brings datasets
    assert {re.split(r"[\[>=]", line)[0] for line in wanted} == {*others, "gradio"}


def imports_of(file: Path) -> set[str]:
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    plain = {name.name for one in statements if isinstance(one, ast.Import) for name in one.names}
    named = {str(one.module) for one in statements if isinstance(one, ast.ImportFrom) and not one.level}
    return {name.split(".")[0] for name in plain | named}


def built(python: str, seed: str) -> str:
    """What a Python without any package builds, by file."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": seed}
    command = [python, "-S", "-B", "-c", BUILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "set()\n"
    return done.stdout


def test_each_python_on_this_machine_builds_the_same_bytes() -> None:
    expected = built(sys.executable, "1")
    assert len(expected.splitlines()) == 4 * len(METRICS)
    others = [shutil.which(f"python3.{minor}") for minor in (11, 12, 13)]
    runs = [
        built(python, "2")
        for python in (sys.executable, *filter(None, others))
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    assert set(runs) == {expected}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("pass_at_j", r"did you mean 'pass_at_k'\?"), ("../../etc", "name one that `hf-credit metrics` lists.")],
)
def test_an_unknown_metric_is_refused_with_the_nearest_one(name: str, remedy: str, tmp_path: Path) -> None:
    for call in (find, summary, lambda one: build(one, tmp_path)):
        with pytest.raises(ValueError, match=rf"^a metric must be .*, got '{re.escape(name)}'; {remedy}$"):
            call(name)


def test_nothing_that_exists_is_built_over(spaces: Path) -> None:
    with pytest.raises(ValueError, match=r"^a metric is built in a new folder, got '.*pass_at_k'; remove it or name"):
        build("pass_at_k", spaces)


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_gives_the_results_that_are_worked_out_by_hand(name: str, tmp_path: Path) -> None:
    for case in CASES[name]:
        inputs = {key: value for key, value in case.items() if key != "result"}
        found = load(name, tmp_path).compute(**inputs)
        assert found is not None
        for key, expected in case["result"].items():
            assert close(found[key], expected), (inputs, key, found[key], expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_card_and_docstring_are_true(name: str, tmp_path: Path) -> None:
    module = load(name, tmp_path)
    for text in (module.inputs_description, Path(name, "README.md").read_text(encoding="utf-8")):
        example = doctest.DocTestParser().get_doctest(text, {"evaluate": evaluate}, name, None, 0)
        assert example.examples
        complaints: list[str] = []
        assert doctest.DocTestRunner(verbose=False).run(example, out=complaints.append).failed == 0, complaints


@pytest.mark.parametrize(
    ("name", "inputs", "complaint"),
    [
        ("credit_fidelity", {"predictions": [[1, 2, 3]], "references": [[1, 2]]}, "must have a credit and a target"),
        ("credit_fidelity", {"predictions": [[1, math.nan]], "references": [[1, 2]]}, "finite numbers, got nan"),
        ("context_variance", {"predictions": [[1, math.inf]]}, "finite numbers, got inf"),
        ("free_rider_index", {"predictions": [1.0], "references": [math.nan]}, "finite, got nan"),
        ("vote_contribution", {"predictions": [["a"], ["a", "b"]], "references": ["a", "a"]}, "with 1, 2 voters"),
        ("influence", {"predictions": [[["a"], ["b"]]], "alpha": 0}, "alpha > 0"),
        (
            "belief_potential",
            {"predictions": [["a"]], "references": [{"truth": "b", "possible": ["a"]}]},
            "the truth must be a possible hypothesis, got 'b'",
        ),
        ("cut_quality", {"predictions": [[True]], "references": [[0.1, 0.2]]}, "got 1 and 2 in other lengths"),
        ("cut_quality", {"predictions": [[True]], "references": [[math.nan]]}, "finite, got nan"),
        ("hack_rate", {"predictions": [True], "false_positive_rate": 0.5, "false_negative_rate": 0.5}, "less than 1"),
        ("constraint_violation", {"predictions": [-1.0], "limit": 1.0}, "at least 0, got -1.0"),
        ("evidence_f1", {"predictions": [["a"]], "references": [[]]}, "must have supporting documents"),
        (
            "belief_deviation",
            {"predictions": [[0.5, 0.4]], "references": [[1.0, 0.0]]},
            "a belief must be a distribution",
        ),
        ("intervention_validity", {"predictions": [True], "references": ["a"], "quantile": 1}, r"in \(0, 1\), got 1"),
        ("pass_at_k", {"predictions": [[1.0]], "k": [2]}, "got k = 2, 1 samples"),
    ],
)
def test_bad_input_is_told_in_one_sentence(name: str, inputs: dict, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=complaint):
        load(name, tmp_path).compute(**inputs)


def test_batches_come_to_the_same_as_all_at_once(tmp_path: Path) -> None:
    metric = load("pass_at_k", tmp_path)
    for scores in ([[1.0, 0.0]], [[0.0, 0.0]]):
        metric.add_batch(predictions=scores)
    assert metric.compute(k=[1, 2]) == {"pass@1": 0.25, "pass@2": 0.5}


@pytest.mark.skipif(importlib.util.find_spec("gradio") is None, reason="the extra 'spaces' is not installed")
def test_a_page_starts_and_computes(spaces: Path, tmp_path: Path) -> None:
    """Of one folder as it is published; a start takes seconds."""
    case = CASES["credit_fidelity"][0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path),
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": str(tmp_path / "gradio"),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    page = subprocess.Popen(
        [sys.executable, str(spaces / "credit_fidelity" / "app.py")],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        inputs = json.dumps({key: value for key, value in case.items() if key != "result"})
        found = ask(page, port, inputs)
        assert all(close(found[key], expected) for key, expected in case["result"].items())
        with pytest.raises(AssertionError, match="event: error"):
            ask(page, port, json.dumps({"predictions": [1, 2], "references": [1, 2]}))
        again = ask(page, port, inputs)  # an error leaves nothing behind
        assert all(close(again[key], expected) for key, expected in case["result"].items())
    finally:
        page.terminate()
        try:
            page.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            page.kill()
            page.communicate()


def ask(page: subprocess.Popen[str], port: int, text: str) -> Any:
    """What the page computes, through the interface that a browser uses; waits until the page is up."""
    address = f"http://127.0.0.1:{port}/gradio_api/call/compute"
    body = json.dumps({"data": [text]}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        assert page.poll() is None, page.stdout.read() if page.stdout else ""
        try:
            request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
            with opener.open(request, timeout=30) as answer:
                event = json.load(answer)["event_id"]
            break
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.2)
    else:
        raise AssertionError("the page did not start")
    with opener.open(f"{address}/{event}", timeout=60) as stream:
        told = stream.read().decode()
    assert "event: complete" in told, told
    return json.loads(told.partition("data: ")[2])[0]
