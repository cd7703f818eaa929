"""Code that runs without this library: what is gathered, in which order, and what cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hf_credit.diagnostics import context_variance, vote_contribution
from hf_credit.metrics.standalone import standalone

ALONE = """
import sys
sys.modules["hf_credit"] = None  # whoever imports it fails
namespace = {"__name__": "gathered"}
sys.modules["gathered"] = type(sys)("gathered")  # dataclasses look their module up
exec(open(sys.argv[1]).read(), namespace)
print(namespace["vote_contribution"]([["a", "b", "a"]], ["a"]))
print(namespace["context_variance"]([[1.0, 0.0], [0.5, 0.25]]))
"""


def test_gathered_definitions_give_what_the_library_gives(tmp_path: Path) -> None:
    code = standalone(dict.fromkeys(("vote_contribution", "context_variance"), "hf_credit.diagnostics"))
    (tmp_path / "code.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "code.py")], capture_output=True, text=True, check=True
    )
    expected = [vote_contribution([["a", "b", "a"]], ["a"]), context_variance([[1.0, 0.0], [0.5, 0.25]])]
    assert done.stdout.splitlines() == list(map(repr, expected))


def test_what_others_need_comes_first_with_its_comment_and_nothing_else() -> None:
    code = standalone({"vote_contribution": "hf_credit.diagnostics"})
    defined = re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE)
    assert defined.index("plurality") < defined.index("CoalitionValues") < defined.index("vote_contribution")
    assert "free_rider_index" not in defined
    assert 'TIES = ("expected", "first", "none")\n"""The score of a tie' in code
    assert code == standalone({"vote_contribution": "hf_credit.diagnostics"})


def test_constants_of_one_statement_come_once() -> None:
    code = standalone(dict.fromkeys(("EMPTY", "OTHER"), "hf_credit.diagnostics.influence"))
    assert code == 'from __future__ import annotations\n\nEMPTY, OTHER = "EMPTY", "OTHER"\n'


@pytest.mark.parametrize(
    ("name", "module", "complaint"),
    [
        ("nothing", "hf_credit.diagnostics", "must be defined to be gathered, got 'nothing'"),
        ("main", "hf_credit.nowhere", "must have a source to be read, got 'hf_credit.nowhere'"),
        ("envs", "hf_credit.cli.envs", "must not import .* within itself"),
    ],
)
def test_what_cannot_be_gathered_is_told(name: str, module: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        standalone({name: module})
