"""A run whose roles speak through vLLM, each with its adapter, and what it left. Run by tests, in its own process.

    python play_roles.py POLICY OUTPUT '{"vllm_mode": "colocate", ...}'

`OUTPUT/found.json` holds for each update: the largest difference between vLLM's log-probabilities and those of each
reply's own role ("own"), for each role the largest of its replies under the other role's adapter, which adapters vLLM
was given so far ("pushed"), and a digest of each role's weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import play
from trl.generation import vllm_generation

from hf_credit.trainers.role_requests import adapter_weights

TEMPERATURE = 2.0  # the most that vLLM takes
sys.path.append(str(Path(__file__).parents[1] / "processes"))  # where `role_update` finds its settings
_SPEC = importlib.util.spec_from_file_location(
    "role_update", Path(__file__).parents[1] / "trainers" / "role_update.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
role_update = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(role_update)


def difference(trainer: Any, decisions: list[Any]) -> float:
    """The largest of any token between what vLLM reported and what the policy of the reply's role says."""
    pairs = zip(trainer.decision_logprobs(decisions), decisions, strict=True)
    return max(abs(own - said) for found, one in pairs for own, said in zip(found, one.logprobs, strict=True))


def digest(model: Any, role: str) -> str:
    """Of a role's weights."""
    weights = adapter_weights(model, role)
    return hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()


def main(policy: Path, output: Path, settings: dict[str, Any]) -> None:
    if settings["vllm_mode"] == "colocate":
        play.prepare_colocated()
    else:
        vllm_generation.VLLMClient = play.FileClient
    trainer = role_update.build(policy, output, use_vllm=True, temperature=TEMPERATURE, **settings)
    found: list[dict[str, Any]] = []
    credit = trainer.credit

    def record(collected: Any) -> Any:
        decisions = [one for episode in collected.episodes for one in episode.decisions]
        other = dict(zip(role_update.ROLES, reversed(role_update.ROLES), strict=True))
        update: dict[str, Any] = {"own": difference(trainer, decisions)}
        for role in role_update.ROLES:
            update[role] = difference(
                trainer, [replace(one, role=other[role]) for one in decisions if one.role == role]
            )
        update["pushed"] = trainer.adapters.requests.pushed
        update["weights"] = {role: digest(trainer.model, role) for role in role_update.ROLES}
        found.append(update)
        return credit(collected)

    trainer.credit = record
    trainer.train()
    drift = [one["sampler/logprob_difference_max"] for one in trainer.state.log_history if "reward" in one]
    (output / "found.json").write_text(json.dumps({"updates": found, "drift": drift}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
