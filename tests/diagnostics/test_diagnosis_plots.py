from __future__ import annotations

from dataclasses import replace

import pytest
from small_buckets import action

from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.diagnostics.diagnosis import diagnose
from hf_credit.diagnostics.diagnosis_plots import draw


def bucket(event: str, key: int, returns, exact=False, failed=0) -> Bucket:
    return Bucket(
        event=event,
        role=event,
        key=key,
        context="",
        task=0,
        turn=0,
        candidates=tuple(
            action(str(n), own, event, responses=(str(n),) * len(own), failed=failed, exact=0.5 if exact else None)
            for n, own in enumerate(returns)
        ),
        value_only=(Action(text="v", returns=(0.5,)),),
        exact=0.25 if exact else None,
    )


@pytest.mark.parametrize(
    "buckets",
    [
        [bucket("plan", 0, ((0.0,), (1.0,))), bucket("act", 1, ((0.0,), (0.25,)))],
        [bucket("plan", 0, ((0.0,), (1.0,)), exact=True), bucket("plan", 1, ((1.0,), (1.0,)), exact=True)],
        [bucket("plan", 0, ((1.0,),))],  # one candidate
        [bucket("plan", 0, ((), ()), failed=1)],  # nothing succeeded
    ],
)
def test_any_buckets_can_be_drawn_for_one_policy_and_for_two(buckets, tmp_path) -> None:
    one, two = diagnose("one", buckets), diagnose("two", buckets)
    for found in ([one], [one, two]):
        path = draw(found, tmp_path / "plots.png")
        assert path.read_bytes()[1:4] == b"PNG"


def test_an_empty_panel_is_omitted(tmp_path, monkeypatch) -> None:
    from matplotlib.figure import Figure

    drawn = []

    def savefig(figure, path) -> None:
        drawn.append([axis.get_visible() for axis in figure.axes])
        path.touch()

    monkeypatch.setattr(Figure, "savefig", savefig)
    alone = diagnose("alone", [bucket("act", 0, ((0.0,), (1.0,)))])
    unanswered = replace(alone, events=tuple(replace(event, influence=None) for event in alone.events))
    draw([unanswered], tmp_path / "plots.png")
    assert drawn == [[True] * 4]
