"""``plainbert tokenize``: what the model sees of a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from plainbert.cli import common
from plainbert.cli.common import Failures
from plainbert.cli.lines import read_lines
from plainbert.cli.rows import Row, choose_format, write_rows, write_table

FORMATS = ("jsonl", "json", "csv", "text")
COLUMNS = ("index", "text", "tokens", "input_ids", "offsets", "word_ids")


@click.command(
    "tokenize",
    epilog="""\b
Examples:
  plainbert tokenize minilm --text "naïve 今天"
  plainbert tokenize minilm texts.txt --format jsonl
""",
)
@common.model_argument
@common.text_options
@common.output_options(*FORMATS)
@click.option("--max-length", type=click.IntRange(min=1), help="Cut texts to this many tokens; default: cut nothing.")
@click.option("--no-special-tokens", is_flag=True, help="Leave [CLS] and [SEP] out.")
@click.option("--split-special-tokens", is_flag=True, help="Read a [MASK] typed in a text as letters.")
@common.hub_options
@common.debug_option
def command(
    name: str,
    source: str | None,
    texts: tuple[str, ...],
    form: str | None,
    output: Path | None,
    max_length: int | None,
    no_special_tokens: bool,
    split_special_tokens: bool,
    **hub: Any,
) -> int:
    """Split texts into tokens: the tokens, their ids, where each stands in the text, and which word it is of.

    INPUT is a file with one text per line, or - for stdin; a blank line is a text too. Lines that fail are named on
    stderr and left out. Offsets count characters of the text as it was given; an
    added token has the offsets (0, 0) and no word. Rows of jsonl and csv are written while the input is read.
    """
    form = choose_format(form, output, FORMATS)
    failures = Failures()
    chunks = read_lines(source, texts, failures)

    from plainbert.tasks.tokenizing import UnknownTokens, tokenizer_of

    tokenizer = tokenizer_of(name, **hub)
    unknown = UnknownTokens()

    def tokenized() -> Iterator[list[Row]]:
        for lines in chunks:
            batch = tokenizer(
                [line.text for line in lines],
                add_special_tokens=not no_special_tokens,
                truncation=max_length is not None,
                max_length=max_length,
                split_special_tokens=split_special_tokens,
            )
            unknown.count(tokenizer, batch["input_ids"])
            yield [
                {
                    "index": line.index,
                    "text": line.text,
                    "tokens": tokenizer.convert_ids_to_tokens(ids),
                    "input_ids": ids,
                    "offsets": [list(pair) for pair in offsets],
                    "word_ids": words,
                }
                for line, ids, offsets, words in zip(
                    lines, batch["input_ids"], batch.offsets, batch.word_ids, strict=True
                )
            ]

    if form == "text":
        write_table([shown for rows in tokenized() for row in rows for shown in _shown(row)], output)
    else:
        write_rows(tokenized(), form, output, COLUMNS)
    unknown.report()
    return failures.code


def _shown(row: Row) -> Iterator[Row]:
    """Give one line of the table for each token of a text."""
    values = (row[column] for column in ("tokens", "input_ids", "offsets", "word_ids"))
    for token, number, (start, end), word in zip(*values, strict=True):
        yield {
            "index": str(row["index"]),
            "token": token,
            "id": str(number),
            "offsets": f"{start}-{end}",
            "slice": row["text"][start:end],
            "word": "" if word is None else str(word),
        }
