"""Commands in a downloaded folder run no code from it, whatever its files name."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_credit.cli.envs import envs
from hf_credit.critics.backbone import own_backbone
from hf_credit.loading import load_model, load_policy, require_whole_files
from hf_credit.tasks import TASK_FILE, TaskSpec
from hf_credit.trust import installed

EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
ENTRY_POINTS = """[hf_credit.environments]
sudoku_plus = evil:make
[hf_credit.collaborations]
relay_plus = evil:make
[hf_credit.methods]
grpo_plus = evil:make
[hf_credit.oracles]
oracle_plus = evil:make
"""
SUDOKU = {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}}

TASKS: dict[str, dict[str, Any]] = {
    "an environment's entry point": {"task": "sudoku_plus"},
    "a collaboration's entry point": {"task": "relay_plus"},
    "a method's entry point": {**SUDOKU, "method": {"name": "grpo_plus", "options": {}}},
    "an oracle's entry point": {
        **SUDOKU,
        "method": {"name": "verifiable_process", "options": {"oracle": {"name": "oracle_plus", "options": {}}}},
    },
    "an environment's code": {"task": "evil:make"},
    "a collaboration's code": {"task": "evil:make"},
    "a method's code": {**SUDOKU, "method": {"name": "evil:make", "options": {}}},
    "a scorer's code": {"task": "reasoner_actor", "task_options": {"scorer": "evil:make"}},
    "an agent's command": {"task": "agent", "task_options": {"agent": ["touch", "FOLDER/ran"]}},
    "an agent's program": {"task": "agent", "task_options": {"agent": "evil:make"}},
    "an agent's program, of another form": {"task": "agent", "task_options": {"agent": "é:f"}},
    "what tools are made of": {"task": "tools", "task_options": {"factory": "evil:make"}},
    "a package that is not installed": {"task": "scienceworld"},
    "another that is not": {"task": "textworld", "task_options": {"games": "."}},
    "what Gymnasium imports": {"task": "gymnasium", "task_options": {"id": "LunarLander-v3"}},
    "what else it imports": {"task": "gymnasium", "task_options": {"id": "Ant-v5"}},
    "what it imports by name": {"task": "gymnasium", "task_options": {"id": "evil:Thing-v0"}},
    "what openenv imports": {"task": "openenv", "task_options": {"url": "http://127.0.0.1:9"}},
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate", ".", "--episodes", "2"),
    "diagnose": ("diagnose", ".", "--episodes", "1", "--buckets", "1", "--attempts", "0"),
    "diagnose training": ("diagnose", ".", "--episodes", "1", "--buckets", "1", "--protocol", "training"),
    "report": ("report", "."),
    "train": ("train", "recipe.yaml", "--resume_from_checkpoint", "."),
    "publish": ("publish", "checkpoint", ".", "me/policy", "--dry-run"),
    "submit": ("submit", ".", "board", "--benchmark", "me/benchmark", "--publish-as", "me/policy", "--dry-run"),
}


@pytest.fixture
def folder(tmp_path: Path, micro_policy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a policy with code under every name that is imported or looked up."""
    folder = tmp_path / "downloaded"
    shutil.copytree(micro_policy, folder)
    for info in ("evil-1.0.dist-info", "evil.egg-info"):
        (folder / info).mkdir()
        (folder / info / "entry_points.txt").write_text(ENTRY_POINTS)
        (folder / info / ("METADATA" if info.startswith("evil-") else "PKG-INFO")).write_text(
            "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"
        )
    for name in ("evil", "scienceworld", "textworld", "mujoco", "openenv", "sitecustomize", "typer", "transformers"):
        (folder / f"{name}.py").write_text(EVIL)
    (folder / "Box2D").mkdir()
    (folder / "Box2D" / "__init__.py").write_text(EVIL.replace("with_name", "parent.with_name"))
    values = {"method": "grpo", **SUDOKU, "model_name_or_path": str(micro_policy), "output_dir": str(tmp_path / "run")}
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**values, "use_cpu": True, "bf16": False, "max_steps": 1}))
    monkeypatch.chdir(folder)
    for name in ("evil", "scienceworld", "textworld", "mujoco", "Box2D"):
        monkeypatch.setitem(sys.modules, name, None)  # forgotten afterwards, too
        del sys.modules[name]
    return folder


