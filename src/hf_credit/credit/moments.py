"""Mean and variance of named streams of numbers, remembered from update to update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Moment(NamedTuple):
    """What is remembered of one stream.

    Attributes:
        mean: moving average of the batches' means.
        variance: moving average of the batches' variances.
        seen: how many numbers there have been.
    """

    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def deviation(self, unit_below: float) -> float:
        """The square root of the variance; 1 where the variance is at most `unit_below`."""
        return 1.0 if self.variance <= unit_below else self.variance**0.5


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Exponential moving averages of batch moments (paper CCPO, eqs. 2 and 3), as a value.

        mu[t]      = decay * mu[t-1]      + (1 - decay) * mean of the batch
        sigma2[t]  = decay * sigma2[t-1]  + (1 - decay) * variance of the batch

    The variance is the batch's own (divided by n), around its own mean, as in the public code: how far the means of
    batches lie apart is not in it. The first batch of a stream is taken as it is.

    Attributes:
        names, means, variances, seen: of each stream, in the order of their first batches.
    """

    names: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    seen: tuple[int, ...] = field(default=())

    def of(self, name: str) -> Moment:
        """What is remembered of a stream; nothing seen where it is unknown."""
        if name not in self.names:
            return Moment()
        place = self.names.index(name)
        return Moment(self.means[place], self.variances[place], self.seen[place])

    def updated(self, batch: Mapping[str, Sequence[float]], decay: float) -> Moments:
        """The moments after one more batch.

        Args:
            batch: the numbers of each stream, of all processes; a stream without any stays as it is.
            decay: lambda, in [0, 1).
        """
        known = {name: self.of(name) for name in self.names}
        for name, values in batch.items():
            if not values:
                continue
            old = known.get(name, Moment())
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / len(values)
            kept = decay if old.seen else 0.0
            known[name] = Moment(
                mean=kept * old.mean + (1 - kept) * mean,
                variance=kept * old.variance + (1 - kept) * variance,
                seen=old.seen + len(values),
            )
        return Moments(
            names=tuple(known),
            means=tuple(one.mean for one in known.values()),
            variances=tuple(one.variance for one in known.values()),
            seen=tuple(one.seen for one in known.values()),
        )
