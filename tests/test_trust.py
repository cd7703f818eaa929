"""Whose code this is, and who agreed that it runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from code_sandbox import fork_server
from hf_credit.agents import hosting
from hf_credit.trust import NO_CONSENT, code_in, importable, imported, installed, is_code, only_typed_here, search_here
from hf_credit_leaderboard import confined

# Names of code

NOT_CODE = (
    *(
        "evil-mod:make",
        "sql-agent.scoring:score",
        "./evil:f",
        "evil:f()",
        "1evil:f",
        "evil :f",
        "evil:f\n",
    ),
    *(
        "évil:f",
        "ｅvil:f",
        "evil:ﬀ",
        "evil:f:g",
        ":f",
        "evil:",
        "evil",
        "evil..mod:f",
        ".evil:f",
        "",
        "evil:f.",
        "evil\0:f",
    ),
)


@pytest.mark.parametrize("name", NOT_CODE)
def test_a_name_of_another_form_is_never_imported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for stem in ("evil", "evil-mod", "évil", "1evil", "evil "):
        (tmp_path / f"{stem}.py").write_text(
            "open('ran', 'w').close()\nf = make = score = print\nﬀ = f\n", encoding="utf-8"
        )
    with pytest.raises(ImportError, match="it is not a module and a function"):
        imported(name)
    assert not (tmp_path / "ran").exists()
    assert not code_in([name])


@given(
    st.from_regex(r"[\w.:\- ]{1,20}") | st.text(max_size=20) | st.sampled_from(["no_such.module:thing", "no_such:a.b"])
)
def test_the_search_for_code_in_a_file_finds_all_that_would_be_imported(text: str) -> None:
    assert (code_in({"nested": [{"deep": (text,)}]}) == {text}) == is_code(text)
    if not is_code(text):
        with pytest.raises(ImportError, match="it is not a module"):
            imported(text)


def test_what_is_described_by_a_name_is_found_by_it() -> None:
    for thing in (imported, Path, ast.parse):
        assert imported(importable(thing)) == thing
    made = type("Made", (), {"__module__": "tests-of.mine"})
    with pytest.raises(ValueError, match=r"must be importable by name, got 'Made' of 'tests-of\.mine'"):
        importable(made)


# Consent


def test_consent_to_the_name_of_a_task_or_an_option_is_none_to_code_and_none_to_the_other() -> None:
    assert NO_CONSENT.to_code("agent") == NO_CONSENT
    typed = NO_CONSENT.to_options({"agent": ["node", "agent.js"], "score": "mine:score"})
    assert (typed.options, typed.code) == ({"agent", "score"}, {"mine:score"})
    assert NO_CONSENT.to_code({"agent": "mine:score"}).options == frozenset()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules, some of which are elsewhere too."""
    for folder, names in (
        ("elsewhere", ["lies_elsewhere"]),
        ("here", ["lies_elsewhere", "json", "mine", "beside", "other"]),
    ):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.py").write_text(f"place = {folder!r}\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*(one for one in sys.path if one), str(tmp_path / "elsewhere")])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("lies_elsewhere", "mine", "beside", "other"):
        monkeypatch.setitem(sys.modules, name, sys)  # forgotten afterwards, too
        del sys.modules[name]
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["mine:score"], True),
        (["mine.inner:score"], True),
        ([{"scorer": ["mine:score"]}], True),
        (["mine"], False),  # no code
        (["json:loads"], False),
        (["lies_elsewhere:score", "missing:score"], False),
    ],
)
def test_code_in_the_current_folder_is_found_if_it_was_typed_and_is_nowhere_else(
    typed: list[Any], found: bool, here: Path
) -> None:
    before = list(sys.meta_path)
    search_here(typed)
    search_here(typed)
    assert (installed("mine"), len(sys.meta_path) - len(before)) == (found, int(found))
    assert imported("lies_elsewhere:place") == "elsewhere"
    assert not installed("beside")


