"""The house keeps its order: who may import whom, and who may know TRL's inside."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = "hf_credit"
SOURCE = Path(__file__).resolve().parent.parent / "src" / PACKAGE

# Modules outside the rooms, without knowledge of any of them: every room may import these.
SHARED = {
    "_version",
    "boundary",
    "checkpoint_store",
    "checkpoints",
    "content",
    "files",
    "http_guard",
    "hub_client",
    "loading",
    "logistic",
    "model_cards",
    "noise",
    "optional_packages",
    "options",
    "parquet",
    "parquet_child",
    "pictures",
    "playing",
    "processes",
    "redaction",
    "registry",
    "renamed",
    "replies",
    "safe_io",
    "served_model",
    "template_child",
    "tokenizer_process",
    "trust",
    "validators",
    "words",
}

# A room may import itself and these, and what they may. A new room starts here, with its reason in the design.
_DIRECTLY: dict[str, set[str]] = {
    "credit": set(),
    "environments": {"verifiers"},
    "verifiers": set(),
    "recipes": set(),
    "data": set(),
    "oracles": {"environments"},
    "rollouts": {"environments", "oracles"},
    "agents": {"rollouts"},
    "collaborations": {"agents", "rollouts", "verifiers"},
    "collectors": {"credit", "rollouts"},
    "critics": {"credit", "rollouts"},
    "methods": {"credit", "collectors", "critics"},
    "policies": {"tasks"},
    "tasks": {"collaborations", "data", "methods", "verifiers"},
    "evaluation": {"policies", "tasks"},
    "diagnostics": {"evaluation"},
    "metrics": {"diagnostics"},
    "hub": {"metrics"},
    "trainers": {"diagnostics", "recipes"},
    "cli": {"hub", "trainers"},
}


def _and_theirs(room: str) -> set[str]:
    return _DIRECTLY[room].union(*(_and_theirs(other) for other in _DIRECTLY[room]))


MAY_IMPORT = {room: _and_theirs(room) for room in _DIRECTLY}
MAY_IMPORT_TRL = {"trainers", "cli"}

# The modules that may use what TRL does not promise to keep, one for each of its engines.
SEAMS = ("trainers/base.py", "trainers/asynchronous/trl_1_16.py")
# Reports read what a run leaves, which one module of the trainers writes; the others know nothing of evaluations.
WRITES_RUNS = "trainers/recording.py"
# A registry may name what a room above it makes, as it names a user's; it is imported when it is named.
NAMES_ABOVE = {("oracles/__init__.py", "policies")}
# TRL's own conventions for subclasses: they feed the model card.
TRL_CONVENTIONS = {"_tag_names", "_name", "_paper"}

_LATER = re.compile(rf"({PACKAGE}|trl)(\.\w+)+(:\w+)?")

# Our other distributions, with their tests. They stand alone, but for those that build on the library.
PACKAGES = SOURCE.parents[1] / "packages"
BUILDS_ON_IT = {"bench": "hf_credit_bench", "leaderboard": "hf_credit_leaderboard"}  # by their folder


def modules() -> list[str]:
    return sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


def read(path: str) -> str:
    return (SOURCE / path).read_text(encoding="utf-8")


def imports(path: str, text: str, strings: bool = True) -> Iterator[tuple[int, str]]:
    """Every (line, dotted name) that a module imports, anywhere in it, `from a import b` as `a.b`.

    Type-checking blocks and functions count like the top of the file, relative names are resolved, and so do strings
    such as "hf_credit.oracles.mcts:MCTSOracle", which are imports put off until later, unless `strings` is false.
    """
    package = [PACKAGE, *Path(path).parent.parts]
    for line, level, module, name in written_imports(text):
        if level is not None:
            base = package[: len(package) - level + 1] if level else []
            yield line, ".".join([*base, *([module] if module else []), name])
        elif strings:
            yield line, name


@functools.cache  # to parse all modules takes a second, and several tests ask for the same
def written_imports(text: str) -> tuple[tuple[int, int | None, str | None, str], ...]:
    """Every import of a module as it is written: its line, dots before it, module and name; strings have no dots."""
    found: list[tuple[int, int | None, str | None, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, 0, None, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, node.level, node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _LATER.fullmatch(node.value):
            found.append((node.lineno, None, None, node.value.replace(":", ".")))
    return tuple(found)


def of_packages() -> dict[Path, str]:
    """The text of every module of the other distributions, by its path below their folder."""
    return {
        path.relative_to(PACKAGES): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGES.glob("*/**/*.py"))
        if "build" not in path.parts
    }


def above_the_library() -> dict[Path, str]:
    """The modules, without their tests, of the distributions that build on the library."""
    return {
        path: text for path, text in of_packages().items() if path.parts[:2] in [(one, "src") for one in BUILDS_ON_IT]
    }


def dotted(path: str, package: str = PACKAGE) -> str:
    """The name of a module, a package by its folder."""
    return ".".join([package, *Path(path).with_suffix("").parts]).removesuffix(".__init__")


def modules_it_needs(texts: Mapping[str, str], package: str = PACKAGE) -> dict[str, set[str]]:
    """For each module of these texts by path, those that it imports; a re-export is of the module that defines it.

    A registry names its entries by strings, as a user names his, and knows nothing of them.
    """
    path_of = {dotted(path, package): path for path in texts}
    imported = {path: {name for _, name in imports(path, text, strings=False)} for path, text in texts.items()}

    def defining(name: str) -> str | None:
        module, rest = name, ""
        while module not in path_of and "." in module:
            module, _, rest = module.rpartition(".")
        path = path_of.get(module)
        if path is None or not rest or not path.endswith("__init__.py"):
            return path
        origins = {one for one in imported[path] if one.rpartition(".")[2] == rest} - {name}
        return defining(origins.pop()) if origins else path

    return {path: {one for one in map(defining, names) if one} - {path} for path, names in imported.items()}


def closure(needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """For each module, those that it needs directly or through others."""
    reached = {}
    for path in needs:
        found, left = set[str](), list(needs[path])
        while left:
            if (one := left.pop()) not in found:
                found.add(one)
                left += needs[one]
        reached[path] = found
    return reached


def circles(needs: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that need each other, directly or through others."""
    reached = closure(needs)
    groups = {tuple(sorted(one for one in reached[path] if path in reached[one])) for path in needs}
    return sorted(map(list, groups - {()}))


