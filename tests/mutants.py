"""Small changes of functions, each of which must make a test fail.

    python tests/mutants.py                        some changes of every function of `FUNCTIONS` (`make mutants`)
    python tests/mutants.py --every surrogate      every change of the functions whose name holds one of the words
    python tests/mutants.py --seed 1               others

The changes are derived from the functions as they are (`changes`), so that no line of the source stands here. Each is
made in a copy of the source, on which the tests of its module run. One that no test notices survives: write the test
that kills it, or say in `EQUIVALENT` why none can.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EACH = 2
"""Changes of a function that are tried without `--every`: which depends on the seed and the function."""

IMPORTED = ("torch", "transformers", "datasets", "trl.trainer.grpo_trainer", "peft")
"""What is imported once for all tests: none of ours."""

FUNCTIONS = """
hf_credit.agents.calls: canonical_messages | tests/agents/test_endpoint.py
hf_credit.agents.dialects.base: completion | tests/agents/test_endpoint.py
hf_credit.agents.endpoint: Endpoint.close | tests/agents/test_endpoint.py tests/agents/test_interaction.py
hf_credit.agents.hosting: Host.__init__ | tests/agents/test_interaction.py
hf_credit.agents.runs: LiveRun.stands | tests/agents/test_interaction.py
hf_credit.agents.states: asking | tests/agents/test_interaction.py
hf_credit.agents.white_lists: unheeded | tests/agents/test_endpoint.py
hf_credit.collaborations.base: Collaboration.without | tests/collaborations/test_base.py
    tests/collaborations/test_think_solve.py
hf_credit.collaborations.voting: Voting.advance
hf_credit.collectors.base: RolloutBatch.trained Tree.__call__ | tests/collectors/test_base.py
    tests/trainers/test_replay_loo.py
hf_credit.collectors.forks: UncertainForks._add_steps _contexts continuation_values | tests/collectors/test_forks.py
    tests/methods/test_verifiable_process.py
hf_credit.collectors.removals: Removals.__call__ Removals._rollout | tests/collectors/test_removals.py
    tests/methods/test_counterfactual_grpo.py
hf_credit.credit.agreement: disagreement sure_share
hf_credit.credit.counterfactual: Moment.deviation Moments.updated | tests/credit/test_counterfactual.py
    tests/methods/test_counterfactual_grpo.py
hf_credit.credit.doubly_robust: family_mean
hf_credit.credit.leave_one_out: _recurring | tests/credit/test_leave_one_out.py tests/methods/test_baselines.py
hf_credit.credit.replay_allocation: pooled_blocks
hf_credit.credit.surrogate: clipped_surrogate
hf_credit.critics.critic: Critic._mini_batches Critic._predictions Critic.save | tests/critics/test_critic.py
    tests/trainers/test_constrained_counterfactual.py
hf_credit.critics.inputs: policy_inputs | tests/critics/test_inputs.py tests/methods/test_ppo.py
hf_credit.diagnostics.influence: _symbols
hf_credit.environments.openenv_world: OpenEnvEnvironment.__init__ | tests/hub/openenv/test_openenv_interaction.py
hf_credit.evaluation.credited: _asked
hf_credit.evaluation.recorded_play: _demonstration
hf_credit.evaluation.statistics: _student
hf_credit.evaluation.traces: _of_messages credit_traces
hf_credit.hub.metrics: load_metric
hf_credit.methods.active_replay: BranchAdvantages.__call__ PlannedBranches._starts
hf_credit.methods.base: credit_in_loss | tests/methods/test_base.py tests/trainers/test_credit.py
hf_credit.methods.counterfactual_grpo: CounterfactualAdvantages.__call__
hf_credit.methods.cvt.contributions: StepContributions.__call__ StepContributions._ratios |
    tests/methods/cvt/test_method.py
