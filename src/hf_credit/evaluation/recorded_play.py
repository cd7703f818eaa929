"""Recorded episodes as demonstrations: those of a run, played again, and logs of chat completions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from hf_credit.evaluation.credited import CreditedEpisode
from hf_credit.evaluation.traces import RecordedTraces, read_lines, trace_of
from hf_credit.policies.scripted import Demonstration, Step, recorded, walk_again
from hf_credit.rollouts import Chat, EnvironmentInteraction, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import ContextStyle, Replayable, require_replayable
from hf_credit.rollouts.failures import in_one_line
from hf_credit.rollouts.interaction import said_in
from hf_credit.trust import NO_CONSENT, Consent


def recorded_demonstrations(
    source: str | Path, chat: Chat, interaction: Interaction[Any] | None = None, consent: Consent = NO_CONSENT
) -> tuple[list[Demonstration], list[tuple[int, str]]]:
    """Reads recorded episodes, rendered for a policy, whichever policy played them.

    A line of `episodes.jsonl` in the folder of a run is played again from its first state with its replies, so its
    outcome is that of the task and not of the file; where its actions act outside of this process, as the tools of an
    agent do, only by `consent`. Any other line is a trace as in `hf_credit.evaluation.traces.credit_traces`, which may
    lack an outcome. Its calls are written as the template writes them; the tools are those of an environment that has
    some, and else those of the trace.

    Args:
        source: a file of JSON lines, which may be untrusted.
        interaction: the task; without it, only traces can be read.
        consent: to `actions`.

    Returns:
        The demonstrations, and the number of each line that cannot be used, with why.

    Raises:
        ValueError: no line can be used.
        OSError: the file cannot be read.
    """
    return read_lines(source, partial(_demonstration, chat, interaction, consent, Path(source).parent))


def _demonstration(
    chat: Chat, interaction: Interaction[Any] | None, consent: Consent, folder: Path, row: Any, number: int
) -> Demonstration:
    if not isinstance(row, Mapping) or "decisions" not in row:
        return _of_trace(chat, interaction, row, number)
    episode = CreditedEpisode.from_json(json.dumps(row), folder)
    if interaction is None:
        raise ValueError("an episode of a run is played again, got it without a task; name the task.")
    if Replayable(interaction).acts and not consent.actions:
        raise ValueError(
            f"recorded actions must not act outside of this process without your consent, got some for "
            f"{interaction.name!r}; read them, then set --replay-actions, or begin in a training's own successes."
        )
    if not episode.whole:
        raise ValueError(
            "an episode of a run must have its first state and whole replies, got it without; record it with this "
            "version, and shorter replies."
        )
    require_replayable(interaction, "a recorded episode")
    state = Replayable(interaction).state_from_json(episode.state)
    try:
        task = Replayable(interaction).state_to_json(state)
        walked = walk_again(interaction, [one.reply for one in episode.decisions], RolloutRequest(state=state))
        played = recorded(interaction, chat, walked)
        if (told := episode.outcome) is not None and not math.isclose(
            played.outcome, told, rel_tol=1e-5, abs_tol=1e-9
        ):
            raise ValueError(f"its outcome is {played.outcome:g}, and was {told:g}")
    except Exception as error:  # of the task's code too, as states and replies may be untrusted
        raise ValueError(
            f"an episode must play again as it was recorded, got {in_one_line(error)}; name the task and the options "
            "that it was recorded with, or leave it out."
        ) from None
    return Demonstration(task=task, episode=played, begun=int(episode.begun))


def _of_trace(chat: Chat, interaction: Interaction[Any] | None, row: Any, number: int) -> Demonstration:
    trace = trace_of(row, number, scored=False)
    tools = interaction.environment.tools if isinstance(interaction, EnvironmentInteraction) else ()
    shown = ContextStyle(RecordedTraces() if interaction is None else interaction)
    steps: list[Step] = []
    for decision in trace.episode.decisions:
        if not decision.action_text:
            raise ValueError("a reply to learn must not be empty, got an empty message of an assistant; remove it.")
        (request,) = RecordedTraces().pending(decision.state)
        messages, rendered = shown.context_of(request.messages), shown.history == "rendered"
        request = replace(request, messages=messages, tools=tools or request.tools, rendered=rendered)
        if any("parameters" not in tool.get("function", {}) for tool in request.tools):
            raise ValueError(
                "a trace with calls must say which tools were offered, got none; add tools, or name a task with tools."
            )
        if bad := said_in(decision.action_text, request.tools).bad_calls:
            raise ValueError(f"the calls of a trace must be readable, got one that is not ({bad[0].why}); correct it.")
        steps.append((decision.state, [request], [decision.action_text]))
    try:
        episode = recorded(RecordedTraces(), chat, (steps, None))
    except TemplateError as error:
        raise ValueError(f"a trace must fit the chat template, got {in_one_line(error)}; correct it.") from None
    decisions = tuple(
        replace(one, trained=known.trained)
        for one, known in zip(episode.decisions, trace.episode.decisions, strict=True)
    )
    return Demonstration(
        task=trace.group, episode=replace(episode, decisions=decisions, outcome=trace.episode.outcome)
    )
