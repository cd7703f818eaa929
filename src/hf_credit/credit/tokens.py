"""From the advantages of decisions to those of tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hf_credit.credit.inputs import require


def token_advantages(
    advantages: Float[Tensor, "batch decisions"], decision_of_token: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens"]:
    """The advantage of each token: that of its decision.

        A[b, t] = A[b, k(b, t)],    0 where k(b, t) = -1

    A loss over tokens, such as that of TRL's GRPOTrainer, multiplies its ratios by it: all tokens of a decision have
    the decision's credit (paper C3, section 3.3; paper VPR, eq. 5).

    Args:
        advantages: of each decision of each row of the batch.
        decision_of_token: for each token, the index of its decision in [0, decisions); -1 for a token that the policy
            did not generate, such as padding and observations.

    Returns:
        In the unit and dtype of `advantages`.

    Raises:
        ValueError: the numbers of rows differ, or an index is out of range.
    """
    if advantages.ndim != 2 or decision_of_token.ndim != 2 or len(advantages) != len(decision_of_token):
        raise ValueError(
            "advantages (batch, decisions) and decision_of_token (batch, tokens) must have the same rows, got "
            f"{tuple(advantages.shape)} and {tuple(decision_of_token.shape)}; index the decisions of each row."
        )
    decisions = advantages.shape[1]
    rule = f"a token's decision must be an index below {decisions}, or -1 for none"
    known = (decision_of_token >= -1) & (decision_of_token < decisions)
    require(known, decision_of_token, rule, "number the decisions of each row from 0")
    # One more column, of zeros, for tokens without a decision.
    padded = torch.cat([advantages, advantages.new_zeros(len(advantages), 1)], dim=1)
    index = torch.where(decision_of_token < 0, decisions, decision_of_token)
    return padded.gather(1, index)