def at_import(text: str) -> str:
    """A module without its functions, whose imports happen when they are called."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def room_of(path: str) -> str:
    """The room of a module, or the stem of a module outside the rooms."""
    return Path(path).parts[0].removesuffix(".py")


def wrong_imports(path: str, text: str) -> list[str]:
    """What a module imports against the one way that imports run."""
    room = room_of(path)
    found = []
    for line, name in imports(path, text):
        parts = name.split(".")
        if parts[0] == "trl" and room not in MAY_IMPORT_TRL:
            found.append(f"{path}:{line} imports {name}, but only {' and '.join(sorted(MAY_IMPORT_TRL))} import TRL")
        if parts[0] != PACKAGE or path == "__init__.py":
            continue
        target = parts[1] if len(parts) > 1 else "the package itself"
        if room == "trainers" and target == "evaluation" and path != WRITES_RUNS:
            found.append(f"{path}:{line} imports {name}, which only {WRITES_RUNS} may")
        if target not in {room} | SHARED | MAY_IMPORT.get(room, set()) and (path, target) not in NAMES_ABOVE:
            found.append(f"{path}:{line} imports {name}, but {room} may not import {target}")
    return found


@functools.cache
def trl_private_names() -> frozenset[str]:
    """The underscored names of the trainers that ours extend, from TRL's source, read but not imported."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    names = set()
    modules = ("base_trainer", "base_config", "grpo_trainer", "grpo_config", "rloo_trainer", "rloo_config")
    asynchronous = ("async_grpo_trainer", "packing")
    for module in (
        *(f"trainer/{one}" for one in modules),
        *(f"experimental/async_grpo/{one}" for one in asynchronous),
    ):
        path = Path(spec.origin).parent / f"{module}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                names.add(node.attr)
    return frozenset(name for name in names if is_private(name)) - TRL_CONVENTIONS


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def seam_leaks(path: str, text: str, private: frozenset[str]) -> list[str]:
    """Where a module other than the seam knows TRL's inside."""
    if path in SEAMS or room_of(path) not in MAY_IMPORT_TRL:
        return []
    found = []
    for line, name in imports(path, text):
        if name.startswith("trl.") and (name.count(".") > 1 or is_private(name.rpartition(".")[2])):
            found.append(f"{path}:{line} imports {name}, which only {SEAMS} may: take the public name from trl itself")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            name = node.attr
            if ast.unparse(node.value).startswith("trl."):
                found.append(f"{path}:{node.lineno} reaches into {ast.unparse(node)}, which only {SEAMS} may")
        elif isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value  # getattr(trainer, "_name")
        else:
            continue
        if name in private:
            found.append(f"{path}:{node.lineno} uses {name} of TRL, which only {SEAMS} may: go through a method of it")
    return found