hf_credit.methods.cvt.drawn_steps: OutcomePredictions.critic_targets | tests/methods/cvt/test_method.py
hf_credit.methods.cvt.method: ConstrainedCounterfactual._constrained
hf_credit.methods.groups: OfScores.beside | tests/methods/test_mt_grpo.py
hf_credit.methods.replay_plan: Plan.branches | tests/methods/test_active_replay.py
hf_credit.methods.t3.truncated: Truncated._measured | tests/methods/test_truncated.py
hf_credit.methods.trees: step_weights | tests/methods/test_step_weights.py
hf_credit.methods.verdicts_first: VerdictsFirst.__call__
hf_credit.metrics.standalone: _Gathered.text
hf_credit.rollouts.arrivals: Arrivals.take | tests/rollouts/test_single_requests.py
hf_credit.rollouts.batches: unpadded
hf_credit.rollouts.buckets: alternatives | tests/methods/test_replay_loo.py tests/rollouts/test_buckets.py
hf_credit.rollouts.engine: Engine._act
hf_credit.rollouts.environment_interaction: EnvironmentInteraction.context_of | tests/evaluation/test_recorded_play.py
hf_credit.rollouts.episode: Decision.in_step_of | tests/rollouts/test_episode.py tests/rollouts/test_engine.py
hf_credit.rollouts.method_context: LocalContext.draws | tests/rollouts/test_method_context.py
    tests/collectors/test_forks.py
hf_credit.rollouts.replay: replay_from
hf_credit.rollouts.special_tokens: SpecialTokens.hide | tests/rollouts/test_special_tokens.py
    tests/rollouts/test_chat.py
hf_credit.rollouts.templates: _turn | tests/rollouts/test_families.py
hf_credit.rollouts.conversations: continuation if_same_tools |
    tests/rollouts/test_chat.py tests/rollouts/test_families.py
hf_credit.rollouts.verification: judged
hf_credit.rollouts.running: RunningEpisode.draw_seed RunningEpisode.take | tests/rollouts/test_engine.py
hf_credit.trainers.asynchronous.attention: segment_attention
hf_credit.trainers.asynchronous.loader: Updates._fresh Updates._laid_out |
    tests/trainers/asynchronous/test_gradient.py tests/trainers/asynchronous/test_trainer.py
hf_credit.trainers.asynchronous.requests: Recorded.oldest | tests/trainers/asynchronous/test_worker.py
hf_credit.trainers.asynchronous.server: Server._mend
hf_credit.trainers.asynchronous.trainer: AsyncCreditTrainer.__init__ AsyncCreditTrainer.load_checkpoint_state |
    tests/trainers/asynchronous/test_trainer.py
hf_credit.trainers.asynchronous.weights: FolderTransfer.send_weights
hf_credit.trainers.asynchronous.worker: Worker._ready Worker.load_state
hf_credit.trainers.base: EpisodeTrainer._add_logprobs EpisodeTrainer._compute_loss EpisodeTrainer._reference_logprobs
    | tests/trainers/test_base.py tests/trainers/test_role_adapters.py
hf_credit.trainers.entropy: EntropyBonus.added | tests/trainers/test_entropy.py tests/trainers/test_trl_settings.py
hf_credit.trainers.frozen: FrozenPolicy.__init__ | tests/trainers/test_frozen.py
    tests/trainers/test_constrained_counterfactual.py
hf_credit.trainers.method_context: TrainerContext.exchange
hf_credit.trainers.metrics: LossMetrics.add | tests/trainers/test_metrics.py tests/trainers/test_base.py
hf_credit.trainers.packing: Tree.of shared_lengths | tests/trainers/asynchronous/test_packing.py
    tests/trainers/test_scores.py
hf_credit.trainers.role_adapters: RoleAdapters.on_pre_optimizer_step | tests/trainers/test_role_adapters.py
    tests/trainers/test_counterfactual_grpo.py
hf_credit.trainers.rows: RowTrainer.logprobs_of_rows RowTrainer.to_read | tests/trainers/test_base.py
    tests/trainers/test_role_adapters.py
