#!/usr/bin/env python3
"""What transformers accepts wrongly or in silence, beside what plainbert does with the same input.

    python benchmarks/silence.py                              the table, as Markdown
    python benchmarks/silence.py --write docs/silence.md      the page that holds it

Every row is run in this process, on both packages, with the same tiny random weights in float64, so that the page is
the same on every machine. A row is one function that gets one package; what it returns or raises is the cell.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when huggingface_hub is imported

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import plainbert

SHAPE = {
    "vocab_size": 120,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
HEAD = """# What is no longer silent

Inputs that transformers accepts wrongly, in silence, or with a message that names something else, and what plainbert
does with the same input. Each row is run on both packages by `python benchmarks/silence.py`, which also writes this
page (`--write docs/silence.md`); a test runs it again and compares the rows. "Off" is the largest difference of an
output from the right one, for a model of two layers with large random weights in float64.

Written with transformers {transformers}, torch {torch} and plainbert {plainbert}.

"""
COLUMNS = "| input | transformers | plainbert |\n|---|---|---|\n"


class Package:
    """One of the two packages, with the same models in it.

    Attributes:
        ours: whether it is plainbert.
        folder: where checkpoints for it can be written.
    """

    def __init__(self, ours: bool, folder: Path) -> None:
        self.ours = ours
        self.folder = folder
        self.module: Any = plainbert if ours else transformers
        self.ids = torch.tensor([[5, 17, 3, 99, 41, 8, 60, 2]] * 2) + torch.tensor([[0], [7]])

    def config(self, **overrides: Any) -> Any:
        """A configuration of the package."""
        return self.module.BertConfig(**{**SHAPE, **overrides})

    def checkpoint(self, head: str = "BertModel", change: Callable[[dict[str, Tensor]], Any] | None = None) -> Path:
        """Write a checkpoint by transformers, the same for both packages, and change its weights."""
        torch.manual_seed(0)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        getattr(transformers, head)(transformers.BertConfig(**SHAPE)).double().save_pretrained(folder)
        if change is not None:
            state = load_file(folder / "model.safetensors")
            changed = change(state)
            save_file(state if changed is None else changed, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def load(self, head: str, folder: Path, **keywords: Any) -> Any:
        """Load a checkpoint with the package."""
        return getattr(self.module, head).from_pretrained(folder, **keywords).eval()

    def model(self, head: str = "BertModel", **keywords: Any) -> Any:
        """The same weights in either package."""
        return self.load(head, self.checkpoint(head), **keywords)


Row = Callable[[Package], str]
ROWS: list[tuple[str, Row]] = []


def row(title: str) -> Callable[[Row], Row]:
    """Add a function to the table under the description of its input."""

    def add(function: Row) -> Row:
        ROWS.append((title, function))
        return function

    return add


def off(result: Tensor, right: Tensor) -> str:
    """The largest difference from the right result, in words."""
    difference = (result - right).abs().max().item()
    return "right" if difference < 1e-9 else f"accepted, off by {difference:.1g}"


def number(loss: Tensor | None) -> str:
    """A loss in words."""
    return "the loss is None" if loss is None else f"the loss is {loss.item():.4g}"


# --- masks ---


@row("a bool mask (B, 1, S, S) under `eager`")
def _bool_mask(package: Package) -> str:
    mask = torch.ones(2, 1, 8, 8, dtype=torch.bool).tril()
    right = package.model(attn_implementation="sdpa")(package.ids, attention_mask=mask)[0]
    return off(package.model(attn_implementation="eager")(package.ids, attention_mask=mask)[0], right)


@row("an integer mask (B, 1, S, S) of 0 and 1 under `eager`")
def _integer_mask(package: Package) -> str:
    look = torch.ones(2, 1, 8, 8, dtype=torch.bool).tril()
    right = package.model(attn_implementation="sdpa")(package.ids, attention_mask=look)[0]
    return off(package.model(attn_implementation="eager")(package.ids, attention_mask=look.long())[0], right)


@row("a bool mask (B, S, S)")
def _square_mask(package: Package) -> str:
    mask = torch.ones(2, 8, 8, dtype=torch.bool).tril()
    model = package.model()
    return off(model(package.ids, attention_mask=mask)[0], model(package.ids, attention_mask=mask[:, None])[0])


def tail(package: Package) -> tuple[Any, Tensor, Tensor]:
    """A model, a mask of 0 and 1 that hides the last three tokens, and the right result."""
    model = package.model()
    mask = torch.ones(2, 8).double()
    mask[:, 5:] = 0
    return model, mask, model(package.ids, attention_mask=mask)[0]


@row("a mask (B, S) of 0 for tokens and -10000 for padding, as old code added it")
def _old_mask(package: Package) -> str:
    model, mask, right = tail(package)
    return off(model(package.ids, attention_mask=(1 - mask) * -10000)[0], right)


@row("a mask (B, S) with the value 0.5")
def _half_mask(package: Package) -> str:
    model, mask, right = tail(package)
    return off(model(package.ids, attention_mask=mask + (1 - mask) * 0.5)[0], right)


@row("a mask of 7 ones for 8 tokens")
def _short_mask(package: Package) -> str:
    same = torch.equal(package.model()(package.ids, torch.ones(2, 7))[0], package.model()(package.ids)[0])
    return "accepted, and the last token is looked at all the same" if same else "accepted"


@row("a mask of 9 ones for 8 tokens")
def _long_mask(package: Package) -> str:
    same = torch.equal(package.model()(package.ids, torch.ones(2, 9))[0], package.model()(package.ids)[0])
    return "accepted, though it is of another batch" if same else "accepted"


@row("a mask for 1 text, 2 texts")
def _few_masks(package: Package) -> str:
    model, mask, right = tail(package)
    return off(model(package.ids, attention_mask=mask[:1])[0], right)


@row("padding in the ids and no mask")
def _no_mask(package: Package) -> str:
    model, mask, right = tail(package)
    return off(model(package.ids * mask.long())[0][:, :5], right[:, :5])


# --- keywords ---


@row("`attention_msk=`, a misspelt keyword of forward")
def _misspelt(package: Package) -> str:
    model, mask, right = tail(package)
    return off(model(package.ids, attention_msk=mask)[0], right)


@row("`head_mask=` that switches every head off")
def _head_mask(package: Package) -> str:
    model = package.model()
    changed = model(package.ids, head_mask=torch.zeros(4))[0] - model(package.ids)[0]
    return "accepted, no effect" if changed.abs().max() == 0 else "right: the outputs change"


@row("`output_attentions=True` under `sdpa`")
def _maps(package: Package) -> str:
    found = package.model()(package.ids, output_attentions=True).attentions
    if not found or found[0] is None:
        return f"accepted, the maps are {found}"
    eager = package.model(attn_implementation="eager")(package.ids, output_attentions=True).attentions
    close = all(torch.allclose(one, other, atol=1e-9) for one, other in zip(found, eager, strict=True))
    return f"{'right: ' if close else 'wrong: '}{len(found)} maps of {tuple(found[0].shape)}"


@row("`BertConfig(hiden_size=48)`, misspelt")
def _misspelt_field(package: Package) -> str:
    return f"accepted, hidden_size is {package.config(hiden_size=48).hidden_size}"


@row("`from_pretrained(..., hiden_dropout_prob=0.5)`, misspelt")
def _misspelt_override(package: Package) -> str:
    return f"accepted, dropout is {package.model(hiden_dropout_prob=0.5).config.hidden_dropout_prob}"


# --- ids ---


@row("an id of 120 in a vocabulary of 120")
def _high_id(package: Package) -> str:
    return str(tuple(package.model()(torch.full((1, 8), 120))[0].shape))


@row("41 tokens, 40 positions")
def _long_row(package: Package) -> str:
    return str(tuple(package.model()(torch.ones(1, 41, dtype=torch.long))[0].shape))


@row("ids as floats")
def _float_ids(package: Package) -> str:
    return str(tuple(package.model()(package.ids.double())[0].shape))


@row("an empty batch (0, 8)")
def _empty_batch(package: Package) -> str:
    found = package.model()(package.ids[:0], attention_mask=torch.ones(0, 8))[0]
    return f"right: {tuple(found.shape)}"


@row("rows of 0 tokens")
def _empty_rows(package: Package) -> str:
    return f"accepted: {tuple(package.model()(package.ids[:, :0])[0].shape)}"


@row("token_type_ids of 3 texts for 1 text")
def _many_segments(package: Package) -> str:
    found = package.model()(package.ids[:1], token_type_ids=torch.zeros(3, 8, dtype=torch.long))[0]
    return f"accepted, 1 text becomes {len(found)}"


# --- losses ---


@row("masked LM labels that are all -100")
def _nothing_masked(package: Package) -> str:
    return number(package.model("BertForMaskedLM")(package.ids, labels=torch.full((2, 8), -100)).loss)


@row("answers that are all outside the window")
def _nothing_answered(package: Package) -> str:
    outside = torch.full((2,), 99)
    model = package.model("BertForQuestionAnswering")
    return number(model(package.ids, start_positions=outside, end_positions=outside).loss)


@row('an answer at -1, for "not in this window"')
def _answer_before(package: Package) -> str:
    model, answer = package.model("BertForQuestionAnswering"), torch.tensor([-1, 3])
    found = model(package.ids, start_positions=answer, end_positions=answer).loss
    first = model(package.ids, start_positions=answer.clamp(min=0), end_positions=answer.clamp(min=0)).loss
    only = model(package.ids[1:], start_positions=answer[1:], end_positions=answer[1:]).loss
    if torch.allclose(found, only):
        return "right: that text is ignored"
    return "trained on [CLS]" if torch.allclose(found, first) else number(found)


@row("class numbers, then 0/1 rows for each class, to one model")
def _two_kinds(package: Package) -> str:
    model = package.model("BertForSequenceClassification")
    parts = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).double()
    expected = package.model("BertForSequenceClassification")(package.ids, labels=parts).loss
    model(package.ids, labels=torch.tensor([0, 1]))
    found = model(package.ids, labels=parts).loss
    return "right: each call decides" if torch.equal(found, expected) else f"the second loss is off: {number(found)}"


@row('`problem_type="bogus"`')
def _bogus_problem(package: Package) -> str:
    model = package.model("BertForSequenceClassification", problem_type="bogus")
    return number(model(package.ids, labels=torch.tensor([0, 1])).loss)


@row("pretraining with `labels=` and no `next_sentence_label=`")
def _half_pretraining(package: Package) -> str:
    found = package.model("BertForPreTraining")(package.ids, labels=package.ids).loss
    right = package.model("BertForPreTraining")(package.ids)[0].flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(right, package.ids.flatten())
    return "right: the loss of the words" if found is not None and torch.allclose(found, expected) else number(found)


# --- files ---


def same_as_stored(package: Package, head: str, folder: Path, right: Package) -> str:
    """Whether a model loaded from a changed file equals the one whose weights were stored."""
    found = package.load(head, folder)(package.ids)[0]
    expected = right.model(head)(right.ids)[0]
    return off(found, expected) if found.isfinite().all() else "accepted, outputs are NaN"


@row("weights named `module.*`, as DataParallel saves them")
def _parallel_names(package: Package) -> str:
    folder = package.checkpoint(change=lambda state: {f"module.{name}": tensor for name, tensor in state.items()})
    return same_as_stored(package, "BertModel", folder, package)


@row('a .bin that holds `{"state_dict": ...}`')
def _wrapped(package: Package) -> str:
    folder = package.checkpoint()
    torch.save({"state_dict": load_file(folder / "model.safetensors")}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return same_as_stored(package, "BertModel", folder, package)


@row("a file that lacks one encoder weight")
def _lacking(package: Package) -> str:
    folder = package.checkpoint(change=lambda state: drop(state, "encoder.layer.1.output.dense.weight"))
    return same_as_stored(package, "BertModel", folder, package)


def drop(state: dict[str, Tensor], *starts: str) -> None:
    """Take weights out of a file."""
    for name in [name for name in state if name.startswith(starts)]:
        del state[name]


@row("a file with an adapter inside its layers")
def _adapter(package: Package) -> str:
    def add(state: dict[str, Tensor]) -> None:
        state["encoder.layer.0.attention.self.query.lora_A.weight"] = torch.ones(4, 32)

    return "accepted without it: " + same_as_stored(package, "BertModel", package.checkpoint(change=add), package)


@row("a file without a pooler: `pooler_output`")
def _no_pooler(package: Package) -> str:
    folder = package.checkpoint(change=lambda state: drop(state, "pooler."))
    torch.manual_seed(1)
    first = package.load("BertModel", folder)(package.ids).pooler_output
    torch.manual_seed(2)
    second = package.load("BertModel", folder)(package.ids).pooler_output
    if first is None:
        return "pooler_output is None"
    return "another random vector at every load" if not torch.equal(first, second) else "the same vector"


@row("an untied decoder whose bias is stored as `cls.predictions.bias`")
def _bias_left_behind(package: Package) -> str:
    folder = package.checkpoint("BertForMaskedLM", lambda state: state.update(untied(state)))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}), encoding="utf-8")
    bias = package.load("BertForMaskedLM", folder).cls.predictions.decoder.bias
    return "right: it is used" if (bias == 1).all() else f"not used: the bias is {bias.abs().max().item():g}"


def untied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A decoder of its own, with a bias of ones."""
    table = state["bert.embeddings.word_embeddings.weight"]
    return {"cls.predictions.decoder.weight": table * 2, "cls.predictions.bias": torch.ones(len(table)).double()}


