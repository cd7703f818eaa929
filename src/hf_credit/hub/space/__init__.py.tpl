"""The environment $name of hf-credit as an OpenEnv environment."""

from .client import ${prefix}Env
from .models import ${prefix}Action, ${prefix}Observation, ${prefix}State

__all__ = [
    "${prefix}Action",
    "${prefix}Env",
    "${prefix}Observation",
    "${prefix}State",
]
