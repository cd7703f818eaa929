"""From the advantages of decisions to those of tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def token_advantages(
    advantages: Float[Tensor, "batch decisions"], decision_of_token: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens"]:
    """The advantage of each token: that of the decision that it belongs to.

        A[b, t] = A[b, k(b, t)],    0 where k(b, t) = -1

    This is what a loss over tokens, such as that of TRL's GRPOTrainer, multiplies its ratios with: all tokens of a
    decision carry its credit (paper C3, section 3.3; paper VPR, eq. 5).

    Args:
        advantages: of each decision of each row of the batch.
        decision_of_token: for each token the index of its decision in [0, decisions), or -1 for one that the policy
            did not produce, such as padding and what the world said.

    Returns:
        In the unit and dtype of `advantages`.

    Raises:
        ValueError: the rows differ in number, or there is no such decision.
    """
    if advantages.ndim != 2 or decision_of_token.ndim != 2 or len(advantages) != len(decision_of_token):
        raise ValueError(
            "advantages (batch, decisions) and decision_of_token (batch, tokens) must have the same rows, got "
            f"{tuple(advantages.shape)} and {tuple(decision_of_token.shape)}; index the decisions of each row."
        )
    decisions = advantages.shape[1]
    wrong = (decision_of_token < -1) | (decision_of_token >= decisions)
    if bool(wrong.any()):
        raise ValueError(
            f"a token's decision must be an index below {decisions}, or -1 for none, got "
            f"{decision_of_token[wrong][0].item()}; number the decisions of each row from 0."
        )
    # One more column, of zeros, for tokens without a decision.
    padded = torch.cat([advantages, advantages.new_zeros(len(advantages), 1)], dim=1)
    index = torch.where(decision_of_token < 0, decisions, decision_of_token)
    return padded.gather(1, index)