@row("one NaN in one weight")
def _one_nan(package: Package) -> str:
    def spoil(state: dict[str, Tensor]) -> None:
        state["encoder.layer.1.output.dense.weight"][0, 0] = math.nan

    package.load("BertModel", package.checkpoint(change=spoil))
    return "loaded"


@row("stored position_ids that run backwards")
def _backwards(package: Package) -> str:
    def add(state: dict[str, Tensor]) -> None:
        state["embeddings.position_ids"] = torch.arange(40).flip(0)[None]

    package.load("BertModel", package.checkpoint(change=add))
    return "ignored"


def with_file(package: Package, content: bytes) -> str:
    """Load a folder whose weight file holds something else."""
    folder = package.checkpoint()
    (folder / "model.safetensors").write_bytes(content)
    package.load("BertModel", folder)
    return "loaded"


@row("a Git LFS pointer in place of the weights")
def _lfs_pointer(package: Package) -> str:
    return with_file(package, b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n")


@row("a web page in place of the weights")
def _web_page(package: Package) -> str:
    return with_file(package, b"<!DOCTYPE html><html><body>Please log in</body></html>")


def with_config(package: Package, **values: Any) -> Any:
    """Load a folder with other values in its config.json."""
    folder = package.checkpoint()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **values}), encoding="utf-8")
    return package.load("BertModel", folder)


