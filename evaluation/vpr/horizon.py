r"""How the expected gradient of VPR and of OR grows with the horizon (paper VPR, Proposition 3), simulated.

    python evaluation/vpr/horizon.py

In the paper's regime (Appendix E, step 2) each of H steps is a Bernoulli action a_t with success probability p under
one shared logit, so the score is psi_t = a_t - p; the verifier accepts a_t = 1, and the trajectory succeeds if every
step does. The two estimators of a trajectory are

    g_VPR = sum_t psi_t a_t,        g_OR = (R - p^H) sum_t psi_t,   R = prod_t a_t
    E g_VPR = H p (1 - p)  (eq. 24),     E g_OR = H (1 - p) p^H  (eq. 26),   so VPR / OR = p^(1 - H)

Next to them, the same with the advantages that training uses, which are divided by their standard deviation over a
batch (eq. 4). For OR this scales the signal up to about H (1 - p) p^(H/2), as long as most batches hold a success at
all; a batch without one teaches nothing, and beyond that the signal falls as p^H again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_credit.credit import trajectory_advantages, turn_group_advantages

HORIZONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
ACCURACY = 0.8
TRAJECTORIES = 128
BATCHES = 4000

METHODS = ("VPR", "OR")


def closed_form(method: str, horizon: int, accuracy: float) -> float:
    """The expected gradient of one trajectory (paper VPR, eq. 24 and 26).

    Args:
        method: `"VPR"` or `"OR"`.
        horizon: the number of steps H, at least 1.
        accuracy: the probability p that a step is right, in (0, 1).
    """
    return horizon * (1 - accuracy) * (accuracy if method == "VPR" else accuracy**horizon)


def closed_form_noise(method: str, horizon: int, accuracy: float) -> float:
    r"""The standard deviation of the gradient of one trajectory.

    VPR sums H independent terms of variance p (1 - p)^3. For OR, with b = p^H and S = H (1 - p) the score of a
    trajectory that succeeds, E g^2 = (1 - b)^2 b S^2 + b^2 (H p (1 - p) - b S^2).
    """
    p, h = accuracy, horizon
    if method == "VPR":
        return math.sqrt(h * p * (1 - p) ** 3)
    b, s = p**h, h * (1 - p)
    second = (1 - b) ** 2 * b * s**2 + b**2 * (h * p * (1 - p) - b * s**2)
    return math.sqrt(second - closed_form("OR", h, p) ** 2)


def simulate(
    horizon: int, accuracy: float, batches: int = BATCHES, trajectories: int = TRAJECTORIES, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Draws trajectories and takes the mean of each estimator.

    Args:
        horizon, accuracy: as in `closed_form`.
        batches: how many batches to draw.
        trajectories: of a batch; the advantages of training are normalised over it.
        seed: of the drawing.

    Returns:
        For each method the mean gradient of one trajectory (`mean`), its standard error (`error`), the standard
        deviation over trajectories (`noise`), and the mean and its standard error under normalised advantages.
    """
    draws = np.random.default_rng(seed)
    raw: dict[str, list[float]] = {method: [] for method in METHODS}
    squares: dict[str, list[float]] = {method: [] for method in METHODS}
    normalised: dict[str, list[float]] = {method: [] for method in METHODS}
    active = torch.ones(trajectories, horizon, dtype=torch.bool)
    for _ in range(batches):
        actions = (draws.random((trajectories, horizon)) < accuracy).astype(np.float64)
        score = actions - accuracy
        success = actions.prod(axis=1)
        gradients = {
            "VPR": (score * actions).sum(axis=1),
            "OR": (success - accuracy**horizon) * score.sum(axis=1),
        }
        advantages = {
            "VPR": turn_group_advantages(torch.from_numpy(actions), active).numpy(),
            "OR": trajectory_advantages(torch.from_numpy(success), active[:, 0]).numpy()[:, None],
        }
        for method in METHODS:
            raw[method].append(float(gradients[method].mean()))
            squares[method].append(float((gradients[method] ** 2).mean()))
            normalised[method].append(float((score * advantages[method]).sum(axis=1).mean()))
    return {
        method: {
            "mean": float(np.mean(raw[method])),
            "error": _error(raw[method]),
            "noise": math.sqrt(max(np.mean(squares[method]) - np.mean(raw[method]) ** 2, 0)),
            "normalised": float(np.mean(normalised[method])),
            "normalised_error": _error(normalised[method]),
        }
        for method in METHODS
    }