hf_credit.trainers.scores: separate
hf_credit.trainers.trl_settings: refuse_unused
hf_credit.trainers.truncated_ppo: TruncatedPPOConfig.parts
hf_credit.trainers.trust_region: project_tokens
hf_credit_bench.fields: _kind | tests/bench/test_cell_sets.py tests/bench/test_fields.py
hf_credit_bench.measures: _measured
hf_credit_bench.play: Player._predict Player.update _clipped | tests/bench/test_measures.py
    tests/bench/test_problems.py
hf_credit_bench.truth: Truth.gradient
hf_credit_leaderboard.ranking: rank
hf_credit_leaderboard.records: Record.ranked_in Record.read | tests/leaderboard/test_entries.py
    tests/leaderboard/test_views.py
hf_credit_leaderboard.seasons: require_salt secret_seeds
hf_credit_leaderboard.verification: require_seeds
local_hub.calls: Call.find_repo | packages/local-hub/tests/test_rights.py
local_hub.commits: _large | packages/local-hub/tests/test_rights.py
local_hub.discussions: _merged
local_hub.history: check_parent | packages/local-hub/tests/test_faults.py
local_hub.limits: check_twins path_problem | packages/local-hub/tests/test_names.py
local_hub.objects: Objects.sweep git_trees | packages/local-hub/tests/test_objects.py
    packages/local-hub/tests/test_upkeep.py
"""
"""The functions of a module, `*` for all, and the tests that hold them; none for those of the module itself."""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "hf_credit.credit.leave_one_out:_recurring",
        "comparison",
        "times > 1",
    ): "Without a second visit nothing is shared.",
}
"""Why no test can tell a change of a kind of an expression of a function."""


class Change(NamedTuple):
    """One change of a function.

    Attributes:
        function: `module:Class.method`.
        kind: see `_others`.
        line: where it is, counted from 1.
        old, new: what stands there, and what stands there then.
        text: that of the whole module with it.
    """

    function: str
    kind: str
    line: int
    old: str
    new: str
    text: str

    def __str__(self) -> str:
        return f"{self.function} {self.kind} (line {self.line}): {_short(self.old)} -> {_short(self.new)}"


_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def _others(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yields the kinds of change of a node, what is replaced, and by what."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[one]):
            other.ops = [_COMPARED[type(one)]()]
            yield "comparison", node, other
        case ast.BinOp() | ast.AugAssign() if type(other.op) in _COMPUTED:
            other.op = _COMPUTED[type(other.op)]()
            yield "operator", node, other
        case ast.BoolOp(values=[*first, _]):
            yield "operand", node, first[0] if len(first) == 1 else ast.BoolOp(other.op, first)
        case ast.UnaryOp(op=ast.Not()):
            yield "negation", node, other.operand
        case ast.UnaryOp(op=ast.USub()) if not isinstance(other.operand, ast.Constant):
            yield "sign", node, other.operand
        case ast.Constant(value=bool()):
            yield "truth", node, ast.Constant(not other.value)
        case ast.Constant(value=int()):
            yield "number", node, ast.Constant(other.value + 1)
        case ast.If() | ast.IfExp():
            yield "branch", node.test, ast.Constant(False)  # type: ignore[attr-defined]
        case ast.comprehension(ifs=[_, *_]):
            yield "filter", node.ifs[0], ast.Constant(True)  # type: ignore[attr-defined]
        case ast.Slice(lower=ast.AST()):
            yield "slice", node, ast.Slice(None, other.upper, other.step)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Name(), ctx=ast.Load()) if not hasattr(builtins, name):
            yield "index", node, other.value
        case ast.Call(func=ast.Name(id=name)) if name in _EXTREMES:
            other.func = ast.Name(_EXTREMES[name])
            yield "extreme", node, other
        case ast.Expr(value=ast.Call()):
            yield "statement", node, ast.Pass()


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what runs when a function is called: no texts in f-strings, types, defaults, or words of errors."""
    yield node
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.arguments) or name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for one in value if isinstance(value, list) else [value]:
            always = isinstance(one, ast.keyword) and one.arg == "strict"  # what zip is told holds anyway
            if isinstance(one, ast.AST) and not isinstance(one, ast.JoinedStr | ast.Raise) and not always:
                yield from _parts(one)