def test_typed_code_imports_what_lies_beside_it_and_a_library_imports_nothing_there(here: Path) -> None:
    (here / "mine.py").write_text(
        "import importlib\nimport beside\n\ndef later(name):\n    return importlib.import_module(name).place\n"
    )
    search_here("mine:later")
    later = imported("mine:later")
    with pytest.raises(ImportError, match="No module named 'other'"):
        imported("other:place")
    assert (imported("beside:place"), later("other"), imported("other:place")) == ("here", "here", "here")


def test_a_file_finds_in_the_current_folder_what_was_typed_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("")  # as a notebook does
    with only_typed_here(["mine:place"]):
        assert imported("mine:place") == "here"
        assert not installed("other")
    assert installed("other")


# The law: no other module imports or starts what a name says

ROOT = Path(__file__).resolve().parents[1]

_MODULES = {
    *("builtins", "code", "codeop", "imp", "importlib", "marshal", "multiprocessing", "pickle", "pkgutil", "pty"),
    *("pydoc", "runpy", "shelve", "subprocess", "zipimport"),
}
_READ_ONLY = ("importlib.metadata", "importlib.resources")
_BUILTINS = {"__builtins__", "__import__", "compile", "eval", "exec"}
_OF_ANYTHING = {
    *("Popen", "ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell", "exec_module", "find_spec"),
    *("import_module", "load_module", "module_from_spec", "run_module", "run_path", "spec_from_file_location"),
    *("subprocess_exec", "subprocess_shell", "unsafe_load", "__import__"),
}
_STARTS = ("execl", "execv", "posix_spawn", "spawnl", "spawnv")  # of os; the next three are names of other things, too
_OF_OS = {"popen", "startfile", "system"}

EXCEPTIONS = {
    "hf_credit/trust.py": ("find_spec import_module importlib", "this is the place"),
    "hf_credit/__init__.py": ("import_module importlib", "its own names, on first use"),
    "hf_credit/checkpoint_store.py": ("import_module importlib", "the one module that hf_credit/__init__.py names"),
    "hf_credit/agents/hosting.py": ("Popen subprocess", "this Python, for hf_credit.agents.host"),
    "hf_credit/agents/played.py": ("subprocess", "the command of a task, which needs consent (tasks/spec.py)"),
    "hf_credit_bench/cells.py": ("ProcessPoolExecutor multiprocessing", "functions of this library in processes"),
    "hf_credit/cli/side_by_side.py": ("Popen subprocess", "this Python, for hf-credit train"),
    "hf_credit/environments/check.py": ("pickle", "writes only, to compare"),
    "hf_credit/hub/checkpoints.py": ("torch.load", "tensors and plain values only, before they are published"),
    "hf_credit/optional_packages.py": ("import_module importlib", "packages that modules of this library name"),
    "hf_credit_leaderboard/confined.py": ("subprocess", "this Python, for a script of this library, confined"),
    "hf_credit/parquet.py": ("subprocess", "this Python, for a script of this library, with limits"),
    "hf_credit/hub_client.py": ("exec_module find_spec importlib", "the client of the Hub, by its name, to guard it"),
    "hf_credit/trainers/resumption.py": ("torch.load", "tensors and plain values only"),
    "code_sandbox/algebra_process.py": ("import_module importlib", "modules of sympy that a list names"),
    "code_sandbox/fork_server.py": ("Popen subprocess", "this Python, for the supervisor"),
    "code_sandbox/inside/protocol.py": ("__import__", "builtins, by this name"),
    "code_sandbox/inside/solver.py": ("builtins compile exec", "untrusted code, which runs confined here"),
    "code_sandbox/inside/supervisor.py": ("import_module importlib", "modules that a list names"),
    "code_sandbox/inside/tester.py": (
        "builtins compile exec import_module importlib",
        "tests, which run confined here",
    ),
}
"""What each module uses of the above, and why what it runs is chosen by no name from elsewhere."""


