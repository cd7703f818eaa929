"""The metrics of logs and evaluations that reports, figures, cards and the console know by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hf_credit.rollouts.episode import Ending


@dataclass(frozen=True)
class Metric:
    """What is said of a metric, wherever it is shown.

    Attributes:
        label: in tables and on axes.
        meaning: the beginning of its entry in the documents' list of metrics.
        share: whether it is in [0, 1], and shown in percent.
        panel: whether a figure of training has a panel of it.
        equals: a metric that it equals if every outcome, or every verdict, is 0 or 1; figures then show only that.
        headline: whether the console and the card of a policy show it.
    """

    label: str
    meaning: str
    share: bool = False
    panel: bool = False
    equals: str = ""
    headline: bool = False


_OWN = "means of the environment's own metrics, over episodes that have them"
_OUTCOME = "mean outcome of an episode, over those that have one"
_JUDGED = "over all decisions that have one, before any normalisation"
_ZERO = "credited decisions whose advantage is exactly 0"
_EVALUATED = "in results of `hf-credit evaluate`: decisions, and tokens that the policy generated"

METRICS = {
    "loss": Metric("losses", _OWN, share=True, headline=True),  # in the log of a training the loss itself
    "reward": Metric("outcome", _OUTCOME, panel=True, equals="success", headline=True),
    "success": Metric("success rate", _OWN, share=True, panel=True, headline=True),
    "completion": Metric("completion rate", _OWN, share=True, panel=True, headline=True),
    "return_first": Metric("return, moving first", _OWN),
    "return_second": Metric("return, moving second", _OWN),
    "return": Metric("return", _OWN),
    "draw": Metric("draws", _OWN, share=True),
    "process_reward/mean": Metric("process reward of a turn", _JUDGED, panel=True, equals="oracle/valid"),
    "oracle/valid": Metric("oracle-valid actions", "accepted by the oracle", share=True, panel=True, headline=True),
    **{
        f"endings/{one}": replace(
            Metric(f"ended: {one.replace('_', ' ')}", "how episodes ended; they sum to 1", share=True),
            panel=one is Ending.INVALID_ACTION,
            headline=one is Ending.ERROR,
        )
        for one in Ending
    },
    "turns": Metric("turns per episode", _EVALUATED),
    "turns/mean": Metric("turns per episode", "mean number of decisions of trained roles", panel=True),
    "tokens": Metric("tokens per episode", _EVALUATED),
    "advantages/zero": Metric("advantages of 0", _ZERO, share=True, headline=True),
    "entropy": Metric("entropy of the policy (nats per token)", "of the policy", panel=True),
    "grad_norm": Metric("norm of the gradient", "of the gradient, before it is clipped", panel=True),
}
"""The metrics by name, in the order in which they are shown."""


def label(name: str) -> str:
    """Returns the label of a metric; its name if it has none."""
    return METRICS[name].label if name in METRICS else name


def is_share(name: str) -> bool:
    """Returns whether a metric is known to be in [0, 1]."""
    return name in METRICS and METRICS[name].share