@row('config.json: `"is_decoder": true`')
def _decoder(package: Package) -> str:
    model, right = with_config(package, is_decoder=True), package.model()(package.ids)[0]
    return off(model(package.ids)[0], right) + " from the encoder of the same weights"


@row('config.json: `"position_embedding_type": "relative_key"`')
def _relative(package: Package) -> str:
    model, right = with_config(package, position_embedding_type="relative_key"), package.model()(package.ids)[0]
    return "accepted and ignored" if torch.equal(model(package.ids)[0], right) else "other outputs"


@row('config.json: `"hidden_dropout_prob": NaN`')
def _nan_dropout(package: Package) -> str:
    model = with_config(package, hidden_dropout_prob=math.nan)
    return f"accepted, dropout is {model.config.hidden_dropout_prob}"


@row('config.json: 3 names in id2label, `"num_labels": 2`')
def _label_counts(package: Package) -> str:
    model = with_config(package, id2label={"0": "a", "1": "b", "2": "c"}, num_labels=2)
    return f"accepted, there are {model.config.num_labels}"


# --- tokenizers ---


@row('a pair of texts, tokenizer_config.json: `"tokenizer_class": "PreTrainedTokenizerFast"`')
def _general_class(package: Package) -> str:
    folder = Path(tempfile.mkdtemp(dir=package.folder))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    plainbert.BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    module = plainbert.BertTokenizer if package.ours else transformers.AutoTokenizer
    segments = module.from_pretrained(folder)("one", "two").get("token_type_ids")
    if segments is None:
        return "accepted, no token_type_ids: both texts are read as the first"
    return "right: token_type_ids tell them apart" if segments == [0, 0, 0, 1, 1] else f"token_type_ids {segments}"