def runs_code(text: str) -> Iterator[str]:
    """The ways in which a module could run what a name says, also under an alias."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
            if any(one.name in ("os", "torch") and one.asname for one in node.names):
                yield "os or torch under another name"
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Name) and node.id in _BUILTINS:
            yield node.id
        elif isinstance(node, ast.Attribute):
            names = [f"{ast.unparse(node.value)}.{node.attr}"]
        elif isinstance(node, ast.Constant) and node.value in _OF_ANYTHING:
            yield str(node.value)
        elif isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "allow_pickle"):
            yield from [node.arg] * (ast.unparse(node.value) == "True")
        for name in names:
            top, last = name.partition(".")[0], name.rpartition(".")[2]
            imports = not isinstance(node, ast.Attribute)
            if imports and top in _MODULES and not name.startswith(_READ_ONLY):
                yield top
            if last in _OF_ANYTHING or last.startswith(_STARTS):
                yield last
            elif top in ("os", "posix", "nt") and last in _OF_OS:
                yield f"os.{last}"
            elif name == "torch.load":
                yield name


def sources() -> dict[str, str]:
    folders = (ROOT / "src", *(ROOT / "packages").glob("*/src"))
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
    }


def test_only_listed_modules_import_or_start_what_a_name_says() -> None:
    found = {path: " ".join(sorted(set(runs_code(text)))) for path, text in sources().items()}
    assert {path: uses for path, uses in found.items() if uses} == {
        path: uses for path, (uses, _) in EXCEPTIONS.items()
    }


# Processes with the environment of the one that starts them: none runs anything of a stranger.
_SAME_ENVIRONMENT = {
    "hf_credit/agents/played.py": "the command of a task, which needs consent, in the environment of a run",
    "hf_credit/cli/side_by_side.py": "hf-credit train, with the token of its user",
}
# What others may have of the user's variables: where to find programs and libraries, and how to speak.
_PASSED = {
    *("PATH", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("JAVA_HOME", "NODE_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HF_ENDPOINT"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
}


def same_environment(text: str) -> bool:
    """Whether a module starts a process with its own environment."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    started = [one for one in calls if ast.unparse(one.func) in ("subprocess.run", "subprocess.Popen")]
    given = all(any(keyword.arg == "env" for keyword in one.keywords) for one in started)
    return bool(started) and (not given or "**os.environ" in text or "os.environ.copy" in text)


def test_a_process_of_others_has_no_home_token_or_other_secret_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {path for path, text in sources().items() if same_environment(text)} == set(_SAME_ENVIRONMENT)
    for kept in (fork_server._KEPT, fork_server.PLAIN_ENVIRONMENT, hosting._KEPT):
        assert set(kept) <= _PASSED
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    environment = confined._environment("/nowhere")
    assert {environment[name] for name in ("HOME", "HF_HOME", "TMPDIR")} == {"/nowhere"}
    assert "hf_of_the_user" not in environment.values()


def test_pickles_are_read_as_tensors_and_plain_values_only() -> None:
    loads = [
        (path, [one.arg for one in node.keywords if ast.unparse(one.value) == "True"])
        for path, text in sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert loads
    assert all("weights_only" in true for _, true in loads), loads


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module(name)",
        "from importlib import import_module as found",
        "import importlib.util as u\nu.find_spec(name)",
        "def f():\n    from subprocess import run as go\n    go(words)",
        "import os\nos.execvp(words[0], words)",
        "from os import system as listed",
        "import os as o\no.system(words)",
        "import sys\nsys.modules['os'].posix_spawn(words)",
        "getattr(importlib, 'import_module')(name)",
        "loader.exec_module(module)",
        "exec(text)",
        "go = eval",
        "__builtins__['eval'](text)",
        "asyncio.create_subprocess_exec(*words)",
        "import torch\ntorch.load(path)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_the_law_sees_every_way_and_every_alias(text: str) -> None:
    assert list(runs_code(text))
