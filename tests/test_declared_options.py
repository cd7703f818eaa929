"""Every option is held to what its signature declares, by whatever takes it.

One step beyond a bound, what is none of the choices, and a value of another type are refused in one sentence that
names the option, the rule and the value. The bounds and the choices themselves are taken.
"""

from __future__ import annotations

import collections.abc
import inspect
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from hf_credit import collaborations, collectors, environments, methods, oracles
from hf_credit.boundary import Range, types_of
from hf_credit.methods.t3.rules import RULES
from hf_credit.oracles.auditing import AUDITORS, INTERVENTIONS
from hf_credit.registry import Registry, find
from hf_credit.validators import shown

ROOT = Path(__file__).parent.parent
SCORER = {"scorer": "hf_credit.collaborations.relay:relay_score"}
REGISTRIES: dict[str, Mapping[str, str]] = {
    "method": methods.METHODS,
    "collector": collectors.COLLECTORS,
    "environment": environments.ENVIRONMENTS,
    "oracle": oracles.ORACLES,
    "collaboration": collaborations.COLLABORATIONS,
    "auditor": AUDITORS,
    "intervention": INTERVENTIONS,
    "rule": RULES,
}
_ANY = Range()
MAKERS = {"method": methods.make, "collector": collectors.make, "collaboration": collaborations.make}


def dataclasses_of_options() -> Iterator[str]:
    """Yields the `module:class` of each dataclass of the source that checks its fields as options do."""
    classes = [
        (path, name, {*re.findall(r"\w+", of)})
        for path in sorted((ROOT / "src").rglob("*.py"))
        for name, of in re.findall(r"^class (\w+)\(([^)]*)\)", path.read_text("utf-8"), re.MULTILINE)
    ]
    known, before = {"Options"}, 0
    while before < len(known):
        before = len(known)
        known |= {name for _, name, of in classes if of & known}
    for path, name, of in classes:
        if of & known and re.search(rf"^@dataclass.*\nclass {name}\b", path.read_text("utf-8"), re.MULTILINE):
            yield f"{'.'.join(path.relative_to(ROOT / 'src').with_suffix('').parts)}:{name}"


NEEDED: dict[str, dict[str, Any]] = {
    "collector continuations": {"rollouts": 2},
    "collector tree": {"fanout": [2]},
    "collector visited_contexts": {"references": 1, "contexts": 1, "alternatives": 2},
    "method reinforce_plus_plus": {"group_size": 2},
    "method replay_loo": {"budget": 2, "alternatives": [2]},
    "method replay_loo contexts": {"reference_rollouts": 1},
    "method verifiable_process commit": {"state_group_size": 2},
    "collaboration agent": {"agent": "operator:neg"},
    "collaboration graph": {"roles": {"a": "?"}, "events": [{"name": "say", "role": "a"}], "final": "say", **SCORER},
    "method mt_grpo": {"turn_scores": "verdict"},
    "method turn_credit": {"turn_scores": "verdict"},
    "dataclass hf_credit.methods.t3.truncated:Truncation": {"rule": "shrink"},
    "dataclass hf_credit.policies.micro_settings:MicroConfig": {"heads": 1},
    "dataclass hf_credit.tasks.spec:TaskSpec": {"task": "sudoku"},
    "environment circuit_decoding": {"circuits": 1, "candidates": 2},
    "oracle judge": {"model": "m"},
    "oracle continuations": {"player": "a"},
    "dataclass hf_credit.policies.players:ServedPlayer": {"model": "m"},
    "oracle log_ratio": {"policy": "a", "reference": "b"},
    "oracle evidence_hacker": {"hacks": ["metadata"]},
    "rule metric": {"metric": "completion"},
    "rule similar_question": {"embedder": "operator:neg"},
    "collaboration reasoner_actor": {"domain": "math", **SCORER},
    "collaboration think_solve": SCORER,
    "collaboration voting": {**SCORER, "extract": "builtins:str"},
}
"""Options without which, or without which values, another one cannot be given."""
FACTORIES = [
    *(f"{kind} {name}" for kind, known in REGISTRIES.items() for name in known),
    *(
        f"dataclass {name}"
        for name in dataclasses_of_options()
        if all(name not in known.values() for known in REGISTRIES.values())
    ),
]


