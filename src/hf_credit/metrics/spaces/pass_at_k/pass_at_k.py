"""pass@k as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, mean_pass_at_k


class PassAtK(Measure, inputs={"predictions": ["float64"]}):
    def _compute(self, predictions, k=(1,), threshold=1.0):
        return {f"pass@{one}": mean_pass_at_k(predictions, one, threshold) for one in k}
