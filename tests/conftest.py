"""What holds for every test: no network, few threads, shapes checked, the same examples every time."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib.util
import logging
import os
import shutil
import signal
import string
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxtyping
import pytest
from hypothesis import settings

# The libraries read these when they are first imported, so they are set before any test module is.
_CACHE = tempfile.mkdtemp(prefix="hf-credit-tests-")
for _name in list(os.environ):
    # No token, cache or endpoint of the machine may change a result.
    if _name.startswith(("HF_", "HUGGING_FACE_")) and not _name.startswith("HF_CREDIT_"):
        del os.environ[_name]
os.environ.update(
    HF_HOME=_CACHE,
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_EVALUATE_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    MPLBACKEND="Agg",
    TOKENIZERS_PARALLELISM="false",
    TRL_EXPERIMENTAL_SILENCE="1",
    # One thread reads a small policy faster than several.
    HF_DEACTIVATE_ASYNC_LOAD="1",
)
if importlib.util.find_spec("bitsandbytes") is not None:
    # PEFT imports it, and it would import torch's whole compiler: a sixth of what a process takes to start.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
# Threads beyond the cores spin against each other.
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))

# To collect every 700 objects takes 7 % of tests of plain Python; every training collects by itself.
gc.set_threshold(20_000, 20, 20)

# A checkpoint waits for the disk some thirty times, so that it survives a loss of power, which no test causes.
os.fsync = lambda file: None

# Shells ignore interrupts for jobs in the background, and what these start ignores them, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `launched` is found here, also by the processes that it starts.
sys.path.append(os.path.join(os.path.dirname(__file__), "processes"))

# Shapes in the signatures of credit are promises; they are checked here and cost nothing elsewhere.
jaxtyping.install_import_hook("hf_credit.credit", "beartype.beartype")

# `--hypothesis-profile=thorough` searches further, and elsewhere every time.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile("ci")


@pytest.hookimpl(optionalhook=True)  # make test-vllm has no xdist
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: about a quarter of the time a test waits for a process, a server or a browser."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="module", autouse=True)
def _frozen_garbage() -> None:
    """Every training collects garbage; it need not look through what was imported, or kept, before this module."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _few_handlers() -> None:
    """pytest adds its handlers to loggers that do not propagate, six times a test; torch has eighty of them."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.fixture(scope="module", autouse=True)
def _asked_once() -> None:
    from remembered import remember

    remember()


@pytest.fixture(scope="session", autouse=True)
def _remove_cache() -> Iterator[None]:
    yield
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def _as_loud_as_ever() -> Iterator[None]:
    """What a test tells transformers to say is for itself: less than warnings would take progress from commands."""
    yield
    if (transformers := sys.modules.get("transformers")) is not None:
        transformers.logging.set_verbosity_warning()


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Shapes go unchecked, as they do for users: for tests of the error that a function itself raises on them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parent.parent


class _Scripts(dict[str, ModuleType]):
    def __missing__(self, name: str) -> ModuleType:
        self[name] = importlib.import_module(name)
        return self[name]


@pytest.fixture(scope="module")
def scripts(root: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, ModuleType]]:
    """The modules of the folder `FOLDER` of `evaluation/`, which the module of the tests names, imported as asked for.

    They import each other by their bare names, as scripts do; none is left behind.
    """
    before, known, folder = list(sys.path), set(sys.modules), root / "evaluation"
    sys.path[:0] = [str(folder / request.module.FOLDER), str(folder)]
    yield _Scripts()
    sys.path[:] = before
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            sys.modules.pop(name)


@pytest.fixture(scope="module")
def copied_trainings() -> Iterator[None]:
    """Trainings side by side are copies of a process; `test_side_by_side.py` starts them afresh."""
    from launched import Started

    from hf_credit.cli import side_by_side

    def start(training: side_by_side.Training, threads: int) -> Started:
        command = (Path(sys.executable).parent / "hf-credit", "train", training.recipe)
        return Started(*command, log=training.folder / side_by_side.OUTPUT_FILE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side, "_start", start)
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`made_once(name, make)`: a folder that one of the processes that run tests makes, for all of them."""
    own = tmp_path_factory.getbasetemp()

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = folder.with_suffix(".unfinished")
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return made


@pytest.fixture(scope="session")
def micro_policy(made_once: Callable[..., Path]) -> Path:
    """The folder of a tiny policy for 4x4 Sudoku with 4 blanks, shown the present grid without instructions.

    It reads and writes the game's format and plays badly: about half of its episodes end with an invalid action.
    """
    return made_once("micro-current", functools.partial(_train_micro_policy, history="current", batch_rows=16))


@pytest.fixture(scope="session")
def micro_policy_append(made_once: Callable[..., Path]) -> Path:
    """The same with the whole conversation in view."""
    return made_once("micro-append", functools.partial(_train_micro_policy, history="append", batch_rows=8))


@pytest.fixture(scope="session")
def shop_policy(made_once: Callable[..., Path]) -> Path:
    """The folder of a policy of the program `agent_shop`, which opens a box, and then says one."""
    from small_agents import build_policy

    return made_once("shop", build_policy)


def _train_micro_policy(folder: Path, history: str, batch_rows: int) -> None:
    from hf_credit import make
    from hf_credit.oracles import default_oracle
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.rollouts import EnvironmentInteraction, RolloutRequest
    from hf_credit.rollouts.scripts import OraclePlayer
    from hf_credit.trainers.micro import init_scripted_policy

    environment = make("sudoku", size=4, blanks=4)
    oracle = default_oracle(environment)
    assert oracle is not None
    init_scripted_policy(
        EnvironmentInteraction(environment, history=history, instructions=False),
        OraclePlayer(environment, oracle, 0.7),
        [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(96)],
        folder,
        MicroConfig(
            hidden_size=32, layers=2, heads=2, episodes=96, epochs=20, batch_rows=batch_rows, learning_rate=8e-3
        ),
    )
    (folder / "hf_credit_task.json").unlink()  # tests name the task


SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
MERGES = [("a", "b"), ("ab", "c"), ("o", "n"), (" ", "1"), ("\n", "\n")]
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no such role') }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A tokenizer small enough to read: printable ASCII and a few longer tokens, so that texts have several spellings.

    Decoding and encoding again can change its tokens: `a b` becomes `ab`.
    """
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    characters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = [*SPECIAL, *characters, *("".join(pair) for pair in MERGES)]
    assert set(string.ascii_letters + string.digits) <= set(characters)
    model = Tokenizer(models.BPE({token: index for index, token in enumerate(vocabulary)}, MERGES))
    model.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=SPECIAL[2:],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


@pytest.fixture(scope="session")
def chat(tokenizer: Any) -> Any:
    """Renders with that tokenizer."""
    from hf_credit.rollouts import Chat

    return Chat(tokenizer)
