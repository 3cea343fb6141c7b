"""The page of ``plainbert verify``: its rows as a table that fits a terminal, and what the columns mean."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence

from plainbert.cli.rows import Row, render_table

_NUMBERS = ("max diff", "ours-f64", "theirs-f64")
_LEGEND = "ours-f64, theirs-f64: how far each is from the same model in float64 (rounding)."
_NO_MAPS = "Under sdpa, transformers returns no attention maps."
# Columns of a terminal that the whole table needs; in a narrower one, each run has a table under a line of its own.
_WIDE = 104


def comparison_page(rows: Sequence[Row], *, terminal: bool) -> str:
    """Lay out the rows of a comparison, and the legend under them.

    Args:
        rows: one per output, as ``verify --json`` gives them.
        terminal: whether a person looks at it, in a window of some width.
    """
    legend = f"{_LEGEND}\n" + (f"{_NO_MAPS}\n" if any(row["attention"] == "sdpa" for row in rows) else "")
    shown = [_shown(row) for row in rows]
    if not terminal or shutil.get_terminal_size().columns >= _WIDE:
        return f"{_table(shown, terminal).rstrip()}\n\n{legend}"
    page = ""
    for (dtype, attention), group in itertools.groupby(shown, key=lambda row: (row["dtype"], row["attention"])):
        kept = [{key: cell for key, cell in row.items() if key not in ("dtype", "attention")} for row in group]
        page += f"{dtype} {attention}".rstrip() + f"\n{_table(kept, terminal).strip(chr(10))}\n\n"
    return page + legend


def _table(rows: Sequence[Row], terminal: bool) -> str:
    return render_table(rows, terminal=terminal, right=_NUMBERS, whole=("output",))


def _shown(row: Row) -> Row:
    """Make strings of a row."""

    def number(value: float | None) -> str:
        return "" if value is None else "0" if value == 0 else f"{value:.1e}"

    return {
        "dtype": row["dtype"],
        "attention": row["attention"] or "",
        "output": row["output"],
        "shape": "x".join(map(str, row["shape"])),
        "max diff": number(row["difference"]),
        "ours-f64": number(row["plainbert_to_float64"]),
        "theirs-f64": number(row["transformers_to_float64"]),
        "equal": "yes" if row["equal"] else "NO",
    }