def changes(function: str, text: str) -> list[Change]:
    """The changes of a function in the text of its module, in the order of its lines.

    Raises:
        ValueError: it is not there.
    """
    name, lines, found = function.partition(":")[2], text.encode().splitlines(keepends=True), []
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for node in _parts(_function(function, name.split("."), ast.parse(text))):
        for kind, old, new in _others(node):
            begin = starts[old.lineno - 1] + old.col_offset  # type: ignore[attr-defined]
            end = starts[old.end_lineno - 1] + old.end_col_offset  # type: ignore[attr-defined]
            written = ast.unparse(ast.fix_missing_locations(new))
            bare = isinstance(new, ast.stmt | ast.Slice)
            parts = text.encode()[:begin], (written if bare else f"({written})").encode(), text.encode()[end:]
            changed = b"".join(parts).decode()
            found.append(Change(function, kind, old.lineno, text.encode()[begin:end].decode(), written, changed))  # type: ignore[attr-defined]
    return sorted(found, key=lambda one: one.line)


def _function(function: str, names: Sequence[str], tree: ast.AST) -> ast.AST:
    for name in names:
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        inner = [one for one in getattr(tree, "body", []) if isinstance(one, kinds) and one.name == name]
        if len(inner) != 1:
            raise ValueError(f"a function must be in its module once, got {len(inner)} of {function!r}; correct it.")
        tree = inner[0]
    return tree


