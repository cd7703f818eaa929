"""What the documents say is true: their code runs, their commands parse, and what they name exists."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import finish, start
from trl import GRPOConfig, ModelConfig, ScriptArguments
from typer.main import get_command

import hf_credit
from hf_credit import (
    AsyncCreditConfig,
    ConstrainedCounterfactualConfig,
    CounterfactualGRPOConfig,
    CreditConfig,
    ReplayLOOConfig,
    TruncatedPPOConfig,
    VerifiableProcessConfig,
    make,
    methods,
    oracles,
)
from hf_credit.checkpoints import flaw
from hf_credit.cli import app
from hf_credit.cli.options import parse_options
from hf_credit.credit import turn_group_advantages
from hf_credit.methods import METHODS
from hf_credit.oracles import default_oracle
from hf_credit.rollouts.metric_names import METRICS
from hf_credit.tasks.spec import TaskSpec
from hf_credit.trainers.base import EpisodeTrainer
from hf_credit.trainers.credit import CreditTrainer
from hf_credit.trainers.recipes import PRESETS, TaskArguments, read_job

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "AGENTS.md",
    *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")),
]
PACKAGES = [path.parent for path in ROOT.glob("packages/*/pyproject.toml")]
DOCUMENTS += [f"packages/{package.name}/README.md" for package in PACKAGES]
# Those that are written as notebooks; the site has some pages as notebooks next to them.
NOTEBOOKS = [
    f"docs/tutorials/{path.name}"
    for path in ROOT.glob("docs/tutorials/*.ipynb")
    if not (ROOT / "docs" / path.with_suffix(".md").name).exists()
]
# Names that are imported.
OWN = "|".join(path.parent.name for root in (ROOT, *PACKAGES) for path in root.glob("src/*/__init__.py"))

COMMANDS: Any = get_command(app)

# The README is run below, after its first command; other trainers in tests/methods/test_other_trainers.py.
RUN_ELSEWHERE = ["README.md", "docs/other-trainers.md"]
# What these tests make smaller in a document's script, so that it runs in seconds.
SMALLER = {
    "README.md": {'"max_steps": 20': '"max_steps": 1'},
    "docs/how-to-agent.md": {
        "range(24)": "range(8)",
        "episodes=24, epochs=20": "episodes=8, epochs=4",
        "max_steps=2": "max_steps=1",
    },
    "docs/how-to-environment.md": {
        "range(128)": "range(16)",
        "episodes=128, epochs=4": "episodes=16, epochs=1",
        "evaluation_starts(interaction, 64)": "evaluation_starts(interaction, 8)",
        "_update=32": "_update=4",
        "batch_size=32": "batch_size=4",
    },
    "docs/how-to-vision.md": {
        "3000": "32",
        "max_steps=64": "max_steps=1",
        "_generation=8": "_generation=1",
        "256": "4",
    },
    "docs/how-to-hackable-checks.md": {"10_300": "10_060"},
    "docs/tutorials/own-method.ipynb": {
        "updates=30": "updates=8",
        '"train", 64': '"train", 16',
        "episodes=64, epochs=8": "episodes=16, epochs=1",
    },
    "docs/tutorials/which-decision.ipynb": {"updates=12": "updates=4", "updates=20": "updates=8"},
}
# What the script of a page must print: the credit that the page shows.
PRINTED = {
    "docs/from-grpotrainer.md": r"writes \d+ tokens, advantage [+-](?!0\s)\d",
}
# A GPU's settings, which a CPU would refuse.
ON_A_PROCESSOR = ["--use_cpu", "true", "--bf16", "false"]
# Logged by TRL and transformers.
THEIRS = {"loss", "grad_norm", "learning_rate", "entropy", "step_time", "epoch", "step", "kl"}


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(document), re.MULTILINE | re.DOTALL)


def prose(document: str) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text_of(document), flags=re.MULTILINE | re.DOTALL)


def quoted(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def tables(document: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The header and the rows of every table."""
    for lines in re.findall(r"(?:^\|.*\|\n)+", text_of(document), re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines.splitlines()]
        yield [cell.strip(" |") for cell in header], [[cell.strip(" |") for cell in row] for row in rows]