def task_name(task: dict[str, Any]) -> str:
    return str(task["task"])


def name_in_file(folder: Path, task: dict[str, Any]) -> None:
    (folder / TASK_FILE).write_text(json.dumps(task).replace("FOLDER", str(folder)))


@pytest.mark.parametrize("attack", TASKS)
@pytest.mark.parametrize("used", COMMANDS)
def test_no_command_runs_code_that_lies_in_the_current_folder(
    used: str, attack: str, folder: Path, command: Callable[..., Any]
) -> None:
    name_in_file(folder, TASKS[attack])
    command(*COMMANDS[used])
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("attack", [one for one, task in TASKS.items() if ":" not in (task_name(task))])
@pytest.mark.parametrize("used", ["evaluate", "diagnose", "diagnose training"])
def test_to_type_the_name_of_a_task_is_no_consent_to_its_options_in_a_file(
    used: str, attack: str, folder: Path, command: Callable[..., Any]
) -> None:
    """Nor is that of a method, or of code next to it."""
    name_in_file(folder, TASKS[attack])
    (folder / "rows.jsonl").write_text('{"prompt": "1", "problem": "1", "answer": "1"}\n' * 2)
    (folder / "mine.py").write_text("from hf_credit import methods\ndef make():\n    return methods.make('rloo')\n")
    words = (*COMMANDS[used], "--task", task_name(TASKS[attack]), "--dataset", "rows.jsonl", "--max-new-tokens", "4")
    for more in ((), ("--option", "sessions=2"), ("--method", "grpo"), ("--method", "mine:make")):
        if used != "evaluate" or "--method" not in more:
            command(*words, *more)
            assert not (folder / "ran").exists(), more


@pytest.mark.parametrize("setting", ["score", "close", "judge", "canonical"])
@pytest.mark.parametrize(
    "name", ["downloaded-agent.evil:make", "downloaded_agent.evil:make", "é:make", "evil-mod:make"]
)
def test_to_type_a_program_is_no_consent_to_what_a_file_adds_to_it(
    folder: Path, command: Callable[..., Any], setting: str, name: str
) -> None:
    """From one's own folder, with the downloaded one inside of it."""
    own = folder.parent
    os.chdir(own)
    (own / "my_agent.py").write_text("def play(task, model):\n    return 1.0\n")
    (own / "rows.jsonl").write_text('{"problem": "1"}\n')
    module = own / f"{name.partition(':')[0].replace('.', '/')}.py"
    shutil.copytree(folder, own / "downloaded-agent")
    shutil.copytree(folder, own / "downloaded_agent")
    module.write_text(EVIL)
    downloaded = own / "downloaded-agent"
    options = {"agent": "my_agent:play", setting: name}
    name_in_file(downloaded, {"task": "agent", "task_options": options})
    words = ["evaluate", downloaded, "--dataset", "rows.jsonl", "--task", "agent", "--option", "agent=my_agent:play"]
    code, _, err = command(*words)
    assert (code, err.count("\n")) == (1, 1)
    assert f"got {name!r}" in err
    assert not (module.parent / "ran").exists()