def maker(factory: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The factory, and the types of its options."""
    kind, name = factory.split(" ")
    known = REGISTRIES.get(kind, {})
    made: Any = find(kind, known, name)
    kinds = types_of(made)
    taken = inspect.signature(made).parameters
    make = MAKERS.get(kind, Registry[Any](kind, known).make)
    if inspect.isabstract(made):
        return make, {}
    return (lambda **options: make(name, **options)), {one: kinds[one] for one in taken if one in kinds}


def probes(kind: Any, bounds: Range = _ANY) -> tuple[list[Any], list[tuple[Any, Sequence[Any]]]]:
    """Values that a type takes, and others, each with what its refusal has to tell of the rule."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        return probes(inner[0], next(one for one in inner[1:] if isinstance(one, Range)))
    if origin in (Union, types.UnionType):
        parts = [probes(one) for one in inner if one is not type(None)]
        if any(not refused for _, refused in parts):
            return [], []  # one that takes any object
        none = [None] * (type(None) in inner)
        if len(parts) > 1:  # what no part takes, in the words of any
            return [one for taken, _ in parts for one in taken] + none, [(math.nan, ())]
        return parts[0][0] + none, [one for one in parts[0][1] if one[0] is not None]
    if origin is Literal:
        return [*inner], [("none of these", inner), (None, inner)]
    if origin in (tuple, list, collections.abc.Sequence) and inner and inner[1:] in ((), (...,)):
        taken, refused = probes(inner[0])
        return [[one] for one in taken], [*(([one], rule) for one, rule in refused), (3, ()), ("ab", ())]
    if origin in (dict, collections.abc.Mapping) and inner:
        return [], [
            *(({"a": one}, rule) for one, rule in probes(inner[1])[1]),
            (3, ()),
        ]  # keys have rules of their own
    others = {
        bool: ["no", 2],
        str: [1, ["a"]],
        int: ["1", True, math.nan, 1.5],
        float: ["1", True, math.nan, math.inf],
    }
    if kind not in others:
        return [], []
    taken = [True, False] if kind is bool else []
    refused = [(one, ()) for one in (*others[kind], None)]
    for end, beyond, inclusive in (
        (bounds.least, -1, True),
        (bounds.most, 1, True),
        (bounds.above, -1, False),
        (bounds.below, 1, False),
    ):
        if end is not None:
            outer, inner_one = (
                (end + way if kind is int else math.nextafter(end, way * math.inf)) for way in (beyond, -beyond)
            )
            taken.append(kind(end) if inclusive else inner_one)
            refused.append((outer if inclusive else kind(end), (end,)))
    return taken, refused


def named(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields each place of a value in an option, with what is there: `fanout` and `fanout[0]`."""
    yield place, value
    if isinstance(value, list):
        yield from named(f"{place}[0]", value[0])
    elif isinstance(value, Mapping):
        yield from named(f"{place}['a']", value["a"])


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("factory", FACTORIES)
def test_what_an_option_does_not_declare_is_refused_by_name_rule_and_value(factory: str) -> None:
    make, kinds = maker(factory)
    for name, kind in kinds.items():
        for value, rule in probes(kind)[1]:
            with pytest.raises(ValueError, match="must") as refusal:
                make(**{**NEEDED.get(factory, {}), name: value})
            said = str(refusal.value)
            assert any(
                re.match(rf"(the )?{re.escape(place)}( of a [\w ]+)? (must|\*\* )", said)
                and f"got {shown(wrong)}" in said
                for place, wrong in named(name, value)
            ), said
            assert all(str(one) in said for one in rule), said
            assert "\n" not in said
            assert said[-1] in ".?"


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("factory", FACTORIES)
def test_bounds_and_choices_are_taken(factory: str) -> None:
    make, kinds = maker(factory)
    for name, kind in kinds.items():
        needed = {**NEEDED.get(factory, {}), **NEEDED.get(f"{factory} {name}", {})}
        for value in probes(kind)[0]:
            if value is not None or name not in needed:
                make(**{**needed, name: value})
