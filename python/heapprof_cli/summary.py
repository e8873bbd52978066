"""The summary at the end of a run: which tests need the most memory, and for what."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import sizes

Data = Dict[str, Any]


def lines(recorded: Dict[str, Data], most: int, is_sampled: bool) -> List[str]:
    """Makes the lines. `most` tests are shown, and all of them if it is 0."""
    tests = [(test, data) for test, data in recorded.items() if "peak" in data]
    tests.sort(key=lambda one: (-one[1]["peak"], one[0]))
    shown = tests[:most] if most else tests
    made = []
    if len(shown) < len(tests):
        made.append(f"{len(shown)} of {len(tests)} tests, by peak; --most-allocations=0 shows all")
    table = [("peak", "in use at the end", "allocations", "test")]
    for test, data in shown:
        table.append(_row(data, test))
        table += [(sizes.show(size), "", "", f"  {place}") for place, size in data["places"]]
    if shown:
        made += _aligned(table)
    if is_sampled and shown:
        made.append("The values are estimates from a sample.")
    for test, data in recorded.items():
        made += [f"{test}: {note}" for note in data["notes"]]
    return made


def _row(data: Data, test: str) -> Tuple[str, str, str, str]:
    name = f"{test} (in a child)" if data.get("of_child") else test
    return sizes.show(data["peak"]), sizes.show(data["left"]), str(data["allocations"]), name


def _aligned(table: List[Tuple[str, str, str, str]]) -> List[str]:
    widths = [max(len(row[at]) for row in table) for at in range(3)]
    return [
        "  ".join([*(row[at].rjust(widths[at]) for at in range(3)), row[3]]).rstrip()
        for row in table
    ]