@pytest.mark.parametrize("attack", TASKS)
def test_no_program_imports_modules_of_the_current_folder(
    attack: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_file(folder, TASKS[attack])
    monkeypatch.syspath_prepend("")  # as a notebook does
    spec = TaskSpec.load(".")
    assert spec is not None
    with pytest.raises(ValueError, match=r"must|cannot|needs?"):
        spec.build_method() if spec.method else spec.build()
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("loaded", ["a model", "its files", "a critic", "a policy", "a prompt"])
def test_nothing_that_stdin_holds_is_consent_to_the_code_of_a_model(
    loaded: str, folder: Path, micro_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoModelForCausalLM": "evil.Model"}
    config = {**json.loads((folder / "config.json").read_text()), "model_type": "evil", "auto_map": auto}
    (folder / "config.json").write_text(json.dumps(config))
    words = json.loads((folder / "tokenizer_config.json").read_text())
    words |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 10))
    policy, tokenizer = load_policy(str(micro_policy), "cpu")
    load: dict[str, Callable[[], Any]] = {
        "a model": lambda: load_model(folder),
        "its files": lambda: require_whole_files(str(folder)),
        "a critic": lambda: own_backbone(str(folder), policy, tokenizer, policy.device, checkpointing=False),
        "a policy": lambda: load_policy(str(folder), "cpu"),
        "a prompt": lambda: envs("sudoku", ["size=4"], str(folder)),
    }
    with pytest.raises(ValueError, match="contains custom code which must be executed"):
        load[loaded]()
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        ([str(Path(sys.executable).parent / "hf-credit"), "evaluate", "."], {"PYTHONPATH": os.pathsep}),
        ([sys.executable, "-m", "hf_credit.cli", "play", "scienceworld"], {}),  # imports less, from the same path
    ],
    ids=["script and empty entry of PYTHONPATH", "module"],
)
def test_no_child_process_imports_modules_of_the_current_folder_or_what_only_adapters_need(
    words: list[str], environment: dict[str, str], folder: Path
) -> None:
    (folder / "sitecustomize.py").unlink()  # Python imports it if the folder is on its path
    name_in_file(folder, {"task": "scienceworld"})
    done = subprocess.run(
        words,
        env={
            **{key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"},
            **environment,
            "PYTHONPROFILEIMPORTTIME": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    said = [line for line in lines if not line.startswith("import time:")]
    assert said[0].startswith("Error: "), said
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "hf_credit" in imported
    assert "peft" not in imported  # which takes seconds
    assert not (folder / "ran").exists()


def test_no_plot_is_drawn_as_a_file_of_the_current_folder_says(folder: Path) -> None:
    """It could start LaTeX, and in some versions of matplotlib run Python."""
    pytest.importorskip("matplotlib")
    (folder / "matplotlibrc").write_text("text.usetex: True\n")
    shown = (
        "import contextlib\nfrom hf_credit.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['--version'])\n"
        "import matplotlib, os\nprint(matplotlib.rcParams['text.usetex'], os.getcwd())"
    )
    done = subprocess.run([sys.executable, "-P", "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"False {folder}"


def test_code_that_the_user_names_is_found_in_the_current_folder(folder: Path, command: Callable[..., Any]) -> None:
    name_in_file(folder, SUDOKU)
    for words in (
        ("evaluate", ".", "--task", "evil:make"),
        ("diagnose", ".", "--method", "evil:make"),
        ("evaluate", ".", "--oracle=evil:make"),
        ("evaluate", ".", "--option", "blanks=evil:make"),  # an option may be code
        ("train", "recipe.yaml", "--method_options", '{"collector": ["evil:make"]}'),
    ):
        command(*words)
        assert installed("evil"), words
        sys.meta_path.pop()
        sys.modules.pop("evil", None)
        assert not installed("evil")
    assert (folder / "ran").exists()


def test_an_installed_name_does_not_add_the_folder_to_the_path(folder: Path, command: Callable[..., Any]) -> None:
    name_in_file(folder, {"task": "scienceworld"})
    code, _, err = command("evaluate", ".", "--option", "task=hf_credit.verifiers.math:score_task")
    assert (code, "scienceworld, got none" in err) == (1, True), err
    assert not (folder / "ran").exists()
