"""Logistic regression."""

from __future__ import annotations

import torch
from torch import Tensor

_MOST_STEPS = 50


def logistic_weights(design: Tensor, labels: Tensor, penalty: float) -> Tensor:
    """The weights of a logistic regression with a ridge, by Newton's method.

        argmin_w of sum of cross entropies + penalty / 2 * |w|^2

    Args:
        design: features in float64, of shape (examples, features), a column of ones for a constant among them.
        labels: in [0, 1], of shape (examples,).
        penalty: above 0, which keeps the weights finite for separable labels.
    """
    ridge = penalty * torch.eye(design.shape[1], dtype=design.dtype)
    weights = torch.zeros(design.shape[1], dtype=design.dtype)
    for _ in range(_MOST_STEPS):
        predicted = torch.sigmoid(design @ weights)
        gradient = design.T @ (predicted - labels) + penalty * weights
        curvature = design.T @ (design * (predicted * (1 - predicted))[:, None]) + ridge
        step = torch.linalg.solve(curvature, gradient)
        weights = weights - step
        if step.abs().max() < 1e-8:
            break
    return weights