def write(folder: Path, horizons: Sequence[int] = HORIZONS, batches: int = BATCHES) -> None:
    """Writes `horizon.json`, `horizon.md` and `horizon.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "horizon": horizon,
            **{
                method: {
                    "closed_form": closed_form(method, horizon, ACCURACY),
                    "closed_form_noise": closed_form_noise(method, horizon, ACCURACY),
                    **simulated[method],
                }
                for method in METHODS
            },
        }
        for horizon in horizons
        for simulated in [simulate(horizon, ACCURACY, batches, seed=horizon)]
    ]
    setting = {"accuracy": ACCURACY, "batches": batches, "trajectories": TRAJECTORIES}
    text = json.dumps({**setting, "rows": rows}, indent=1)
    (folder / "horizon.json").write_text(text + "\n", encoding="utf-8")
    (folder / "horizon.md").write_text(_markdown(rows, batches), encoding="utf-8")
    _plot(rows, folder / "horizon.png")


def _markdown(rows: Sequence[dict[str, Any]], batches: int) -> str:
    lines = [
        "# Signal against horizon (Proposition 3)",
        "",
        f"Written by `evaluation/vpr/horizon.py`: p = {ACCURACY}, {batches * TRAJECTORIES:,} trajectories a row, in "
        f"batches of {TRAJECTORIES}. Expected gradient of a trajectory, simulated (with its standard error) and by "
        "eq. 24 and 26; the mean over the standard deviation of one trajectory; and the expected gradient with "
        "advantages normalised over the batch, as in training.",
        "",
        "| H | VPR | eq. 24 | OR | eq. 26 | VPR / OR by eq. 9 | VPR mean / std | OR mean / std "
        "| VPR normalised | OR normalised |",
        "|" + " --- |" * 10,
    ]
    for row in rows:
        vpr, outcome = row["VPR"], row["OR"]
        cells = [
            str(row["horizon"]),
            f"{vpr['mean']:.4f} ± {vpr['error']:.4f}",
            f"{vpr['closed_form']:.4f}",
            f"{outcome['mean']:.5f} ± {outcome['error']:.5f}",
            f"{outcome['closed_form']:.5f}",
            f"{vpr['closed_form'] / outcome['closed_form']:.1f}",
            *(f"{method['mean'] / method['noise']:.3f}" for method in (vpr, outcome)),
            *(f"{method['normalised']:.3f} ± {method['normalised_error']:.3f}" for method in (vpr, outcome)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), dpi=120, layout="constrained")
    signal, ratio, normalised = figure.subplots(1, 3)
    horizons = [row["horizon"] for row in rows]
    fine = np.arange(1, max(horizons) + 1)
    for method, colour in zip(METHODS, ("#0072b2", "#d55e00"), strict=True):
        points = [row[method] for row in rows]
        exact = np.array([closed_form(method, h, ACCURACY) for h in fine])
        noise = np.array([closed_form_noise(method, h, ACCURACY) for h in fine])
        style = {"color": colour, "marker": "o", "linestyle": "none", "label": f"{method}, simulated"}
        signal.errorbar(horizons, [q["mean"] for q in points], [2 * q["error"] for q in points], **style)
        signal.plot(fine, exact, color=colour, label=f"{method}, eq. {24 if method == 'VPR' else 26}")
        ratio.plot(horizons, [q["mean"] / q["noise"] for q in points], **style)
        ratio.plot(fine, exact / noise, color=colour, label=f"{method}, exact")
        values, errors = [q["normalised"] for q in points], [2 * q["normalised_error"] for q in points]
        normalised.errorbar(horizons, values, errors, **{**style, "linestyle": "-"})
    titles = ("expected gradient of a trajectory", "its mean / its standard deviation", "with normalised advantages")
    for axis, title in zip((signal, ratio, normalised), titles, strict=True):
        axis.set_yscale("log")
        axis.set_xlabel("horizon H")
        axis.set_title(title)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    figure.savefig(path)


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def main(arguments: Sequence[str] | None = None) -> None:
    results = Path(__file__).resolve().parent / "results"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=results, help="table and plot go there")
    write(parser.parse_args(arguments).results)


if __name__ == "__main__":
    main()
