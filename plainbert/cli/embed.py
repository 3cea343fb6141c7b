"""``plainbert embed``: texts to vectors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plainbert.cli import common
from plainbert.cli.common import Failures
from plainbert.cli.lines import Line, read_lines
from plainbert.cli.rows import Row, choose_format, open_output, write_rows, write_table

if TYPE_CHECKING:
    import numpy as np

FORMATS = ("jsonl", "json", "csv", "npy", "text")


@click.command(
    "embed",
    epilog="""\b
Examples:
  plainbert embed minilm --text "The weather is lovely today." --text "今天天气真好。"
  plainbert embed sentence-transformers/all-MiniLM-L6-v2 texts.txt --output vectors.npy
""",
)
@common.model_argument
@common.text_options
@common.output_options(*FORMATS)
@click.option("--prompt", help="Put this before every text.")
@click.option("--prompt-name", help="Use the prompt that the checkpoint has under this name.")
@click.option("--normalize/--no-normalize", default=None, help="Scale to length 1; default: as the checkpoint says.")
@click.option("--truncate-dim", type=click.IntRange(min=1), help="Keep this many dimensions.")
@click.option(
    "--max-length", type=click.IntRange(min=1), help="Tokens of a text at most; default: as the checkpoint says."
)
@click.option(
    "--truncation",
    type=click.Choice(("truncate", "error")),
    default="truncate",
    show_default=True,
    help="Longer texts: drop the end and say so, or stop.",
)
@click.option(
    "--max-batch-tokens",
    type=click.IntRange(min=1),
    default=16384,
    show_default=True,
    help="Tokens of a batch at most.",
)
@click.option("--progress", is_flag=True, help="Show a bar on stderr.")
@common.device_option
@common.dtype_option
@common.hub_options
@common.debug_option
def command(
    name: str,
    source: str | None,
    texts: tuple[str, ...],
    form: str | None,
    output: Path | None,
    prompt: str | None,
    prompt_name: str | None,
    normalize: bool | None,
    truncate_dim: int | None,
    max_length: int | None,
    truncation: str,
    max_batch_tokens: int,
    progress: bool,
    device: str,
    dtype: str,
    **hub: Any,
) -> int:
    """Turn texts into vectors, pooled and normalised as the checkpoint declares.

    INPUT is a file with one text per line, or - for stdin; a blank line is a text too. Each text gives one row with its
    index, itself and its vector; with npy, the vectors alone as one float32 array. Lines that fail are named on stderr
    and left out, so that npy then has fewer rows than the input has lines. Rows of jsonl and csv are written while the
    input is read.
    """
    form = choose_format(form, output, FORMATS)
    failures = Failures()
    chunks, again = itertools.tee(read_lines(source, texts, failures))

    from plainbert.tasks.embed import Embedder

    place = common.device_named(device)
    common.say_status(f"loading {name}")
    embedder = Embedder.from_pretrained(name, device=place, dtype=dtype, max_length=max_length, **hub)
    vectors = embedder.encode_chunks(
        ([line.text for line in lines] for lines in again),
        prompt=prompt,
        prompt_name=prompt_name,
        normalize=normalize,
        truncate_dim=truncate_dim,
        max_batch_tokens=max_batch_tokens,
        truncation=truncation,
        progress=progress,
    )
    results = _finite(zip(chunks, vectors, strict=True), failures)
    width = truncate_dim or embedder.dimension
    # One column a number: what spreadsheets and R read.
    names = [f"e{number}" for number in range(width)]
    if form == "npy":
        _write_array([some for _, some in results], width, output)
    elif form == "text":
        write_table([_shown(*pair) for lines, some in results for pair in zip(lines, some, strict=True)], output)
    else:
        rows = (
            [
                {"index": line.index, "text": line.text}
                | (dict(zip(names, numbers, strict=True)) if form == "csv" else {"embedding": numbers})
                for line, numbers in zip(lines, map(_numbers, some), strict=True)
            ]
            for lines, some in results
        )
        write_rows(rows, form, output, ["index", "text", *names])
    return failures.code


def _finite(
    results: Iterable[tuple[list[Line], np.ndarray]], failures: Failures
) -> Iterator[tuple[list[Line], np.ndarray]]:
    """Leave out the texts whose vector is not finite, and say so."""
    import numpy as np

    for lines, vectors in results:
        finite = np.isfinite(vectors).all(axis=1)
        for line, fine in zip(lines, finite, strict=True):
            if not fine:
                failures.say(f"text {line.index + 1} must have a finite vector, got NaN or infinity; it was left out")
        yield [line for line, fine in zip(lines, finite, strict=True) if fine], vectors[finite]


def _write_array(parts: list[np.ndarray], width: int, output: Path | None) -> None:
    """Write the vectors as one (n, d) array, whose header says n: nothing can go out before the last text is in."""
    import numpy as np

    with open_output(output) as stream:
        whole = np.concatenate(parts) if parts else np.empty((0, width), dtype=np.float32)
        np.lib.format.write_array(stream, whole, allow_pickle=False)


def _shown(line: Line, vector: np.ndarray) -> Row:
    """Give the line of the table for one text."""
    import numpy as np

    return {
        "text": common.shorten(line.text, 30),
        "dims": str(len(vector)),
        "norm": f"{np.linalg.norm(vector):.4f}",
        "vector": " ".join(f"{number:+.4f}" for number in vector[:3]) + (" …" if len(vector) > 3 else ""),
    }


def _numbers(vector: np.ndarray) -> list[float]:
    """Give float32 numbers as the shortest decimals that read back as the same float32."""
    return [float(number) for number in vector.astype(str)]
