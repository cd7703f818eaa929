"""What every benchmark shares: taking turns, telling moments apart, and one table as the result."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PrinterCallback, TrainerCallback

from hf_credit.evaluation.runs import versions

T = TypeVar("T")

PACKAGES = ("torch", "transformers", "trl", "vllm", "open_spiel", "python-constraint2", "math-verify")
_STATUS = Path("/proc/self/status")


def cpu_seconds() -> float:
    """Seconds this process has spent on a processor. With one thread, other processes do not stretch them."""
    return time.process_time()


def milliseconds(call: Callable[[], Any]) -> float:
    """How long one call takes this process on a processor."""
    begun = cpu_seconds()
    call()
    return 1000 * (cpu_seconds() - begun)


def take_turns(cases: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """What each case returned, `repeats` times, one case after the other, so that all meet the same conditions."""
    results: dict[str, list[T]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            results[name].append(case())
    return results


class Clock:
    """Attributes every moment to exactly one label: the innermost of the labelled calls under way, or `"rest"`.

    Args:
        now: what time it is, in seconds.
    """

    def __init__(self, now: Callable[[], float] = cpu_seconds) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._now = now
        self._labels = ["rest"]
        self._since = now()

    def label(self, owner: Any, method: str, label: str) -> None:
        """Attributes the calls of a method of this one object."""
        call = getattr(owner, method)

        def labelled(*args: Any, **kwargs: Any) -> Any:
            self.flush()
            self._labels.append(label)
            try:
                return call(*args, **kwargs)
            finally:
                self.flush()
                self._labels.pop()

        setattr(owner, method, labelled)

    def flush(self) -> None:
        """Attributes what has passed so far."""
        now = self._now()
        self.seconds[self._labels[-1]] += now - self._since
        self._since = now

    def restart(self) -> None:
        """Forgets what has passed so far."""
        self.flush()
        self.seconds.clear()


class _Updates(TrainerCallback):
    """The seconds of each update by label, without the first, which also sets things up."""

    def __init__(self, clock: Clock, steps: int) -> None:
        self.clock, self.steps = clock, steps
        self.updates: list[dict[str, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.steps:
            return
        self.clock.flush()
        if state.global_step > self.steps:
            self.updates.append(dict(self.clock.seconds))
        self.clock.restart()


def timed_updates(
    trainer: Any,
    labelled: Sequence[tuple[Any, str, str]],
    optimizer: str = "optimizer",
    steps: int = 1,
    now: Callable[[], float] = cpu_seconds,
) -> list[dict[str, float]]:
    """Trains, and gives the seconds of each update but the first, by label; what has none is `"rest"`.

    Args:
        trainer: of this library or of TRL.
        labelled: owners, the names of their methods, and the labels of these calls.
        optimizer: the label of the optimizer's steps.
        steps: of an update.
        now: what time it is, in seconds.
    """
    clock = Clock(now)
    for owner, method, label in labelled:
        clock.label(owner, method, label)
    create_optimizer = trainer.create_optimizer

    def create_labelled(*args: Any, **kwargs: Any) -> Any:
        created = create_optimizer(*args, **kwargs)
        clock.label(created, "step", optimizer)
        return created

    trainer.create_optimizer = create_labelled
    trainer.remove_callback(PrinterCallback)
    found = _Updates(clock, steps)
    trainer.add_callback(found)
    trainer.train()
    labels = {"rest", optimizer, *(label for *_, label in labelled)}
    return [{label: update.get(label, 0.0) for label in labels} for update in found.updates]


def policy_passes(trainer: Any) -> list[tuple[Any, str, str]]:
    """What of a trainer is the policy's own work besides generation and the optimizer's steps, for `timed_updates`."""
    passes = "scores_of_rows" if hasattr(trainer, "scores_of_rows") else "_get_per_token_logps_and_entropies"
    return [
        (trainer, "_compute_loss", "forward"),
        (trainer, passes, "forward"),
        (trainer.accelerator, "backward", "backward"),
        (trainer.accelerator, "clip_grad_norm_", "optimizer"),
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensors are computed by one thread, so that the seconds of the processor are those of the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_a_process(
    script: str, case: str | int, options: argparse.Namespace, checkout: Path | None = None
) -> dict[str, Any]:
    """What a benchmark prints in its last line, as JSON, of one case in a process of its own with one thread.

    Args:
        script: the benchmark, which is run with `--only` and the case.
        case: which of those that it compares.
        options: what the benchmark was run with.
        checkout: of another commit, whose library is measured.
    """
    left_out = {"output", "before"}
    known = {name: value for name, value in vars(options).items() if name not in left_out and value is not None}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in known.items()]
    path = {} if checkout is None else {"PYTHONPATH": str(checkout.resolve() / "src")}
    finished = subprocess.run(
        [sys.executable, script, f"--only={case}", *given],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **path},
    )
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


def measured_alone(options: argparse.Namespace, measure: Callable[[Any, argparse.Namespace], dict[str, Any]]) -> bool:
    """Whether this process is one that `in_a_process` started for one case, which is measured and printed then.

    Args:
        options: what the benchmark was run with; `only` is taken out of them.
        measure: of a case.
    """
    only = vars(options).pop("only")
    if only is not None:
        with one_thread():
            print(json.dumps(measure(only, options)))
    return only is not None


def memory(field: str) -> int:
    """A size that the kernel knows of this process, in bytes: resident now (VmRSS) or at most so far (VmHWM)."""
    if not _STATUS.exists():
        raise SystemExit(
            f"The kernel's account of memory is read from {_STATUS}, which is missing; run this on Linux."
        )
    found = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text(encoding="utf-8"))
    assert found is not None
    return 1024 * int(found.group(1))


def arguments(description: str, **defaults: int) -> argparse.ArgumentParser:
    """A parser with one whole number an option, and where to write the result."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--output", type=Path, help="a folder for the table, as NAME.md and NAME.json")
    return parser


