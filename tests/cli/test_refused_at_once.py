"""What can be refused without torch, whose import takes seconds, is refused before it is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Of each command: what it is refused for, and words of the sentence.
REFUSED = {
    "evaluate nowhere --task sudoku": "a model must be a folder",
    "evaluate empty": "a policy needs a task",
    "evaluate policy --task nothing": "task must be one of",
    "evaluate policy --option size=5": "size must be one of 4, 6, 9",
    "evaluate policy --oracle nothing": "oracle must be one of",
    "evaluate policy --dataset rows.jsonl --first-task 5": "a row for each task",
    "evaluate policy --top-p 3": "top_p must be",
    "evaluate policy --output empty": "empty",
    "diagnose policy --output list.yaml": "list.yaml",
    "init-policy sudoku list.yaml": "list.yaml",
    "diagnose policy --beside policy": "policies must be different",
    "diagnose policy --task nothing": "task must be one of",
    "diagnose policy --oracle nothing": "oracle must be one of",
    "diagnose policy --method grop": "did you mean 'grpo'?",
    "methods vin_ppo": "did you mean 'vineppo'?",
    "credit traces.jsonl --method nothing": "method must be one of",
    "preview nothing": "a recipe must be",
    "train nothing": "a recipe must be",
    "train relay_micro --method_options x=1": "method_options must be a mapping",
    "train relay_micro --method-options=[1]": "method_options must be a mapping",
    "train relay_micro --task rely": "task must be one of",
    "train relay_micro --method c4": "method must be one of",
    "train relay_micro --method=t3": "did you mean 'truncated_ppo'?",
    "train misspelt.yaml": "did you mean 'vineppo'?",
    "preview relay_micro --method grop": "did you mean 'grpo'?",
    "preview relay_micro --task_options 4": "task_options must be a mapping",
    "train task.yaml": "task must be one of",
    "train list.yaml": "must be a YAML mapping",
    "preview broken.yaml --tasks 2": "must be YAML",
    "preview --config method.yaml": "a recipe's method must be a name",
    "warm-up policy --output out --recipe nothing": "a recipe must be",
    "warm-up policy --output out --option size=5": "size must be one of 4, 6, 9",
    "report nowhere": "nowhere",
    "credit nowhere.jsonl --method grpo --method-option x": "an option must be name=value",
    "publish environment nothing me/x": "nothing",
    "publish tasks nothing me/x": "task must be one of",
    "publish episodes nowhere me/x": "nowhere",
    "publish checkpoint nowhere me/x": "nowhere",
    "publish metric nothing me/x": "nothing",
}
SCRIPT = """
import contextlib, io, json, sys
from hf_credit.cli import main
for line, words in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main(line.split())
    assert "Error: " in said.getvalue() and words in said.getvalue(), (line, said.getvalue())
    assert "torch" not in sys.modules, f"{line} imports torch"
"""


def test_commands_refuse_what_cannot_be_played_before_they_import_torch(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "policy").mkdir()
    for name, text in {
        "list": "[1]",
        "broken": "a: [",
        "method": "method: {name: grpo}",
        "task": "task: rely",
        "misspelt": "method: vinepo",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "rows.jsonl").write_text('{"seed": 1}\n')
    spec = {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}}
    (tmp_path / "policy" / "hf_credit_task.json").write_text(json.dumps(spec))
    command = [sys.executable, "-c", SCRIPT, json.dumps(REFUSED)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