def first_column(rows: list[list[str]]) -> list[str]:
    """What the first column of a table has in backticks."""
    return [name for row in rows for name in quoted(row[0])]


def script(document: str) -> str:
    """All Python of a document or a notebook, in order."""
    if document.endswith(".ipynb"):
        cells = json.loads(text_of(document))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    else:
        code = "\n".join(blocks(document, "python"))
    for shown, smaller in SMALLER.get(document, {}).items():
        assert shown in code
        code = code.replace(shown, smaller)
    return code


def run(code: str, folder: Path) -> str:
    """What a script prints, run by itself in a folder of its own."""
    path = folder / "document.py"
    path.write_text(code, encoding="utf-8")
    log = folder / "document.log"
    return finish(start(path, log=log, folder=folder), log)


def commands(document: str) -> Iterator[list[str]]:
    """Every command line in a document's blocks, as words, without variables set in front of it."""
    for block in blocks(document, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            if words:
                yield words


def of_hf_credit(words: list[str]) -> list[str] | None:
    """The arguments of `hf-credit` that a command line comes down to, `None` if it is another program's."""
    launched = [position for position, word in enumerate(words) if word.endswith("/train.py")]
    if launched:
        return ["train", *words[launched[0] + 1 :]]
    return words[1:] if words[0] == "hf-credit" else None


def parsed(arguments: list[str]) -> Any:
    """The context of a subcommand, parsed but not run."""
    outer = COMMANDS.make_context("hf-credit", list(arguments))
    group, rest = COMMANDS, arguments
    while True:
        name, command, rest = group.resolve_command(outer, rest)
        if not hasattr(command, "resolve_command"):
            return command.make_context(name, rest, parent=outer)
        group, outer = command, command.make_context(name, list(rest), parent=outer)


def resolve(name: str) -> Any:
    """The object with a dotted name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        if 1 < end == len(parts):  # a function that its room exports under the name of its module
            found = getattr(sys.modules[".".join(parts[:-1])], parts[-1])
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"there is no {name}")


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


# The code runs


@pytest.mark.parametrize(
    "document", [name for name in DOCUMENTS if blocks(name, "python") and name not in RUN_ELSEWHERE] + NOTEBOOKS
)
def test_the_code_of_a_document_runs_as_one_script(document: str, tmp_path: Path) -> None:
    assert re.search(PRINTED.get(document, ""), run(script(document), tmp_path))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_is_run_or_parsed_or_is_output(document: str) -> None:
    opened = re.findall(r"^```([^\n]*)\n.*?^```$", text_of(document), re.MULTILINE | re.DOTALL)
    drawn = {"", "{toctree}"}  # a drawing, output, or the contents of the site
    assert set(opened) <= {"python", "bash", "yaml", "json", "toml", "diff"} | drawn
    for read, language in ((json.loads, "json"), (tomllib.loads, "toml")):
        for block in blocks(document, language):
            assert read(block)


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if blocks(name, "yaml")])
def test_every_yaml_of_a_document_is_of_a_recipe(document: str) -> None:
    known = {name for preset in PRESETS.values() for name in fields(resolve(preset.config.replace(":", ".")))}
    known |= fields(AsyncCreditConfig)
    for block in blocks(document, "yaml"):
        assert yaml.safe_load(block).keys() <= known | fields(ModelConfig) | fields(TaskArguments)


def test_the_readme_trains_the_policy_that_its_first_command_builds(tmp_path: Path) -> None:
    init, *_ = [words[1:] for words in commands("README.md") if words[:2] == ["hf-credit", "init-policy"]]
    small = [*init, "--episodes", "32", "--hidden-size", "32"]
    before = "from typer.main import get_command\nfrom hf_credit.cli import app\n"
    before += f"get_command(app).main({small!r}, standalone_mode=False)\n"
    after = "\nimport json\nprint(json.dumps(sorted(trainer.state.log_history[0])))"
    logged = json.loads(run(before + script("README.md") + after, tmp_path).splitlines()[-1])
    assert (tmp_path / "runs" / "sudoku_vpr" / "model.safetensors").exists()

    told = {name for header, rows in tables("docs/concepts.md") if header[0] == "name" for name in first_column(rows)}
    assert {"reward", "oracle/valid", "process_reward/mean"} <= told
    named = {re.sub(r"^(budget/decisions|budget/tokens)/.+", r"\1/<role>", name) for name in logged}
    assert {name for name in named if not name.startswith("clip_ratio/")} - THEIRS <= told


def test_every_metric_that_the_source_logs_by_its_name_is_told() -> None:
    told = {name for header, rows in tables("docs/concepts.md") if header[0] == "name" for name in first_column(rows)}
    told |= {name.partition("<")[0] for name in told if "<" in name}
    logged = set()
    for path in (ROOT / "src" / "hf_credit").rglob("*.py"):
        logged |= set(
            re.findall(
                r'(?:\.log|\.log_metric|context\.mean|context\.total)\(f?"(\w+(?:/[^"]+)?)"',
                path.read_text(encoding="utf-8"),
            )
        )
    assert {"branches/drift", "contribution/{family}", "oracle/seconds"} <= logged
    assert {name.partition("{")[0] for name in logged} <= told


def test_the_list_of_metrics_says_what_the_table_of_the_source_says() -> None:
    lists = [table for table in tables("docs/concepts.md") if table[0][0] == "name"]
    rows = {name: row for header, some in lists for row in some for name in first_column([row])}
    for name, metric in METRICS.items():
        assert rows[name][2].startswith(metric.meaning), name
        own = rows[name][1] == "as the environment defines"
        assert own or rows[name][1].startswith("share") == metric.share, name


def test_the_first_commands_of_how_to_resume_save_and_resume(
    tmp_path: Path, micro_policy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    first, second, *_ = [words[1:] for words in commands("docs/how-to-resume.md") if words[0] == "hf-credit"]
    small = ["--model_name_or_path", str(micro_policy), "--output_dir", str(tmp_path), "--max_steps", "11"]
    small += ["--instances_per_update", "8", "--per_device_train_batch_size", "8", "--disable_tqdm", "true"]
    COMMANDS.main([*first, *small], standalone_mode=False)
    assert flaw(tmp_path / "checkpoint-10") is None
    shutil.rmtree(tmp_path / "checkpoint-11")
    COMMANDS.main([*second, *small], standalone_mode=False)
    assert "starts from the beginning" not in caplog.text
    logged = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert logged[-2:] == [8, 11]  # logged at the end of each collection of eight steps, and at the end


PROJECT = tomllib.loads(text_of("pyproject.toml"))["project"]
BROUGHT = {"uvicorn"}  # by openenv


@pytest.mark.parametrize(
    ("page", "code"),
    [(name, name) for name in DOCUMENTS if blocks(name, "python") and name not in RUN_ELSEWHERE]
    + [
        (f"{folder.relative_to(ROOT)}/README.md", f"{folder.relative_to(ROOT)}") for folder in ROOT.glob("examples/*/")
    ],
)
def test_what_a_page_imports_is_installed_as_the_page_says(page: str, code: str) -> None:
    extras = re.findall(r"pip install \"\.\[([\w,]+)\]\"((?: [a-z-]+)*)", text_of(page))
    required = [*PROJECT["dependencies"]]
    required += [
        one for names, _ in extras for name in names.split(",") for one in PROJECT["optional-dependencies"][name]
    ]
    installed = {re.split(r"[^\w-]", one)[0].lower().replace("-", "_") for one in required} | BROUGHT
    installed |= {word for _, more in extras for word in more.split()}
    folder = ROOT / code
    text = (
        "\n".join(path.read_text() for path in folder.glob("*.py"))
        if folder.is_dir()
        else "\n".join(blocks(code, "python"))
    )
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)) - {"__future__"}
    imported -= set(sys.stdlib_module_names) | {path.stem for path in folder.glob("*.py")}
    imported = {{"PIL": "pillow"}.get(name, name) for name in imported if not re.fullmatch(OWN, name)}
    assert imported <= installed


def test_the_readmes_script_is_short() -> None:
    (code,) = blocks("README.md", "python")
    assert len([line for line in code.splitlines() if line]) <= 15


def test_a_reader_who_comes_from_grpotrainer_sees_credit_before_any_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, name = text_of("docs/from-grpotrainer.md"), "docs/from-grpotrainer.md"
    of_records = next(code for code in blocks(name, "python") if "credit_traces" in code)
    assert page.index(of_records) < page.index("Trainer(\n")
    exec(of_records, {})
    assert f"\n```\n{capsys.readouterr().out}```\n" in page


def test_a_real_model_is_one_changed_line_of_the_readmes_script() -> None:
    (change,) = blocks("README.md", "diff")
    removed, added = change.splitlines()
    (code,) = blocks("README.md", "python")
    assert removed.removeprefix("-") in code.splitlines()
    names: dict[str, Any] = {}
    exec(added.removeprefix("+"), names)
    assert names["settings"].keys() <= VerifiableProcessConfig.__dataclass_fields__.keys()


# What is named exists


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_inside_the_project_leads_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / document).parent / path if path else ROOT / document
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_dotted_name_can_be_imported(document: str) -> None:
    for text in quoted(prose(document)):
        for name in re.findall(rf"^(?:{OWN})(?:\.\w+)+", text):
            resolve(name)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_of_the_repository_exists(document: str) -> None:
    words = [word for line in commands(document) for word in line] + quoted(prose(document))
    for word in words:
        if re.fullmatch(r"(src|trainers|tests|docs|packages)/[\w./-]+", word) and "<" not in word:
            assert (ROOT / word).exists() or (ROOT / "src" / "hf_credit" / word).exists(), word


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_line_parses(document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    inline = [shlex.split(text) for text in quoted(prose(document)) if re.match(r"hf-credit [a-z]", text)]
    for words in inline:
        assert words[1] in COMMANDS.commands, words
    for words in commands(document):
        arguments = of_hf_credit(words)
        if arguments is None:
            continue
        context = parsed(arguments)
        if context.info_name == "train":
            words = [word for word in (context.params["named"], context.params["config"], *context.args) if word]
            read_job(["--config", *words, *ON_A_PROCESSOR])
        elif name := context.params.get("environment") or context.params.get("task"):
            TaskSpec.of_name(name, parse_options(context.params["option"])).build()


def test_every_name_of_a_package_is_in_it() -> None:
    rows = re.findall(r"^\| `(hf_credit\w*(?:\.\w+)*)` \| (.*) \|$", prose("docs/packages.md"), re.MULTILINE)
    assert len(rows) > 15
    for package, content in rows:
        folder = Path(importlib.import_module(package).__file__ or "").parent
        paths = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
        source = "".join(path.read_text(encoding="utf-8") for path in paths if path.suffix == ".py")
        for name in re.findall(r"`([A-Za-z_]\w*)`", content):
            defined = rf"(?:def|class) {name}\b|[\"']{name}[\"']|^(?:import|from) {name}\b|^ *{name}\b.* ="
            known = name in {path.stem for path in paths} or re.search(defined, source, re.MULTILINE)
            assert known or hasattr(importlib.import_module(package), name), f"{package}: {name}"


def test_the_readme_counts_the_methods_that_no_paper_of_its_own_has() -> None:
    with_a_trainer = {"verifiable_process", "replay_loo", "counterfactual_grpo", "constrained_counterfactual"}
    assert f"five papers and {len(METHODS.keys() - with_a_trainer)} other methods" in text_of("README.md")


def test_the_readme_lists_every_trainer() -> None:
    ((_, rows),) = [table for table in tables("README.md") if table[0][0] == "trainer"]
    assert {quoted(row[0])[0] for row in rows} == {name for name in hf_credit.__all__ if name.endswith("Trainer")}


def test_every_command_is_in_the_readme() -> None:
    assert set(COMMANDS.commands) <= set(quoted(text_of("README.md")))


# Settings


def fields(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_setting_of_how_to_train_exists() -> None:
    trainer = {name for kind in (CreditTrainer, EpisodeTrainer) for name in inspect.signature(kind).parameters}
    known = fields(VerifiableProcessConfig) | fields(ModelConfig) | fields(TaskArguments) | trainer
    elsewhere = {
        "num_processes",
        "flash_attention_2",
        "mc_process_reward",
        "outcome_reward",
        "amx_bf16",
    }  # accelerate's, and values
    named = set()
    for text in quoted(prose("docs/how-to-train.md")):
        name = text.partition(":")[0]
        if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name):
            named.add(name)
    assert len(named) > 30
    assert named - elsewhere <= known
    kinds = {"field": VerifiableProcessConfig, "model field": ModelConfig}
    for header, rows in tables("docs/how-to-train.md"):
        if header[0] in kinds:
            assert set(first_column(rows)) <= fields(kinds[header[0]])
    for block in blocks("docs/how-to-train.md", "yaml"):
        assert yaml.safe_load(block).keys() <= known


def test_how_to_train_and_the_help_name_every_field_of_a_recipe_and_every_config() -> None:
    own = (fields(TaskArguments) - fields(ScriptArguments)) | {"dataset_name"}
    own |= {preset.config.partition(":")[2] for preset in PRESETS.values()}
    assert own <= set(quoted(prose("docs/how-to-train.md")))
    assert own <= set(re.findall(r"\w+", COMMANDS.commands["train"].help))


def default_of(expression: str, config: VerifiableProcessConfig | ReplayLOOConfig) -> Any:
    """The value of a field, or of an expression over what a user can call."""
    if expression.isidentifier():
        return getattr(config, expression)

    def signature(function: Any) -> dict[str, Any]:
        parameters = inspect.signature(inspect.unwrap(function)).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    names = {"make": make, "methods": methods, "oracles": oracles, "default_oracle": default_oracle}
    return eval(expression, {**names, "signature": signature, "turn_group_advantages": turn_group_advantages})


CONFIGS = {
    "setting": VerifiableProcessConfig,
    "setting of C3": ReplayLOOConfig,
    "setting of T3": TruncatedPPOConfig,
    "setting of CCPO": CounterfactualGRPOConfig,
    "setting of CVT-RL": ConstrainedCounterfactualConfig,
}
COMMON = "setting of every trainer"


def settings_of(heading: str) -> set[str]:
    """What the tables with this heading in the paper index have in their first column."""
    return {
        name for header, rows in tables("docs/paper_index.md") if header[0] == heading for name in first_column(rows)
    }


@pytest.mark.parametrize(("heading", "kind"), [(COMMON, CreditConfig), *CONFIGS.items()])
def test_every_default_that_is_not_trls_is_in_a_table(heading: str, kind: Any) -> None:
    theirs = {field.name: (field.default, field.default_factory) for field in dataclasses.fields(GRPOConfig)}
    changed = {
        field.name
        for field in dataclasses.fields(kind)
        if theirs.get(field.name, (field.default, field.default_factory)) != (field.default, field.default_factory)
    }
    assert changed
    assert changed <= settings_of(heading) | settings_of(COMMON)
    assert {"use_bias_correction_kl", "critic_clip"} <= settings_of(COMMON)


@pytest.mark.parametrize(("heading", "kind"), [(COMMON, CreditConfig), *CONFIGS.items()])
def test_the_papers_defaults_are_those_of_the_code(tmp_path: Path, heading: str, kind: Any) -> None:
    config = kind(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    rows = [row for header, rows in tables("docs/paper_index.md") if header[0] == heading for row in rows]
    told = {}
    for setting, value, source in rows:
        (expression,), (literal,) = quoted(setting), quoted(value)
        told[expression] = eval(literal, {})
        assert default_of(expression, config) == told[expression], expression
        assert source
    ours = kind.__annotations__.keys() & fields(kind) - {"method_options"}  # the options themselves have theirs
    assert heading == COMMON or ours <= told.keys(), "every default of ours has its source"


@pytest.mark.parametrize(
    ("heading", "last"),
    [("equation", 9), ("equation of C3", 26), ("equation of CCPO", 27), ("equation of CVT-RL", 10)],
)
def test_every_equation_of_a_papers_text_has_its_place(heading: str, last: int) -> None:
    ((_, rows),) = [table for table in tables("docs/paper_index.md") if table[0][0] == heading]
    assert [row[0] for row in rows if row[0].startswith("(")] == [f"({number})" for number in range(1, last + 1)]
    for equation, _, place in rows:
        names = [name for name in quoted(place) if name.startswith("hf_credit.")]
        said = ("analysis only, no code", "not there yet, no code", "as (6)")
        assert names or any(words in place for words in said), equation
        for name in names:
            assert callable(resolve(name)), name