def report(options: argparse.Namespace, name: str, text: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the one table of a benchmark, and writes it where asked to.

    Args:
        options: what the benchmark was run with.
        name: of the benchmark.
        text: what the table shows.
        rows: one a line, all with the same columns.
    """
    table = _markdown(rows)
    print(table)
    if options.output is None:
        return
    settings = {key: value for key, value in vars(options).items() if key != "output" and value is not None}
    given = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in settings.items())
    command = f"python benchmarks/{name}.py {given} --output {options.output}"
    installed = versions(PACKAGES)
    about = ", ".join(f"{package} {version}" for package, version in installed.items())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{name}.md").write_text(
        f"# {name}\n\n{text}\n\n{table}\n\n```bash\n{command}\n```\n\n{machine()}; {about}.\n", encoding="utf-8"
    )
    record = {
        "command": command,
        "machine": machine(),
        "versions": installed,
        "settings": settings,
        "rows": list(rows),
    }
    (options.output / f"{name}.json").write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")


def report_of_one_thread(
    parser: argparse.ArgumentParser,
    given: Sequence[str] | None,
    name: str,
    compare: Callable[[argparse.Namespace], Sequence[Mapping[str, Any]]],
    text: str,
) -> None:
    """The whole of a benchmark that one thread computes, from the same seed every time.

    Args:
        parser: of its options.
        given: its command line.
        name: of the benchmark.
        compare: the rows.
        text: what the table shows; `{tokens}` stands for the option of that name.
    """
    options = parser.parse_args(given)
    with one_thread():
        torch.manual_seed(0)
        rows = compare(options)
    report(options, name, text.format(**vars(options)), rows)


def machine() -> str:
    """What a benchmark runs on."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(rows[0])
    cells = [columns, *[[_cell(row[column]) for column in columns] for row in rows]]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)
