#!/usr/bin/env python3
"""Time and memory of loading, beside transformers: `python benchmarks/load.py [--runs 5] [--write]`.

Two questions, each asked of fresh processes in turn, so that a slow moment of the machine hits every side:

- How long does it take to load a file of the bert-base shape (440 MB of random weights), and how much memory, in
  comparison with reading its bytes? Measured inside the process, after the imports.
- How long is it from starting a process to the first embedding of `minilm`? Measured from outside, imports included.

Figures are medians; the file is in the operating system's cache. `--write` puts both tables between the markers of
README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
MARKERS = ("<!-- tables: written by benchmarks/load.py -->", "<!-- end of tables -->")

# Each prints seconds and peak bytes above the process with its imports done.
_MEASURE = """
import json, resource, sys, time, warnings
import torch
warnings.simplefilter("ignore")
{imports}
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = resident()
start = time.perf_counter()
kept = {load}
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, peak - before]))
"""
LOADERS = {
    "`open().read()`": ("", 'open(sys.argv[1] + "/model.safetensors", "rb").read()'),
    "plainbert": (
        "import plainbert.loading\nfrom plainbert import BertModel",
        "BertModel.from_pretrained(sys.argv[1])",
    ),
    "transformers": (
        "import transformers\nfrom transformers import BertModel\ntransformers.logging.disable_progress_bar()",
        "BertModel.from_pretrained(sys.argv[1])",
    ),
    # A mapped file is not read until its pages are touched, so the first forward pays for the rest.
    "transformers, every weight touched": (
        "import transformers\nfrom transformers import BertModel\ntransformers.logging.disable_progress_bar()",
        "(lambda model: [model, [float(p.sum()) for p in model.parameters()]])(BertModel.from_pretrained(sys.argv[1]))",
    ),
}
COLD = {
    "python -c 'import torch'": "import torch",
    "plainbert": """
        from plainbert import Embedder
        Embedder.from_pretrained(sys.argv[1]).encode("The weather is lovely today.")
    """,
    "transformers": """
        import torch
        from transformers import AutoModel, AutoTokenizer
        tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1])
        with torch.inference_mode():
            batch = tokenizer(["The weather is lovely today."], return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            torch.nn.functional.normalize(hidden.mean(1))
    """,
    "sentence-transformers": """
        from sentence_transformers import SentenceTransformer
        SentenceTransformer(sys.argv[1], device="cpu").encode(["The weather is lovely today."])
    """,
}


def run(script: str, folder: str) -> tuple[float, str]:
    """Run a script in a fresh process; return its wall time in seconds and what it printed."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"a measured process failed:\n{done.stderr}")
    return wall, done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def loading_table(runs: int) -> list[str]:
    """Load a file of the bert-base shape on each side, in turn."""
    from plainbert import BertConfig, BertModel

    times: dict[str, list[float]] = {name: [] for name in LOADERS}
    peaks: dict[str, list[float]] = {name: [] for name in LOADERS}
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig()).save_pretrained(folder)
        size = (Path(folder) / "model.safetensors").stat().st_size
        for _ in range(runs + 1):
            for name, (imports, load) in LOADERS.items():
                _, printed = run(_MEASURE.format(imports=imports, load=load), folder)
                seconds, peak = json.loads(printed)
                times[name].append(seconds)
                peaks[name].append(peak / size)
    base = statistics.median(times["`open().read()`"][1:])  # the first round warms the cache
    lines = [f"| loading {size / 1e6:.0f} MB | time, `open().read()` = 1 | peak memory, file = 1 |", "|---|---|---|"]
    for name in LOADERS:
        ratio, memory = statistics.median(times[name][1:]) / base, statistics.median(peaks[name][1:])
        lines.append(f"| {name} | {ratio:.2f} | {memory:.2f} |")
    return lines


def cold_table(runs: int) -> list[str]:
    """Start a process and embed one sentence on each side, in turn."""
    from plainbert.checkpoints.hub import find

    folder = str(find("minilm").require("config.json").parent)
    sides = {name: textwrap.dedent(f"import sys\n{textwrap.dedent(script)}") for name, script in COLD.items()}
    if installed("sentence-transformers") is None:
        del sides["sentence-transformers"]
    walls: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs + 1):
        for name, script in sides.items():
            walls[name].append(run(script, folder)[0])
    base = statistics.median(walls["plainbert"][1:])
    lines = ["| from a cold process to the first embedding | time, plainbert = 1 |", "|---|---|"]
    lines += [f"| {name} | {statistics.median(walls[name][1:]) / base:.2f} |" for name in sides]
    return lines


def installed(distribution: str) -> str | None:
    """Return the version of a distribution, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def main() -> int:
    """Print the tables, or write them into the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="processes a side, after one that is not counted")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    arguments = parser.parse_args()
    from plainbert import __version__

    found = {"plainbert": __version__}
    found.update({name: installed(name) or "absent" for name in ("torch", "transformers", "sentence-transformers")})
    where = f"{platform.machine()}, {cores()} cores, Python {platform.python_version()}, "
    where += ", ".join(f"{name} {number}" for name, number in found.items() if number != "absent")
    parts = [loading_table(arguments.runs), cold_table(arguments.runs), [f"Medians of {arguments.runs}; {where}."]]
    text = "\n\n".join("\n".join(lines) for lines in parts) + "\n"
    if arguments.write:
        page = README.read_text(encoding="utf-8")
        before, after = page.split(MARKERS[0])[0], page.split(MARKERS[1])[1]
        README.write_text(f"{before}{MARKERS[0]}\n\n{text}\n{MARKERS[1]}{after}", encoding="utf-8")
    else:
        print(text)
    return 0


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    raise SystemExit(main())
