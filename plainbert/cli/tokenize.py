"""``plainbert tokenize``: what the model sees of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from plainbert.cli import common

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

    INPUT is a file with one text per line, or - for stdin. Offsets count characters of the text as it was given; an
    added token has the offsets (0, 0) and no word.
    """
    form = common.choose_format(form, output, FORMATS)
    lines, complaints = common.read_lines(source, texts)

    from plainbert.text.tokenizer import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(name, **hub)
    rows, table = [], []
    for line in lines:
        batch = tokenizer(
            [line.text],
            add_special_tokens=not no_special_tokens,
            truncation=max_length is not None,
            max_length=max_length,
            split_special_tokens=split_special_tokens,
        )
        ids = batch["input_ids"][0]
        tokens = tokenizer.convert_ids_to_tokens(ids)
        offsets, words = [list(pair) for pair in batch.offsets[0]], batch.word_ids[0]
        values = (line.index, line.text, tokens, ids, offsets, words)
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        for token, number, (start, end), word in zip(tokens, ids, offsets, words, strict=True):
            table.append(
                {
                    "text": str(line.index),
                    "token": token,
                    "id": str(number),
                    "offsets": f"{start}-{end}",
                    "slice": line.text[start:end],
                    "word": "" if word is None else str(word),
                }
            )
    common.write_rows(rows, form, output, COLUMNS, table)
    return common.report_failures(complaints)