def test_imports_run_one_way() -> None:
    assert [problem for path in modules() for problem in wrong_imports(path, read(path))] == []


def test_a_tokenizer_is_loaded_in_one_place_which_runs_no_code_unasked() -> None:
    assert [path for path in modules() if "AutoTokenizer.from_pretrained" in read(path)] == ["loading.py"]


def test_no_module_has_more_than_500_lines() -> None:
    assert [path for path in modules() if read(path).count("\n") > 500] == []
    assert [path for path, text in of_packages().items() if "src" in path.parts and text.count("\n") > 500] == []


def test_no_modules_import_each_other() -> None:
    assert circles(modules_it_needs({path: read(path) for path in modules()})) == []
    for home in PACKAGES.glob("*/src/*/__init__.py"):
        own = home.parent.relative_to(PACKAGES)
        texts = {
            path.relative_to(own).as_posix(): text for path, text in of_packages().items() if path.is_relative_to(own)
        }
        assert circles(modules_it_needs(texts, own.name)) == []


def imported_of(texts: Mapping[Path, str], packages: Iterable[str]) -> list[str]:
    """Where modules import one of these packages."""
    assert texts
    return [
        f"{path}:{line} imports {name}"
        for path, text in texts.items()
        for line, name in imports(path.name, text)
        if name.partition(".")[0] in packages
    ]


def test_packages_know_nothing_of_credit_but_those_that_build_on_it() -> None:
    alone = {path: text for path, text in of_packages().items() if path.parts[0] not in BUILDS_ON_IT}
    assert imported_of(alone, {PACKAGE, *BUILDS_ON_IT.values(), "trl"}) == []


def test_the_library_imports_no_package_that_builds_on_it() -> None:
    library = {Path(path): read(path) for path in modules()}
    assert imported_of(library, BUILDS_ON_IT.values()) == []
    assert [path for path, text in library.items() if any(name in text for name in BUILDS_ON_IT.values())] == []
    above = above_the_library()
    assert imported_of(above, {"trl"}) == []
    bench = {path: text for path, text in above.items() if path.parts[0] == "bench"}
    assert imported_of(bench, {"hf_credit_leaderboard"}) == []


# What a trainer has only if its settings ask for it.
COMPONENTS = ("critics", "entropy", "frozen", "projection", "role_adapters", "role_requests", "vllm")


def test_a_trainer_without_a_component_does_not_import_its_module() -> None:
    reached = closure(modules_it_needs({path: at_import(read(path)) for path in modules()}))
    components = {f"trainers/{name}.py" for name in COMPONENTS}
    assert components <= set(modules())
    assert reached["trainers/credit.py"] & components == set()
    assert reached["trainers/asynchronous/trainer.py"] & components == set()


PAGE = SOURCE.parents[1] / "docs" / "architecture.md"


