"""
Run the notebooks of examples/ from the first cell to the last: `make notebook`.

The run fails if a cell fails, keeps its output, or is tagged `picture` and draws none. The results,
with pictures, are in build/notebooks/ as .ipynb and as pages.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "notebooks"
MOST_S = 600
"""A cell may take this long; the slowest takes a few seconds, but a machine may be loaded."""
PLOTLY = "application/vnd.plotly.v1+json"


def main(folder: Path = ROOT / "examples", out: Path = OUT) -> int:
    """Run all notebooks of a folder; return 0 if every cell did what it should."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    out.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    for path in sorted(folder.glob("*.ipynb")):
        began = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        wrong += [
            f"{path.name}: a cell keeps its output"
            for cell in notebook.cells
            if cell.get("outputs")
        ]
        with tempfile.TemporaryDirectory() as place:
            client = NotebookClient(
                notebook,
                timeout=MOST_S,
                kernel_name="python3",
                resources={"metadata": {"path": place}},
                extra_arguments=["--log-level=ERROR"],  # else it warns of its loopback ports
            )
            try:
                client.execute()
            except CellExecutionError as exc:
                wrong.append(f"{path.name}: {exc}")
        nbformat.write(notebook, out / path.name)
        figures = pictures(notebook)
        asked = [c for c in notebook.cells if "picture" in c.metadata.get("tags", ())]
        if len(figures) != len(asked):
            wrong.append(
                f"{path.name}: {len(asked)} cells should draw, {len(figures)} pictures are there"
            )
        write_page(figures, out / f"{path.stem}.html")
        print(f"{path.name}: {len(notebook.cells)} cells, {len(figures)} pictures, "
              f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


def pictures(notebook: Any) -> list[dict[str, Any]]:
    """Return the figures that hold something, of cells that should draw one."""
    found = [
        output.data[PLOTLY]
        for cell in notebook.cells
        if "picture" in cell.metadata.get("tags", ())
        for output in cell.get("outputs", ())
        if PLOTLY in output.get("data", {})
    ]
    return [figure for figure in found if any(map(_holds, figure["data"]))]


def _holds(trace: dict[str, Any]) -> bool:
    """Say whether a trace has a point; Plotly writes numbers as text of their bytes."""
    values = trace.get("x", ())
    return bool(values["bdata"] if isinstance(values, dict) else values)


def write_page(figures: list[dict[str, Any]], path: Path) -> None:
    """Write figures as one page, for a look."""
    from plotly.io import from_json, to_html

    read = [from_json(json.dumps(figure), skip_invalid=True) for figure in figures]
    parts = [to_html(f, full_html=False, include_plotlyjs=not i) for i, f in enumerate(read)]
    path.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
