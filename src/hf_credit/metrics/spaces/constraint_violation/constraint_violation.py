"""Constraint violation as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, constraint_violation


class ConstraintViolation(Measure, inputs={"predictions": "float64"}):
    def _compute(self, predictions, limit=0.0):
        return vars(constraint_violation(predictions, limit))
