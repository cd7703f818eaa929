"""A collaboration from plain values, for recipes and saved folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hf_credit.collaborations.base import Collaboration
from hf_credit.collaborations.graph import Event, Loop
from hf_credit.collaborations.scorers import Scorer
from hf_credit.registry import find, refuse_options


def graph(
    roles: Mapping[str, str],
    events: Sequence[Mapping[str, Any]],
    final: str | Sequence[str],
    scorer: Scorer | str,
    loops: Sequence[Mapping[str, Any]] = (),
    sanitise: Callable[[str], str] | str | None = None,
    scored_event: str | None = None,
) -> Collaboration:
    """Returns the collaboration of these roles and events. In a recipe:

        collaboration: graph
        collaboration_options:
          roles: {writer: Write a poem., critic: Say what to fix.}
          events:
            - {name: draft, role: writer}
            - {name: advice, role: critic, after: draft}
            - {name: poem, role: writer, after: advice, sees: [draft, advice]}
          final: poem
          scorer: my_package.scoring:beauty

    Args:
        roles, final, scorer, scored_event: as for `Collaboration`.
        events: the fields of each `Event`.
        loops: the fields of each `Loop`, with `until` as a `"package.module:function"`.
        sanitise: as for `Collaboration`, or a `"package.module:function"`.

    Raises:
        ValueError: a field is unknown or missing, a function cannot be imported, or as for `Collaboration`.
    """
    return Collaboration(
        roles=roles,
        events=[_of(Event, values, "name") for values in events],
        final=final,
        scorer=scorer,
        loops=[_of(Loop, {**values, "until": _function(values.get("until"))}, "source") for values in loops],
        sanitise=_function(sanitise),
        scored_event=scored_event,
    )


def _of(kind: type, values: Mapping[str, Any], key: str) -> Any:
    refuse_options(kind.__name__, kind, values.get(key, ""), values)
    return kind(**values)


def _function(named: Any) -> Any:
    return find("function", {}, named) if isinstance(named, str) else named
