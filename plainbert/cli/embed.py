"""``plainbert embed``: texts to vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from plainbert.cli import common

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

    INPUT is a file with one text per line, or - for stdin. Each text gives one row with its index, itself and its
    vector; with npy, the vectors alone as one float32 array.
    """
    form = common.choose_format(form, output, FORMATS)
    lines, complaints = common.read_lines(source, texts)

    import numpy as np

    from plainbert.tasks.embed import Embedder

    embedder = Embedder.from_pretrained(
        name, device=common.check_device(device), dtype=common.torch_dtype(dtype), max_length=max_length, **hub
    )
    vectors = embedder.encode(
        [line.text for line in lines],
        prompt=prompt,
        prompt_name=prompt_name,
        normalize=normalize,
        truncate_dim=truncate_dim,
        max_batch_tokens=max_batch_tokens,
        truncation=truncation,
        progress=progress,
    )
    finite = np.isfinite(vectors).all(axis=1)
    for line, fine in zip(lines, finite, strict=True):
        if not fine:
            complaints.append(f"text {line.index + 1} has a vector with NaN or infinity in it; it was left out")
    vectors = vectors[finite]
    lines = [line for line, fine in zip(lines, finite, strict=True) if fine]
    if form == "npy":
        with common.open_output(output) as stream:
            np.lib.format.write_array(stream, vectors, allow_pickle=False)
    elif form == "csv":
        # One column a number: what spreadsheets and R read.
        names = [f"e{number}" for number in range(vectors.shape[1])]
        flat = [
            {"index": line.index, "text": line.text, **dict(zip(names, _numbers(vector), strict=True))}
            for line, vector in zip(lines, vectors, strict=True)
        ]
        common.write_rows(flat, form, output, ["index", "text", *names], table=())
    else:
        rows: list[common.Row] = [
            {"index": line.index, "text": line.text, "embedding": _numbers(vector)}
            for line, vector in zip(lines, vectors, strict=True)
        ]
        table = [
            {
                "text": common.shorten(row["text"]),
                "dimensions": str(vectors.shape[1]),
                "length": f"{np.linalg.norm(vector):.4f}",
                "vector": " ".join(f"{number:+.4f}" for number in vector[:6]) + (" ..." if len(vector) > 6 else ""),
            }
            for row, vector in zip(rows, vectors, strict=True)
        ]
        common.write_rows(rows, form, output, ["index", "text", "embedding"], table)
    return common.report_failures(complaints)


def _numbers(vector: Any) -> list[float]:
    """Give float32 numbers as the shortest decimals that read back as the same float32."""
    return [float(number) for number in vector.astype(str)]
