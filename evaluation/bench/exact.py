"""Methods in problems so small that everything that is drawn can be gone through: bias and cost of signal, exactly.

    python evaluation/bench/exact.py

writes `exact.md` next to it.
"""

from __future__ import annotations

from pathlib import Path

from hf_credit.evaluation.markdown import table
from hf_credit_bench import enumerated, make_method
from hf_credit_bench.problem import Problem
from hf_credit_bench.problems import Chain, Drift, Hack, Late, Paid, Relay, Trap, Vote

PROBLEMS: dict[str, Problem] = {
    "chain length=2 start_right=0.3": Chain(length=2, start_right=0.3),
    "late horizon=2": Late(horizon=2),
    "paid horizon=2": Paid(horizon=2),
    "relay depth=2": Relay(depth=2),
    "trap horizon=3 needed=2": Trap(horizon=3, needed=2),
    "vote agents=2 lazy=1": Vote(agents=2, lazy=1),
    "hack parts=1": Hack(parts=1),
    "hack parts=1 detection=1.0 price=1.0": Hack(parts=1, detection=1.0, price=1.0),
    "drift length=2 lag=1 stale=1.0": Drift(length=2, lag=1, stale=1.0),
}
METHODS = [
    ("exact_advantage", {}),
    ("ppo", {"group_size": 1}),
    ("ppo", {"group_size": 1, "lam": 0.0}),
    ("mappo", {"group_size": 2}),
    ("rloo", {"group_size": 2}),
    ("all_turns_baseline", {"group_size": 2}),
    ("grpo", {"group_size": 2}),
    ("gigpo", {"group_size": 2}),
    ("maxrl", {"group_size": 2}),
    ("reinforce_plus_plus", {"group_size": 2}),
    ("vineppo", {"group_size": 1, "rollouts": 1, "whiten": False}),
    ("mc_process_reward", {"rollouts": 1}),
    ("replay_loo", {"alternatives": (2, 2), "budget": 4}),
    ("verifiable_process", {}),
]
# Both compare all trajectories of an update, so one alone has nothing to be compared with.
ROWS = {"mc_process_reward": 2, "verifiable_process": 2}
MOST = 3_000
HEADER = ["method", "angle", "scale", "credit off", "along", "trace", "tokens", "ways"]


def main() -> None:
    parts = [
        "# Bias and cost of signal, exactly\n",
        "One task row an update, two for the methods that compare across tasks; policies at the start, critics\n"
        "exact. `along` and `trace` are tokens. Written by `python evaluation/bench/exact.py`; what can fall out in\n"
        f"more than {MOST} ways is left out.\n",
    ]
    for name, problem in PROBLEMS.items():
        rows = []
        for method, options in METHODS:
            label = " ".join([method, *(f"{key}={value}" for key, value in options.items())])
            try:
                one = enumerated(make_method(method, **options), problem, instances=ROWS.get(method, 1), most=MOST)
            except ValueError as error:
                rows.append([label, str(error), *[""] * 6])
                continue
            numbers = (one.angle, one.scale, one.credit_error, one.along, one.trace, one.tokens)
            rows.append(
                [
                    label,
                    *(f"{number + 0.0:.4g}" if abs(number) > 1e-9 else "0" for number in numbers),
                    str(one.updates),
                ]
            )
        parts.append(f"\n## {name}\n\n{table(HEADER, rows)}")
        print(parts[-1], flush=True)
    Path(__file__).with_name("exact.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
