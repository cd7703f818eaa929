"""The former module of critic inputs, now `hf_credit.critics.inputs`."""

from hf_credit.deprecated import renamed

_MOVED = ("Places", "context_inputs", "joint_histories", "policy_inputs")

__getattr__ = renamed(
    __name__,
    {"context_readings": "context_inputs", "own_readings": "policy_inputs"},
    moved=dict.fromkeys(_MOVED, "hf_credit.critics.inputs"),
)
