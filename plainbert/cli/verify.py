"""``plainbert verify``: the same texts through plainbert and transformers, every output compared to the last bit.

The only place, with the benchmarks, that imports transformers; it does so inside functions.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import platform
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plainbert import __version__
from plainbert.cli import common
from plainbert.cli.comparison import comparison_page
from plainbert.cli.declared import HEADS, declared_head
from plainbert.cli.rows import Row
from plainbert.config import DTYPE_NAMES
from plainbert.errors import PlainBertError, warn

if TYPE_CHECKING:
    import torch

    from plainbert.config import BertConfig
    from plainbert.text.tokenizer import BertTokenizer

#: Bits are promised against this release: another one may order its arithmetic differently.
EQUALLED_TRANSFORMERS = "5.24.0"
ATTENTION = ("eager", "sdpa")
# Of different lengths, so that the batch is padded.
PAIRS = (
    ("The weather is lovely today.", "It is sunny outside."),
    ("今天天气真好。", "我们去公园散步，晒晒太阳吧。"),
)


@dataclass(frozen=True)
class Run:
    """What is run on both sides: a head, its files, its input."""

    head: str
    folder: Path
    batch: dict[str, torch.Tensor]
    device: torch.device


@click.command(
    "verify",
    epilog="""\b
Examples:
  plainbert verify minilm
  plainbert verify google-bert/bert-base-chinese --text 今天天气真好 --dtype float32 --dtype bfloat16
