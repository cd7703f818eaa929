"""Running mean and variance of named streams of numbers, over updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple


class Moment(NamedTuple):
    """The running moments of one stream.

    Attributes:
        mean: moving average of the batch means.
        variance: moving average of the batch variances.
        seen: total number of values.
    """

    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def deviation(self, unit_below: float) -> float:
        """The square root of the variance; 1 if the variance is at most `unit_below`."""
        return 1.0 if self.variance <= unit_below else self.variance**0.5


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Exponential moving averages of batch moments (paper CCPO, eqs. 2 and 3), as an immutable value.

        mu[t]      = decay * mu[t-1]      + (1 - decay) * mean of the batch
        sigma2[t]  = decay * sigma2[t-1]  + (1 - decay) * variance of the batch

    As in the public code, the variance is that of the batch around its own mean (divided by n): it does not include
    the variance of batch means. The first batch of a stream sets its moments.

    Attributes:
        names, means, variances, seen: of each stream, in the order of their first batches.
    """

    names: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    seen: tuple[int, ...] = ()

    def of(self, name: str) -> Moment:
        """The moments of a stream; those of an empty stream if the name is unknown."""
        return self._by_name().get(name, Moment())

    def updated(self, batch: Mapping[str, Sequence[float]], decay: float) -> Moments:
        """The moments after one more batch.

        Args:
            batch: the values of each stream, from all processes; a stream without values does not change.
            decay: lambda, in [0, 1).
        """
        moments = self._by_name()
        for name, values in batch.items():
            if not values:
                continue
            old = moments.get(name, Moment())
            mean = sum(values) / len(values)
            variance = fmean((value - mean) ** 2 for value in values)
            kept = decay if old.seen else 0.0
            moments[name] = Moment(
                mean=kept * old.mean + (1 - kept) * mean,
                variance=kept * old.variance + (1 - kept) * variance,
                seen=old.seen + len(values),
            )
        means, variances, seen = zip(*moments.values(), strict=True) if moments else ((), (), ())
        return Moments(names=tuple(moments), means=means, variances=variances, seen=seen)

    def _by_name(self) -> dict[str, Moment]:
        columns = zip(self.means, self.variances, self.seen, strict=True)
        return dict(zip(self.names, map(Moment._make, columns), strict=True))