# --- another vocabulary ---


@row("`model.bert.resize_token_embeddings(128)` of a masked LM")
def _resize_inside(package: Package) -> str:
    model = package.model("BertForMaskedLM")
    model.bert.resize_token_embeddings(128)
    head = model.cls.predictions
    sizes = f"table {len(model.bert.embeddings.word_embeddings.weight)}, bias {len(head.bias)}"
    return f"{sizes}, logits {model(package.ids).logits.shape[-1]}"


# --- running the rows ---


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect what is said on the side: warnings, and log lines of transformers."""
    said: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, logger = Collect(logging.WARNING), logging.getLogger("transformers")
    handlers, logger.handlers = logger.handlers, [handler]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield said
        said += [str(warning.message) for warning in caught]
    finally:
        logger.handlers = handlers


def short(text: str, folder: Path, most: int = 200) -> str:
    """The first line of a message, without the places and the length that change from run to run."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = " ".join(line.split())
    line = re.sub(re.escape(str(folder)) + r"/[^/\s:;,']+", "FOLDER", line)
    return line if len(line) <= most else f"{line[: most - 3].rstrip()}..."


def cell(function: Row, package: Package) -> str:
    """Run one row on one package and say what happened."""
    torch.manual_seed(0)
    with torch.no_grad(), heard() as said:
        try:
            result = function(package)
        except Exception as error:  # noqa: BLE001 - what is raised is the result
            return f"{type(error).__name__}: {short(str(error), package.folder)}".replace("|", "\\|")
    if package.ours and said:
        result += f"; warns: {short(said[0], package.folder)}"
    elif said:
        result += (
            ", with a report in the log" if "LOAD REPORT" in said[0] else f"; logs: {short(said[0], package.folder)}"
        )
    return result.replace("|", "\\|")


def table() -> str:
    """Run every row on both packages and give the Markdown table."""
    transformers.logging.set_verbosity_warning()
    transformers.logging.disable_progress_bar()
    lines = []
    with tempfile.TemporaryDirectory(prefix="silence") as scratch:
        for title, function in ROWS:
            cells = [cell(function, Package(ours, Path(scratch))) for ours in (False, True)]
            lines.append(f"| {title} | {cells[0]} | {cells[1]} |\n")
    return COLUMNS + "".join(lines)


def page() -> str:
    """The page with the table and the versions that it was written with."""
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "torch")}
    return HEAD.format(**versions, plainbert=plainbert.__version__) + table()


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="PATH", help="write the page there instead of printing the table")
    arguments = parser.parse_args()
    if arguments.write:
        arguments.write.write_text(page(), encoding="utf-8")
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