""",
)
@common.model_argument
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="Compare on this text; may be repeated.")
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(DTYPE_NAMES),
    multiple=True,
    default=("float32",),
    show_default=True,
    help="Compare in this type; may be repeated.",
)
@click.option(
    "--attention",
    "attentions",
    type=click.Choice(ATTENTION),
    multiple=True,
    default=ATTENTION,
    show_default=True,
    help="Compare under this attention; may be repeated.",
)
@click.option("--head", type=click.Choice(HEADS), help="Default: the one that the checkpoint was saved from.")
@click.option("--json", "as_json", is_flag=True, help="Give JSON in place of the table.")
@common.device_option
@common.hub_options
@common.debug_option
def command(
    name: str,
    texts: tuple[str, ...],
    dtypes: tuple[str, ...],
    attentions: tuple[str, ...],
    head: str | None,
    as_json: bool,
    device: str,
    **hub: Any,
) -> int:
    """Run the same texts here and in transformers and compare every output to the last bit.

    Each row is one output: its shape, the largest difference between the two sides, the difference of each side to
    transformers' eager attention in float64, and whether the two are equal. The exit code is 1 when any is not.
    """
    common.say_status("importing transformers")
    transformers = import_transformers()
    place = common.device_named(device)

    import torch

    from plainbert.checkpoints.folder import FolderSource
    from plainbert.checkpoints.hub import find
    from plainbert.config import BertConfig
    from plainbert.tasks.tokenizing import has_tokenizer, tokenizer_of

    common.say_status(f"loading {name}")
    source = find(name, **hub)
    folder = source.require("config.json").parent
    if not isinstance(source, FolderSource):
        # One commit for all that follows, and the other side reads the very files that ours has brought into the cache.
        hub["revision"] = source.commit
    else:
        hub["revision"] = None
    config = BertConfig.from_pretrained(name, **hub)
    head = head or declared_head(config)
    rows: list[Row] = []
    if has_tokenizer(source) or texts:
        tokenizer = tokenizer_of(name, **hub)
        rows, batch = _tokenized(tokenizer, config, texts, transformers, folder)
    else:
        warn(f"{name} has no tokenizer; ids drawn at random take the place of texts")
        batch = _random_batch(config)
    if head == "BertForMultipleChoice":
        batch = {key: value[None] for key, value in batch.items()}
    run = Run(head, folder, {key: value.to(place) for key, value in batch.items()}, place)

    exact, fresh = _reference(transformers, run)
    for dtype in dict.fromkeys(dtypes):
        for attention in dict.fromkeys(attentions):
            common.say_status(f"comparing {dtype}, {attention}")
            rows += _compared(transformers, run, dtype, attention, exact, fresh, name, hub)
    equal = all(row["equal"] for row in rows)
    close = all(row["close"] for row in rows)
    versions = {
        "plainbert": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": common.installed("tokenizers"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {device}, {torch.get_num_threads()} threads",
    }
    if as_json:
        report = {"model": name, "head": head, "equal": equal, "allclose": close, "versions": versions, "rows": rows}
        # JSON has no NaN; a difference that is none is null.
        finite = json.loads(json.dumps(report), parse_constant=lambda _: None)
        click.echo(json.dumps(finite, ensure_ascii=False, indent=2, allow_nan=False))
    else:
        click.echo(f"{common.printable(name)}: {head}\n")
        click.echo(comparison_page(rows, terminal=sys.stdout.isatty()))
        click.echo(", ".join(f"{key} {value}" for key, value in versions.items()) + "\n")
        click.echo(f"torch.allclose(mine, theirs, atol=1e-5): {close}")
        click.echo(f"torch.equal(mine, theirs): {equal}")
    return common.DONE if equal else common.COULD_NOT


def import_transformers() -> Any:
    """Import transformers, silenced; say what to install when it is absent, and warn when it is another release."""
    found = common.installed("transformers")
    try:
        with _quiet():
            transformers = importlib.import_module("transformers")
            transformers.logging.set_verbosity_error()
            transformers.logging.disable_progress_bar()
    except ImportError as error:
        raise PlainBertError(
            f"transformers must be installed to compare with, got {found} ({error}); "
            f"pip install transformers=={EQUALLED_TRANSFORMERS}"
        ) from error
    if transformers.__version__ != EQUALLED_TRANSFORMERS:
        warn(
            f"transformers must be {EQUALLED_TRANSFORMERS} for every bit to be promised equal, got "
            f"{transformers.__version__}; pip install transformers=={EQUALLED_TRANSFORMERS}"
        )
    return transformers


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the other side prints, its bars and load reports, out of our streams."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _tokenized(
    tokenizer: BertTokenizer, config: BertConfig, texts: tuple[str, ...], transformers: Any, folder: Path
) -> tuple[list[Row], dict[str, torch.Tensor]]:
    """Tokenise on both sides: a row for each table that either gives, and the tables of our side."""
    positions = config.max_position_embeddings
    options: dict[str, Any] = {
        "padding": True,
        "truncation": True,
        "max_length": min(tokenizer.model_max_length, positions),
        "return_tensors": "pt",
    }
    firsts, seconds = list(texts), None
    if not texts:
        # A model with one segment has no embedding for a second text.
        pairs = config.type_vocab_size > 1
        firsts = [first for first, _ in PAIRS] if pairs else [text for pair in PAIRS for text in pair]
        seconds = [second for _, second in PAIRS] if pairs else None
    mine = tokenizer(firsts, seconds, **options)
    with _quiet():
        theirs = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)(firsts, seconds, **options)
    rows = []
    for key in dict.fromkeys([*mine, *theirs]):
        row = _row(key, None, mine.get(key), theirs.get(key))
        rows.append({"dtype": "int64", "attention": None, **row, "close": row["equal"]})
    return rows, {key: mine[key] for key in mine}


def _random_batch(config: BertConfig) -> dict[str, torch.Tensor]:
    """Draw a padded batch, always the same, for a checkpoint without a tokenizer."""
    import torch

    length = min(16, config.max_position_embeddings)
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(4, length, dtype=torch.long)
    mask[1, (length + 1) // 2 :] = 0
    return {
        "input_ids": torch.randint(0, config.vocab_size, (4, length), generator=generator),
        "token_type_ids": torch.randint(0, config.type_vocab_size, (4, length), generator=generator),
        "attention_mask": mask,
    }


def _their_model(transformers: Any, run: Run, dtype: str, attention: str) -> tuple[Any, list[str]]:
    """Load transformers' model: it, and the names of parameters that the checkpoint lacks and it has drawn."""
    from plainbert.models.placement import resolve_dtype

    with _quiet():
        model, info = getattr(transformers, run.head).from_pretrained(
            run.folder,
            dtype=resolve_dtype(dtype),
            attn_implementation=attention,
            local_files_only=True,
            output_loading_info=True,
        )
    return model.eval().to(run.device), sorted(info["missing_keys"])


