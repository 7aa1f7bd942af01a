"""Run the tour and make its page: `python -m docs.tour`.

`examples/tour.ipynb` is stored with its outputs, without what differs from run to run. `docs/tour.md` is the same as a
page, without the lines that show pictures in Jupyter; a test compares the two.
"""

from __future__ import annotations

import base64
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
from PIL import Image

ROOT: Final = Path(__file__).parents[1]
NOTEBOOK: Final = ROOT / "examples/tour.ipynb"
PAGE: Final = ROOT / "docs/tour.md"
NOTE: Final = "<!-- Made from examples/tour.ipynb by `python -m docs.tour`. Edit the notebook. -->"
COLOURS: Final = 256
"""Most colours of a stored picture: it looks the same and has a third of the bytes."""


def run(notebook: Any, folder: str, **options: Any) -> None:
    """Run a notebook in a folder, and keep its outputs in it."""
    from nbclient import NotebookClient  # noqa: PLC0415  only a run needs it

    NotebookClient(notebook, record_timing=False, resources={"metadata": {"path": folder}}, **options).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None


def shrink(notebook: Any) -> None:
    """Store each picture with few colours."""
    for output in outputs(notebook):
        if "image/png" in (data := output.get("data", {})):
            image = io.BytesIO()
            with Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) as large:
                large.convert("RGB").quantize(COLOURS).save(image, "png", optimize=True)
            data["image/png"] = base64.b64encode(image.getvalue()).decode()
            data["text/plain"] = "<picture>"


def outputs(notebook: Any) -> Iterator[Any]:
    """Yield every output of a notebook's cells."""
    for cell in notebook.cells:
        yield from cell.get("outputs", ())


def page(notebook: Any) -> dict[Path, bytes]:
    """Return the page of a notebook, and its pictures, by their paths."""
    files: dict[Path, bytes] = {}
    parts: list[str] = []
    for cell in notebook.cells:
        code = re.sub(r"^(from IPython.* )?Image\b.*\n?", "", cell.source, flags=re.MULTILINE).strip()
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{code}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                picture = PAGE.parent / f"pictures/tour-{len(files) + 1}.png"
                files[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![{output.metadata['image/png']['alt']}](pictures/{picture.name})")
            elif "text/html" in data:
                parts.append(data["text/html"].strip())
            else:
                parts.append(f"```text\n{(output.get('text') or data['text/plain']).strip()}\n```")
    title, *rest = parts
    files[PAGE] = "\n\n".join([title, NOTE, *rest]).replace("](../docs/", "](").encode() + b"\n"
    return files


if __name__ == "__main__":
    tour = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        run(tour, folder)
    shrink(tour)
    nbformat.write(tour, NOTEBOOK)
    for path, data in page(tour).items():
        path.write_bytes(data)