def rows_of(part: str) -> list[list[list[str]]]:
    """The names of code in the cells of each row of a part of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {part}\n")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [
        [re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split(" | ")] for row in rows if "---" not in row
    ]


def test_the_page_of_the_architecture_has_every_room_with_what_it_imports() -> None:
    told = {cells[0][0]: set(cells[2]) for cells in rows_of("The rooms")}
    assert told == _DIRECTLY


@pytest.mark.parametrize("part", ["One question, one place", "Where do I change ..."])
def test_every_row_of_the_page_of_the_architecture_names_modules_that_exist(part: str) -> None:
    rows = rows_of(part)
    assert len(rows) >= 12
    known = {dotted(path) for path in modules()}
    known |= {dotted(Path(*path.parts[3:]).as_posix(), path.parts[2]) for path in above_the_library()}
    for row in rows:
        named = [name for name in row[1] if name.partition(".")[0] in (PACKAGE, *BUILDS_ON_IT.values())]
        assert named
        assert [name for name in named if name not in known] == []


def test_every_room_says_what_it_may_import() -> None:
    assert {room_of(path) for path in modules()} - {"__init__"} - SHARED <= set(MAY_IMPORT)


def test_what_a_room_may_import_has_no_way_back() -> None:
    for room, others in MAY_IMPORT.items():
        for other in others:
            assert room not in MAY_IMPORT[other]
            assert MAY_IMPORT[other] <= others


def test_only_the_seam_knows_the_inside_of_trl() -> None:
    private = trl_private_names()
    assert [problem for path in modules() for problem in seam_leaks(path, read(path), private)] == []


# The checks see what they are meant to see


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("credit/gae.py", "from hf_credit.rollouts import Episode"),
        ("credit/gae.py", "import hf_credit.rollouts.episode as episode"),
        ("credit/gae.py", "from hf_credit import rollouts"),
        ("credit/gae.py", "from .. import rollouts"),
        ("credit/gae.py", "from ..rollouts.episode import Episode"),
        ("credit/gae.py", "from hf_credit import make"),
        ("credit/gae.py", "import hf_credit"),
        ("credit/deep/gae.py", "from ...environments import base"),
        ("environments/chess.py", "def solve():\n    from hf_credit.oracles import mcts"),
        (
            "environments/chess.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hf_credit.oracles import Oracle",
        ),
        ("environments/chess.py", "ORACLE = 'hf_credit.oracles.mcts:MCTSOracle'"),
        ("environments/chess.py", "module = importlib.import_module('hf_credit.oracles')"),
        ("oracles/mcts.py", "from hf_credit.policies import micro"),
        ("rollouts/engine.py", "from hf_credit.credit import gae"),
        ("collectors/base.py", "from hf_credit.methods import Method"),
        ("critics/critic.py", "from hf_credit.methods import Method"),
        ("methods/grpo.py", "from hf_credit.trainers import credit"),
        ("methods/grpo.py", "from hf_credit.tasks import TaskSpec"),
        ("tasks/spec.py", "from hf_credit.evaluation import play"),
        ("diagnostics/buckets.py", "from hf_credit.trainers.credit import CreditTrainer"),
        ("rollouts/engine.py", "from trl import GRPOConfig"),
        ("policies/micro.py", "import trl.trainer"),
        ("policies/micro.py", "from hf_credit.trainers.base import CreditTrainer"),
        ("evaluation/diagnostics.py", "from hf_credit.trainers import base"),
        ("hub/publish.py", "from hf_credit.trainers import base"),
        ("trainers/base.py", "from hf_credit.cli import main"),
        ("trainers/resumption.py", "from hf_credit.hub.checkpoints import publish_checkpoint"),
        ("trainers/base.py", "from hf_credit.evaluation.credited import credited_episodes"),
        ("registry.py", "from hf_credit.environments import make"),
    ],
)
def test_an_import_against_the_way_is_seen(path: str, text: str) -> None:
    assert len(wrong_imports(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "credit/gae.py",
            "import torch\nfrom hf_credit.credit.returns import discounted_returns\nfrom . import returns",
        ),
        ("environments/chess.py", "from hf_credit.registry import Registry"),
        ("oracles/mcts.py", "from ..environments.base import State"),
        ("trainers/base.py", "from trl.trainer.grpo_trainer import GRPOTrainer\nfrom hf_credit.credit import gae"),
        ("trainers/recording.py", "from hf_credit.evaluation.runs import LOG_FILE"),
        ("cli/demo.py", "from trl import TrlParser\nfrom hf_credit.trainers.base import CreditTrainer"),
        ("cli/demo.py", "from hf_credit._version import __version__"),
        ("__init__.py", "HOMES = {'make': 'hf_credit.environments'}"),
        ("evaluation/report.py", "print('hf_credit.trainers are not imported by a sentence.')"),
    ],
)
def test_an_import_along_the_way_is_allowed(path: str, text: str) -> None:
    assert wrong_imports(path, text) == []


@pytest.mark.parametrize(
    "back",
    [
        "from hf_credit.critics.first import First",
        "import hf_credit.critics.first",
        "from . import first",
        "def f():\n    from hf_credit.critics import First",
        "if TYPE_CHECKING:\n    from hf_credit.critics import First",
        "from hf_credit.critics.third import Third",
    ],
)
def test_a_circle_of_modules_is_seen(back: str) -> None:
    texts = {
        "critics/__init__.py": "from hf_credit.critics.first import First as First",
        "critics/first.py": "from hf_credit.critics.second import Second\nclass First: ...",
        "critics/second.py": back,
        "critics/third.py": "from hf_credit.critics import First",
    }
    assert any({"critics/first.py", "critics/second.py"} <= set(one) for one in circles(modules_it_needs(texts)))


def test_modules_of_a_package_may_import_each_other_one_way() -> None:
    texts = {
        "critics/__init__.py": "from hf_credit.critics.first import First as First\nNAME = 1",
        "critics/first.py": "class First: ...",
        "critics/second.py": "from hf_credit.critics import First",
    }
    assert modules_it_needs(texts)["critics/second.py"] == {"critics/first.py"}
    assert circles(modules_it_needs(texts)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from trl.trainer.utils import pad",
        "import trl.trainer.grpo_trainer",
        "def f():\n    from trl.models import prepare_fsdp",
        "from trl import _compat",
        "import trl\ntrl.trainer.RLOOTrainer",
        "class T(Base):\n    def _generate_and_score_completions(self, inputs): ...",
        "class T(Base):\n    def f(self):\n        return self._generate_single_turn([])",
        "getattr(trainer, '_generate_single_turn')",
    ],
)
def test_knowledge_of_the_inside_of_trl_is_seen(text: str) -> None:
    private = trl_private_names()
    assert len(seam_leaks("trainers/method.py", text, private)) == 1
    assert [leak for seam in SEAMS for leak in seam_leaks(seam, text, private)] == []


@pytest.mark.parametrize(
    "text",
    [
        "from trl import GRPOTrainer",
        "class T(Base):\n    _tag_names = ['trl']\n    _name = 'T'\n    _paper = {}",
        "class T(Base):\n    def credit(self, episodes):\n        return self._own_helper(episodes)",
    ],
)
def test_public_names_and_conventions_of_trl_are_free(text: str) -> None:
    assert seam_leaks("trainers/method.py", text, trl_private_names()) == []


# The modules that connect by themselves, with whom. The Hub is reached through huggingface_hub alone, whose client
# `hub_client` guards from its first import on.
CONNECT = {
    "agents/endpoint.py": "programs, which connect to it",
    "agents/hosting.py": "the process of programs, by a pair of sockets",
    "agents/host.py": "the trainer, by a pair of sockets",
    "agents/program.py": "the endpoint of its run",
    "environments/openenv_session.py": "an OpenEnv server",
    "environments/openenv_world.py": "an OpenEnv server",
    "leaderboard/src/hf_credit_leaderboard/page.py": "nobody: it asks for a free port",
    "trainers/asynchronous/server.py": "a vLLM server",
    "trainers/vllm.py": "a vLLM server",
}
_CLIENTS = re.compile(r"(requests|urllib\.request|urllib3|http\.client|httpx2?|aiohttp|websockets|socket)(\..*)?")
_OF_THE_CLIENT = re.compile(r"_GLOBAL_(ASYNC_)?CLIENT|(set|default)_(async_)?client_factory|get_async_session")


def test_nothing_but_the_guarded_client_reaches_the_hub() -> None:
    connecting, knowing = set(), set()
    texts = {path: read(path) for path in modules()}
    for path, text in {**texts, **{path.as_posix(): text for path, text in above_the_library().items()}}.items():
        connecting |= {path for _, name in imports(path, text) if _CLIENTS.fullmatch(name)}
        knowing |= {path} if _OF_THE_CLIENT.search(text) else set()
    assert connecting == set(CONNECT)
    assert knowing == {"hub_client.py"}
