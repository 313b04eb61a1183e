"""Rounds in which ours and the peers take turns; the round in the middle counts."""

from __future__ import annotations

import os
import statistics
from typing import Callable, Dict, List

from report import Line, Report

OURS = "tidegate"
# Odd, so that one is in the middle.
ROUNDS = int(os.environ.get("ROUNDS", "9"))


def compare(
    report: Report,
    case: str,
    bar: float,
    contestants: Dict[str, Callable[[], float]],
    *,
    shown: Dict[str, Callable[[], float]],
    rounds: int = ROUNDS,
) -> None:
    """Each contestant's function plays a round, and returns checks per second. The best of those that are not ours is
    our peer. Who is only shown is measured in the same rounds.
    """
    everyone = {**contestants, **shown}
    played = play(everyone, rounds)
    medians = {name: statistics.median(figures) for name, figures in played.items()}
    best = max((name for name in contestants if name != OURS), key=lambda name: medians[name])
    ratio = statistics.median(ours / peer for ours, peer in zip(played[OURS], played[best]))
    report.show(case, {name: round(figure) for name, figure in medians.items()}, "checks/s")
    ours, peer = round(medians[OURS]), round(medians[best])
    report.add(Line(case, ours, peer, best, "checks/s", round(ratio, 3), bar))


def play(everyone: Dict[str, Callable[[], float]], rounds: int) -> Dict[str, List[float]]:
    """The figures of each, after a round that warms up. Every other round goes the other way round."""
    for warm_up in everyone.values():
        warm_up()
    played: Dict[str, List[float]] = {name: [] for name in everyone}
    for number in range(rounds):
        for name in list(everyone)[:: 1 if number % 2 else -1]:
            played[name].append(everyone[name]())
    return played