def functions_in(text: str) -> list[str]:
    """The names of all functions and methods of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    body = ast.parse(text).body
    inner = [(f"{one.name}.", own) for one in body if isinstance(one, ast.ClassDef) for own in one.body]
    return [f"{of}{one.name}" for of, one in [*(("", one) for one in body), *inner] if isinstance(one, kinds)]


def targets(root: Path) -> dict[str, tuple[Path, list[str]]]:
    """The file of each function of `FUNCTIONS`, from the root, and its tests."""
    found = {}
    for row in FUNCTIONS.strip().replace("\n    ", " ").splitlines():
        module, _, rest = row.partition(": ")
        names, _, tests = rest.partition(" | ")
        path, own = place_of(root, module)
        for name in functions_in((root / path).read_text("utf-8")) if names == "*" else names.split():
            found[f"{module}:{name}"] = path, tests.split() or [own]
    return found


def place_of(root: Path, module: str) -> tuple[Path, str]:
    """The file of a module and that of its tests, from the root."""
    package, *parts = module.split(".")
    source = next(one for one in _sources(root) if (one / package).is_dir())
    tests = {
        "hf_credit": "tests",
        "hf_credit_bench": "tests/bench",
        "hf_credit_leaderboard": "tests/leaderboard",
    }.get(package, f"{source.parent.relative_to(root)}/tests")
    own = "/".join([tests, *parts[:-1], f"test_{parts[-1]}.py"])
    return (source / package / "/".join(parts)).with_suffix(".py").relative_to(root), own


def chosen(root: Path, function: str, seed: int | None) -> list[Change]:
    """The changes of a function that are tried, without those that no test can tell: all of them without a seed."""
    path, _ = targets(root)[function]
    every = [
        one
        for one in changes(function, (root / path).read_text("utf-8"))
        if (one.function, one.kind, one.old) not in EQUIVALENT
    ]
    if seed is None or len(every) <= EACH:
        return every
    draws = random.Random(f"{seed} {function} {[(one.kind, one.old) for one in every]}")
    return sorted(draws.sample(every, EACH), key=lambda one: one.line)


def survivors(root: Path, tried: Mapping[str, tuple[Path, Sequence[str], Sequence[Change]]]) -> list[Change]:
    """Tries changes and tells of each; those that no test noticed.

    Args:
        root: of the repository.
        tried: the file of each function, its tests, and its changes.

    Raises:
        ValueError: the tests fail without any change.
    """
    found, limits = [], dict[tuple[str, ...], float]()
    with tempfile.TemporaryDirectory(prefix="hf-credit-mutants-") as name:
        folder = Path(name)
        for source in _sources(root):
            shutil.copytree(source, folder / source.relative_to(root))  # with what is compiled already
        for path, tests, own in tried.values():
            if tuple(tests) not in limits:
                begun = time.monotonic()
                if fails(root, folder, tests, None):
                    said = (folder / "said.txt").read_text("utf-8")
                    raise ValueError(
                        f"tests must pass without any change, got a failure; fix it first:\n{said[-3000:]}"
                    )
                limits[tuple(tests)] = 10 * (time.monotonic() - begun) + 20
            for change in own:
                with _written(folder / path, change.text):
                    killed = fails(root, folder, tests, limits[tuple(tests)])
                print(f"{'killed' if killed else 'SURVIVED'}: {change}", flush=True)
                if not killed:
                    found.append(change)
    return found


@contextlib.contextmanager
def _written(path: Path, text: str) -> Iterator[None]:
    whole, of = path.read_bytes(), path.stat()
    path.write_text(text, encoding="utf-8")
    os.utime(path, (0, 0))  # its compiled form is that of another time
    yield
    path.write_bytes(whole)
    os.utime(path, ns=(of.st_atime_ns, of.st_mtime_ns))


def _sources(root: Path) -> list[Path]:
    return [root / "src", *root.glob("packages/*/src")]


def fails(root: Path, folder: Path, tests: Sequence[str], limit: float | None) -> bool:
    """Whether one of the tests fails, or cannot be imported, on the copy of the source, or has not ended in `limit` s.

    Raises:
        RuntimeError: pytest found no such test.
    """
    process = os.fork()  # of one that has imported what is others'
    if process == 0:
        _run(root, folder, tests)
    until = time.monotonic() + limit if limit else None
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        if until and time.monotonic() > until:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return True
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    if code in (4, 5):  # a wrong name, or no test; others: passed, failed, not imported, died
        raise RuntimeError(f"pytest must find the tests of a function, got none for {tests}; correct them.")
    return code != 0


def _run(root: Path, folder: Path, tests: Sequence[str]) -> None:
    code = 3
    try:
        os.setsid()
        said = os.open(folder / "said.txt", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for stream in 0, 1, 2:
            os.dup2(said, stream)
        sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8")
        os.chdir(root)
        places = [str(folder / source.relative_to(root)) for source in _sources(root)]
        sys.path[:0] = places
        os.environ |= {"PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        import pytest

        # A plugin of others that is imported already, such as anyio's, is not rewritten.
        given = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = int(pytest.main([*given, *tests]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(arguments: Iterable[str]) -> int:
    """1 if a change survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="of functions")
    parser.add_argument("--every", action="store_true", help=f"change, not {EACH} of a function")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    given = parser.parse_args([*arguments])
    tried = {
        function: (path, tests, chosen(ROOT, function, None if given.every else given.seed))
        for function, (path, tests) in targets(ROOT).items()
        if not given.words or any(word in function for word in given.words)
    }
    sys.path[:] = [one for one in sys.path if Path(one) != Path(__file__).parent]  # has a folder of the name of vLLM
    for module in IMPORTED:
        with contextlib.suppress(ImportError):
            __import__(module)
    left = survivors(ROOT, tried)
    total = sum(len(own) for _, _, own in tried.values())
    print("\n".join([*(f"SURVIVED: {one}" for one in left), f"{total - len(left)} of {total} killed"]))
    return int(bool(left) or not total)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
