"""A figure: measurements of two sides, and the ratio allowed between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

Unit = Literal["s", "B", "n"]


class Side(NamedTuple):
    """A measured value, and the command with which to reproduce it."""

    command: str
    value: float


@dataclass(frozen=True)
class Figure:
    """Measurements of two sides: `ours` must be at most `limit` times `theirs`."""

    name: str
    ours: Side
    theirs: Side
    limit: float
    unit: Unit = "s"
    note: str = ""

    @property
    def ratio(self) -> float:
        """The ratio of `ours` to `theirs`."""
        return self.ours.value / self.theirs.value

    @property
    def held(self) -> bool:
        """Whether the figure is within its limit."""
        return self.ratio <= self.limit


class NotMeasured(NamedTuple):
    """A figure that this machine cannot measure."""

    name: str
    why: str


Group = Callable[[], Iterator[Figure | NotMeasured]]


def alternate(
    rounds: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[float, float]:
    """Return the medians of both sides. The sides are measured alternately, so that other load on
    the machine affects both equally.
    """
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return median(one for one, _ in pairs), median(other for _, other in pairs)


def lines(figure: Figure) -> Sequence[str]:
    """Return a figure as human-readable lines of text."""
    verdict = "ok    " if figure.held else "MISSED"
    return [
        f"{verdict} {figure.name}: {_times(figure.ratio)}, at most {_times(figure.limit)}",
        f"         ours   {_quantity(figure.ours.value, figure.unit):>10}  {figure.ours.command}",
        f"         theirs {_quantity(figure.theirs.value, figure.unit):>10}  {figure.theirs.command}",
        *([f"         {figure.note}"] if figure.note else []),
    ]


def _times(ratio: float) -> str:
    return (
        f"{ratio:.2f}x" if ratio > 0.5 else f"1/{1 / ratio:.0f}"
    )  # for values below this, a fraction is easier to read


def _quantity(value: float, unit: Unit) -> str:
    if unit == "n":
        return f"{value:.0f}"
    if unit == "B":
        return f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.0f} kB"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.0f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"