def _reference(transformers: Any, run: Run) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Run transformers' eager attention in float64: its outputs, and the parameters that it had to draw."""
    model, missing = _their_model(transformers, run, "float64", "eager")
    drawn = model.state_dict()
    fresh = {key: drawn[key].clone() for key in missing if key in drawn}
    return _outputs(model, run, attentions=True), fresh


def _compared(
    transformers: Any,
    run: Run,
    dtype: str,
    attention: str,
    exact: Mapping[str, Any],
    fresh: Mapping[str, torch.Tensor],
    name: str,
    hub: Mapping[str, Any],
) -> list[Row]:
    """Run both sides once and compare output by output."""
    import plainbert

    theirs, _ = _their_model(transformers, run, dtype, attention)
    mine = getattr(plainbert, run.head).from_pretrained(
        name, dtype=dtype, device=run.device, attn_implementation=attention, **hub
    )
    for model in (mine, theirs):
        parameters = model.state_dict()
        for key, value in fresh.items():
            # Both sides draw what the checkpoint lacks; here they get the same draw, so that arithmetic is compared.
            if key in parameters:
                parameters[key].copy_(value)
        settle(model)
    ours, others = (_outputs(model, run, attentions=attention == "eager") for model in (mine, theirs))
    if isinstance(mine, plainbert.BertModel) and mine.pooler is None:
        del others["pooler_output"]  # the checkpoint lacks a pooler: transformers makes one up, we have none
    return [
        {
            "dtype": dtype,
            "attention": attention,
            **_row(output, exact.get(output), ours.get(output), others.get(output)),
        }
        for output in dict.fromkeys([*others, *ours])
    ]


def _row(output: str, exact: Any, ours: Any, others: Any) -> Row:
    """Compare one output of both sides, a tensor or a tuple of them; one that a side does not give is not equal."""
    import torch

    one, other, truth = _tuple(ours), _tuple(others), _tuple(exact)
    pairs = list(zip(one, other, strict=False))
    fits = len(one) == len(other) > 0 and all(a.shape == b.shape for a, b in pairs)
    shown = ours if others is None else others
    return {
        "output": output,
        "shape": ([len(shown)] if isinstance(shown, tuple) else []) + list(_tuple(shown)[0].shape),
        "difference": _largest(one, other),
        "plainbert_to_float64": _largest(one, truth) if truth else None,
        "transformers_to_float64": _largest(other, truth) if truth else None,
        "close": fits and all(torch.allclose(a, b, atol=1e-5) for a, b in pairs),
        "equal": fits and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs),
    }


def settle(model: torch.nn.Module) -> None:
    """Copy every parameter to fresh memory, ties kept.

    The last bit of a float32 product can depend on the address that its weights start at, and a mapped file starts
    them anywhere. With both sides in memory of their own, only the arithmetic is compared.
    """
    fresh: dict[int, torch.Tensor] = {}
    for parameter in model.parameters():
        parameter.data = fresh.setdefault(parameter.data_ptr(), parameter.data.clone())


def _outputs(model: Any, run: Run, *, attentions: bool) -> dict[str, Any]:
    import torch

    with torch.inference_mode():
        output = model(**run.batch, output_hidden_states=True, output_attentions=attentions)
    # Where no attentions are asked for, a side may give none or an empty tuple of them.
    return {key: value for key, value in output.items() if _tuple(value)}


def _tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _largest(some: tuple[torch.Tensor, ...], others: tuple[torch.Tensor, ...]) -> float:
    """Largest difference over tensors that belong together; infinite when their number differs."""
    if len(some) != len(others):
        return math.inf
    return max(_difference(one, other) for one, other in zip(some, others, strict=True))


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest absolute difference; infinite when the shapes differ."""
    if one.shape != other.shape:
        return math.inf
    return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
