"""What is missing is not 0: no default of 0 stands for a value that is unknown, outside the places below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src", *sorted((ROOT / "packages").glob("*/src")), ROOT / "evaluation", ROOT / "hub_assets")
UNJUDGED = "a score of hacks or a cost that an audit does not name is 0, by its definition"
NO_ANSWER = "an audit of a step without an answer has none, and such a step earns nothing by it"
UNDRAWN = "a step that is not drawn adds nothing; a drawn one without an estimate counts in contribution/unknown"
SCALE = "the colours of a page, where nothing has a colour"
EXCEPTIONS = {
    "hf_credit_bench/cells.py": {"cell.get('oracle_error') or 0.0": "a cell without it has oracles that do not err"},
    "collaborations/voting.py": {"grades.get(answer or '', 0.0)": "a ballot without an answer is wrong"},
    "credit/surrogate.py": {
        "torch.nan_to_num(policy_logprobs.to(dtype) - sampling_logprobs.to(dtype), nan=0.0)": "as in TRL, where the "
        "sampler reports none the ratio is 1",
    },
    "critics/critic.py": {"numbers.get('mean', 0.0)": "the targets of a critic were not normalised"},
    "critics/belief_head.py": {"target.nan_to_num()": "a mask leaves these targets out"},
    "environments/openenv_session.py": {
        "reward or 0.0": "a step that pays nothing; an episode in which none pays has no outcome"
    },
    "environments/tic_tac_toe.py": {"GAME.returns(state.board) or 0.0": "a game that is not over is not won"},
    "environments/tree_search.py": {
        "max(known.values(), default=0.0)": "without a known move there is none to choose"
    },
    "evaluation/episode_page.py": {
        "max((abs(credit) for credit in credits if credit is not None), default=0.0)": SCALE,
        "max(of_tokens, default=0.0)": SCALE,
    },
    "methods/cvt/method.py": {
        "contributions.get((row, turn), 0.0)": UNDRAWN,
        "max(audit.hacks.values(), default=0.0)": UNJUDGED,
        "audit.costs.get(name, 0.0)": UNJUDGED,
        "audit.evidence or 0.0": NO_ANSWER,
        "audit.entailment or 0.0": NO_ANSWER,
    },
    "methods/replay_plan.py": {
        "min((noise / tokens for noise, tokens in sums if tokens), default=0.0)": "0 is no plan: no branches",
    },
    "oracles/evidence_audit.py": {
        "max((share for document, share in enumerate(genuine_shares(state), start=1) if state.reads[document - 1] == "
        "game.ON and number == (document if verb == 'final' else state.values[document - 1])), default=0.0)": (
            "without a document there is no evidence"
        ),
    },
    "oracles/hack_detector.py": {
        "audit.entailment or 0.0": NO_ANSWER,
        "audit.hacks.get(name, 0.0)": UNJUDGED,
        "scores.get(name, 0.0)": UNJUDGED,
    },
    "rollouts/rows.py": {"advantage or 0.0": "the mask leaves out the tokens of a decision without credit"},
    "trainers/config.py": {"args.min_p or 0.0": "a setting that is off"},
    "trainers/metrics.py": {
        "((low * mask).sum(-1).double() / tokens).nan_to_num(torch.inf)": "a row without tokens is in no minimum",
        "((high * mask).sum(-1).double() / tokens).nan_to_num(-torch.inf)": "a row without tokens is in no maximum",
    },
    "trainers/role_requests.py": {"vllm.min_p or 0.0": "a setting that is off"},
    "trainers/warm_up.py": {"args.router_aux_loss_coef or 0.0": "a setting that is off"},
}


def is_zero(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is float and node.value == 0.0


def is_default_of_zero(node: ast.AST) -> bool:
    """Whether an expression puts 0.0 in place of what is missing or not a number."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        last = node.values[-1]
        listed = isinstance(last, ast.List | ast.Tuple) and len(last.elts) > 0
        numbers = [one for one in getattr(last, "elts", ()) if isinstance(one, ast.Constant) and one.value == 0]
        return is_zero(last) or (listed and len(numbers) == len(last.elts))  # type: ignore[attr-defined]
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in ("nan_to_num", "nan_to_num_", "nanmean", "nansum"):
        return True
    defaults = {"get": 1, "setdefault": 1, "pop": 1, "next": 1, "getattr": 2}
    if name in defaults and len(node.args) > defaults[name]:
        return is_zero(node.args[defaults[name]])
    return name in ("max", "min", "get") and any(one.arg == "default" and is_zero(one.value) for one in node.keywords)


def defaults_of_zero(tree: ast.AST) -> Iterator[str]:
    """The expressions that put 0.0 in place of something, outside sums by key: `d[k] = d.get(k, 0.0) + x`."""
    added = {
        f"{ast.unparse(node.targets[0].value)}.get({ast.unparse(node.targets[0].slice)}, 0.0)"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    }
    found = (ast.unparse(node) for node in ast.walk(tree) if is_default_of_zero(node))
    return (one for one in found if one not in added)


def test_no_default_of_zero_stands_for_a_value_that_is_unknown() -> None:
    places = {path: root for root in SOURCES for path in sorted(root.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for path, root in places.items():
        if some := set(defaults_of_zero(ast.parse(path.read_text(encoding="utf-8")))):
            found[path.relative_to(root).as_posix().removeprefix("hf_credit/")] = some
    assert found == {place: set(reasons) for place, reasons in EXCEPTIONS.items()}


def test_the_law_sees_every_form() -> None:
    for form in (
        "x or 0.0", "fmean(x or [0.0])", "fmean(x or (0, 0))", "d.get(k, 0.0)", "d.pop(k, 0.0)", "next(i, 0.0)",
        "getattr(o, 'a', 0.0)", "max(x, default=0.0)", "t.nan_to_num()", "torch.nan_to_num(t, 0.0)", "np.nanmean(x)",
    ):  # fmt: skip
        assert list(defaults_of_zero(ast.parse(form))), form
    for form in ("x or 0", "d.get(k, 0)", "x or []", "d[k] = d.get(k, 0.0) + x", "max(x, default=0)", "x or 0.5"):
        assert not list(defaults_of_zero(ast.parse(form))), form
