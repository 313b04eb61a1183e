"""What was measured, against its bar: a table for people, and with ``JSON=1`` a line per case for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Dict, List, Sequence, Tuple


@dataclasses.dataclass(frozen=True)
class Line:
    """One case: our figure beside the best peer's of the same run."""

    case: str
    ours: int
    peer: int
    peer_name: str
    unit: str
    # The median of the rounds' ratios, which is not always the ratio of the medians.
    ratio: float
    bar: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar

    def json(self) -> str:
        fields = ("case", "ours", "peer", "peer_name", "unit", "ratio")
        return json.dumps({name: getattr(self, name) for name in fields}, separators=(",", ":"))

    def row(self) -> Tuple[str, ...]:
        bar = f"ratio {'<=' if self.at_most else '>='} {self.bar:.3f}"
        figures = (f"{self.ours:,}", f"{self.peer:,}", f"{self.ratio:.3f}")
        return (self.case, *figures, self.unit, bar, "holds" if self.holds else "FAILS", self.peer_name)


class Report:
    """The cases of one run."""

    def __init__(self) -> None:
        self.lines: List[Line] = []
        # What stands beside a case without a bar, for people alone.
        self.shown: List[Tuple[str, str, int, str]] = []

    def add(self, line: Line) -> None:
        """Adds a case, and prints its line at once where lines are asked for."""
        if _json():
            print(line.json(), flush=True)
        self.lines.append(line)

    def show(self, case: str, figures: Dict[str, int], unit: str) -> None:
        """Adds figures that no bar is set for."""
        self.shown += [(case, name, figure, unit) for name, figure in figures.items()]

    def finish(self) -> int:
        """Prints the tables, beside the lines on standard error. The exit status: 1 unless every bar holds."""
        out = sys.stderr if _json() else sys.stdout
        shown = [(case, name, f"{figure:,}", unit) for case, name, figure, unit in self.shown]
        print(_table(("case", "who", "figure", "unit"), shown, right=(2,)), file=out)
        heads = ("case", "ours", "peer", "ratio", "unit", "bar", "", "best peer")
        print(_table(heads, [line.row() for line in self.lines], right=(1, 2, 3)), file=out)
        return 0 if all(line.holds for line in self.lines) else 1


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows)]

    def text(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([text(heads), text(["-" * width for width in widths]), *map(text, rows), ""])


def _json() -> bool:
    return os.environ.get("JSON") == "1"
