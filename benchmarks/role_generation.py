"""Generation for a team whose roles speak in one round: all in one call, or one call a role, as before.

Policies of random weights with an adapter a role on every linear layer, as many replies of each role, all of the same
length. Both ways draw the same replies, which is checked with greedy decoding. In seconds of one processor, on which a
pass is arithmetic: there a call saved is overhead saved and little else, while a GPU reads the weights once a call.
"""

from __future__ import annotations

import argparse
from functools import partial
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns
from peft import PeftModel
from role_memory import adapter

from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.policies.role_policies import MixedRoles, RoleSampler
from hf_credit.rollouts.samplers import sample

TEXT = (
    "Seconds of one processor for a round in which every agent replies, medians of rounds in turns: all agents in "
    "one call of the model, and each in a call of its own. The aim is less than 1 with few replies of each."
)


def team(agents: int, options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """One call for all, a call for each, and what to ask them: roles, contexts."""
    names = [f"agent {number}" for number in range(agents)]
    tokenizer = tokenizer_of(["".join(map(chr, range(32, 127)))])
    size = MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=4)
    torch.manual_seed(0)
    model = PeftModel(build_model(tokenizer, size), adapter(options.rank), adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, adapter(options.rank))
    model.eval()
    model.generation_config.eos_token_id = None
    limits = {"max_new_tokens": options.tokens, "temperature": 0.0}
    each = {name: RoleSampler(sampler(model, tokenizer, **limits), model, name) for name in names}
    every = MixedRoles(each, sampler(model, tokenizer, **limits), model)
    draws = torch.Generator().manual_seed(0)
    roles = names * options.replies
    contexts = torch.randint(5, len(tokenizer), (len(roles), options.context), generator=draws).tolist()
    return every, each, (roles, contexts, [None] * len(roles))


def seconds(generate: Any, asked: Any) -> float:
    """Of the processor, for one round; keys and values of the last are of no use to it."""
    begun = cpu_seconds()
    sample(generate, *asked)
    return cpu_seconds() - begun


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for agents in range(2, options.agents + 1):
        every, each, asked = team(agents, options)
        replies = [[list(one.ids) for one in sample(generate, *asked)] for generate in (every, each)]
        assert replies[0] == replies[1], "both ways must draw the same replies"
        ways = {"one call": partial(seconds, every, asked), "a call a role": partial(seconds, each, asked)}
        found = take_turns(ways, options.repeats)
        one, several = (median(found[name]) for name in ("one call", "a call a role"))
        rows.append(
            {
                "agents": agents,
                "replies": len(asked[0]),
                "one call, s": one,
                "a call a role, s": several,
                "one call to several": one / several,
            }
        )
    return rows


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(
        __doc__, replies=2, context=64, tokens=24, hidden_size=128, layers=4, rank=16, agents=3, repeats=3
    )
    report_of_one_thread(parser, arguments_given, "role_generation", compare, TEXT)


if __name__ == "__main__":
    main()
