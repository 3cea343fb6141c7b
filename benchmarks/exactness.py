#!/usr/bin/env python3
"""Count the tensors that equal transformers' to the last bit: `python benchmarks/exactness.py [--write]`.

For every head, attention and dtype, two random models (weights of standard deviation 0.02 and 0.3) are saved by
transformers and loaded by both. Compared are logits, hidden states, attention maps, the loss and every gradient, with
dropout off and on. `--write` puts the table between the markers of docs/exactness.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

import plainbert
from plainbert.cli.verify import EQUALLED_TRANSFORMERS, HEADS, settle

PAGE = Path(__file__).parents[1] / "docs" / "exactness.md"
MARKERS = ("<!-- table: written by benchmarks/exactness.py -->", "<!-- end of table -->")
ATTENTIONS = ("eager", "sdpa")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SHAPE = {
    "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "max_position_embeddings": 40,
}  # fmt: skip


def batch_for(head: str, rows: int = 3, length: int = 17) -> dict[str, torch.Tensor]:
    """Random ids with padding at the end of all rows but the first, and labels for the head."""
    shape = (rows, 2, length) if head == "BertForMultipleChoice" else (rows, length)
    mask = torch.ones(shape, dtype=torch.long)
    for index, row in enumerate(mask.view(-1, length)):
        row[length - index * 2 :] = 0 if index else 1
    batch = {
        "input_ids": torch.randint(1, SHAPE["vocab_size"], shape),
        "token_type_ids": torch.randint(0, 2, shape),
        "attention_mask": mask,
    }
    words = torch.randint(0, SHAPE["vocab_size"], (rows, length)).where(torch.rand(rows, length) < 0.3, -100)
    words[:, 0] = 5
    two = torch.randint(0, 2, (rows,))
    labels: dict[str, dict[str, torch.Tensor]] = {
        "BertModel": {},
        "BertForPreTraining": {"labels": words, "next_sentence_label": two},
        "BertForMaskedLM": {"labels": words},
        "BertForTokenClassification": {"labels": torch.randint(0, 2, (rows, length))},
        "BertForQuestionAnswering": {"start_positions": two, "end_positions": two + 3},
    }
    return {**batch, **labels.get(head, {"labels": two})}


def tensors_of(model: torch.nn.Module, batch: dict[str, torch.Tensor], maps: bool) -> dict[str, torch.Tensor]:
    """All that one model gives for a batch: outputs, and gradients with dropout off and on."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found[name] = value.detach()
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                keep(f"{name}.{index}", item)

    with torch.no_grad():
        for name, value in model.eval()(**batch, output_hidden_states=True, output_attentions=maps).items():
            keep(name, value)
    for training in (False, True):
        torch.manual_seed(1)
        model.train(training).zero_grad()
        output = model(**batch)
        loss = output[0].float().pow(2).mean() if "loss" not in output else output.loss
        loss.backward()
        keep(f"loss.{training}", loss)
        for name, parameter in model.named_parameters():
            keep(f"grad.{training}.{name}", parameter.grad)
    return found


def compare(transformers: Any, head: str, attention: str, dtype: torch.dtype) -> tuple[int, int]:
    """Return how many tensors were compared and how many of them are equal."""
    compared = equal = 0
    for std in (0.02, 0.3):
        torch.manual_seed(int(std * 100))
        config = transformers.BertConfig(**SHAPE, initializer_range=std)
        with tempfile.TemporaryDirectory() as folder:
            getattr(transformers, head)(config).save_pretrained(folder)
            options = {"attn_implementation": attention, "dtype": dtype}
            theirs = getattr(transformers, head).from_pretrained(folder, **options)
            ours = getattr(plainbert, head).from_pretrained(folder, **options)
        settle(theirs)
        settle(ours)
        batch = batch_for(head)
        reference = tensors_of(theirs, batch, maps=attention == "eager")
        result = tensors_of(ours, batch, maps=attention == "eager")
        compared += len(reference)
        equal += sum(name in result and torch.equal(result[name], value) for name, value in reference.items())
    return compared, equal


def table() -> tuple[list[str], bool]:
    """Return the lines of the table, and whether everything is equal."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if transformers.__version__ != EQUALLED_TRANSFORMERS:
        sys.exit(f"transformers must be {EQUALLED_TRANSFORMERS}, got {transformers.__version__}")
    lines = ["| head | " + " | ".join(f"{a}, {str(d)[6:]}" for a in ATTENTIONS for d in DTYPES) + " |"]
    lines.append("|---" * (1 + len(ATTENTIONS) * len(DTYPES)) + "|")
    all_equal = True
    for head in HEADS:
        cells = []
        for attention in ATTENTIONS:
            for dtype in DTYPES:
                compared, equal = compare(transformers, head, attention, dtype)
                all_equal &= compared == equal
                cells.append(f"{equal} of {compared}")
        lines.append(f"| {head} | " + " | ".join(cells) + " |")
    return lines, all_equal


def main() -> int:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/exactness.md")
    write = parser.parse_args().write
    warnings.simplefilter("ignore")
    lines, all_equal = table()
    release = torch.__version__.partition("+")[0]
    text = f"Tensors equal to the last bit; torch {release} on the CPU, transformers {EQUALLED_TRANSFORMERS}.\n\n"
    text += "\n".join(lines) + "\n"
    if write:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(MARKERS[0])[0], page.split(MARKERS[1])[1]
        PAGE.write_text(f"{before}{MARKERS[0]}\n\n{text}\n{MARKERS[1]}{after}", encoding="utf-8")
    else:
        print(text)
    return 0 if all_equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
