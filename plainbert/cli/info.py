"""``plainbert info``: what a checkpoint holds, from its headers and small files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plainbert.cli import common
from plainbert.cli.declared import plan_of
from plainbert.cli.rows import render_table

if TYPE_CHECKING:
    from plainbert.checkpoints.folder import Source

_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
# What stands at the start of a head's weight names, and what it does.
_HEADS = {
    "pooler.": "pooler",
    "cls.predictions.": "masked language model",
    "cls.seq_relationship.": "next sentence",
    "classifier.": "classifier (sequence, token or multiple choice)",
    "qa_outputs.": "question answering",
}


@click.command(
    "info",
    epilog="""\b
Examples:
  plainbert info minilm
  plainbert info google-bert/bert-base-chinese --json
""",
)
@common.model_argument
@click.option("--json", "as_json", is_flag=True, help="Give JSON in place of the page.")
@common.hub_options
@common.debug_option
def command(name: str, as_json: bool, **hub: Any) -> int:
    """Say what a checkpoint holds: config, parameters, memory, files and hashes, head, pooling, names, tokenizer.

    Of the weights, the headers are read; the files are read whole only for their hashes. Of a Hub repo, files that
    are not needed to load the model are listed and not downloaded.
    """
    from plainbert.checkpoints.folder import FolderSource
    from plainbert.checkpoints.hub import find

    source = find(name, **hub)
    folder = source.require("config.json").parent
    hub["revision"] = None if isinstance(source, FolderSource) else source.commit
    model, tokenizer = _model(source), _tokenizer(source, name, hub)
    report = {
        "model": name,
        "folder": str(folder),
        "commit": source.commit,
        **model,
        "pooling": _pooling(source),
        "tokenizer": tokenizer,
        "embed_max_length": tokenizer and _longest(source, tokenizer, model["config"]["max_position_embeddings"]),
        "files": _files(source, folder),
    }
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False))
    else:
        click.echo(_page(report), nl=False)
    return common.DONE


def _model(source: Source) -> dict[str, Any]:
    """Describe config, parameters and names, by planning the load of the declared head without carrying it out."""
    from plainbert.checkpoints.layout import read_json
    from plainbert.checkpoints.tensors import open_tensors
    from plainbert.config import BertConfig
    from plainbert.models.bert import BertModel

    config: BertConfig = BertConfig.from_dict(read_json(source.require("config.json")))
    with open_tensors(source) as stored:
        infos = stored.infos
    model, plan = plan_of(config, infos)
    head = type(model).__name__
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if isinstance(model, BertModel) and model.pooler and any(name.startswith("pooler.") for name in plan.fresh):
        parameters -= sum(parameter.numel() for parameter in model.pooler.parameters())  # stays away, see BertModel
        plan.fresh = [name for name in plan.fresh if not name.startswith("pooler.")]
    bare = {name.removeprefix(plan.wrapper).removeprefix("bert.") for name in infos}
    renamed = {stored: here for here, stored in plan.sources.items() if stored != here}
    return {
        "head": head,
        "architectures": config.architectures,
        "config": config.to_dict(),
        "parameters": parameters,
        "memory_bytes": {dtype: parameters * width for dtype, width in _WIDTHS.items()},
        "weights": {
            "names": len(infos),
            "dtypes": dict(Counter(str(info.dtype).removeprefix("torch.") for info in infos.values())),
            "files": sorted({info.path.name for info in infos.values()}),
            "parts": [what for start, what in _HEADS.items() if any(name.startswith(start) for name in bare)],
            "read_as_they_are": len(plan.sources) - len(renamed),
            "renamed": renamed,
            "wrapper": plan.wrapper,
            "of_other_heads": plan.other_heads,
            "computed_here": plan.buffers,
            "unknown": plan.unknown,
            "fresh": plan.fresh,
        },
    }


def _pooling(source: Source) -> dict[str, Any] | None:
    """Describe what modules.json declares; None without one."""
    from plainbert.tasks.recipe import read_recipe

    if source.path("modules.json") is None:
        return None
    recipe = read_recipe(source)
    return {
        "modes": list(recipe.pooling),
        "normalize": recipe.normalize,
        "max_length": recipe.max_length,
        "lower_case": recipe.lower_case,
        "prompts": dict(recipe.prompts),
    }


def _longest(source: Source, tokenizer: dict[str, Any], positions: int) -> int:
    """Say at how many tokens ``embed`` cuts: what the encoder's folder declares, else its tokenizer, else its model."""
    from plainbert.tasks.recipe import Recipe, read_lengths, read_recipe

    recipe = Recipe(**read_lengths(source, "")) if source.path("modules.json") is None else read_recipe(source)
    return min(recipe.max_length or tokenizer["max_length"] or positions, positions)


def _tokenizer(source: Source, name: str, hub: dict[str, Any]) -> dict[str, Any] | None:
    """Describe the tokenizer; None for a checkpoint without one."""
    from plainbert.tasks.tokenizing import has_tokenizer
    from plainbert.text.settings import UNKNOWN_LENGTH
    from plainbert.text.tokenizer import BertTokenizer

    if not has_tokenizer(source):
        return None
    tokenizer = BertTokenizer.from_pretrained(name, **hub)
    length = tokenizer.model_max_length
    return {
        "kind": tokenizer.kind,
        "file": "vocab.txt" if source.path("tokenizer.json") is None else "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "tokens": len(tokenizer),
        "max_length": None if length == UNKNOWN_LENGTH else length,
    }


def _files(source: Source, folder: Path) -> list[dict[str, Any]]:
    """List the files with size and hash; of a Hub repo, those that are not in the cache by name alone."""
    from plainbert.checkpoints.folder import sha256_of

    listed = []
    for filename in source.filenames():
        # Looked at before it is asked for: asking would download it.
        path = source.path(filename) if (folder / filename).exists() else None
        size = None if path is None else path.stat().st_size
        listed.append({"name": filename, "bytes": size, "sha256": None if path is None else sha256_of(path)})
    return listed


def _page(report: dict[str, Any]) -> str:
    """Lay the report out for a reader."""
    weights, pooling, tokenizer = report["weights"], report["pooling"], report["tokenizer"]
    longest = tokenizer and tokenizer["max_length"]
    memory = ", ".join(f"{dtype} {_megabytes(size)}" for dtype, size in report["memory_bytes"].items())
    facts = {
        "model": f"{report['model']} in {report['folder']}"
        + (f", commit {report['commit']}" if report["commit"] else ""),
        "head": f"{report['head']} (config.json: {', '.join(report['architectures'] or ['none named'])})",
        "parameters": f"{report['parameters']:,}",
        "memory": memory,
        "weights": f"{weights['names']} in {', '.join(weights['files'])}: "
        + ", ".join(f"{count} {dtype}" for dtype, count in weights["dtypes"].items()),
        "parts": ", ".join(["encoder", *weights["parts"]]),
        "names": f"{weights['read_as_they_are']} stored under the name that plainbert uses, {len(weights['renamed'])} "
        "renamed on loading" + (f", all behind {weights['wrapper']!r}" if weights["wrapper"] else ""),
        "not loaded": _not_loaded(weights),
        "drawn": ", ".join(weights["fresh"]) or "none: every parameter is stored, none starts from random numbers",
        "pooling": "not declared (no modules.json)"
        if pooling is None
        else f"{' + '.join(pooling['modes'])}, {'normalised' if pooling['normalize'] else 'not normalised'}, "
        + ("no longest text declared" if pooling["max_length"] is None else f"at most {pooling['max_length']} tokens")
        + (f", prompts {', '.join(pooling['prompts'])}" if pooling["prompts"] else ""),
        "embed": "cannot run without a tokenizer"
        if report["embed_max_length"] is None
        else f"cuts texts to {report['embed_max_length']} tokens, unless --max-length says otherwise",
        "tokenizer": "none"
        if tokenizer is None
        else f"{tokenizer['kind']} from {tokenizer['file']}, {tokenizer['tokens']:,} tokens, "
        + ("no longest text declared" if longest is None else f"at most {longest} in a row"),
    }
    terminal = sys.stdout.isatty()
    blocks = [
        "".join(f"{key:<12}{common.printable(value)}\n" for key, value in facts.items()),
        "config\n"
        + "".join(
            f"  {key:<32}{common.printable(common.shorten(json.dumps(value, ensure_ascii=False), 80))}\n"
            for key, value in report["config"].items()
        ),
        render_table(
            [
                {
                    "file": file["name"],
                    "size": "not downloaded" if file["bytes"] is None else f"{file['bytes']:,}",
                    "sha256": file["sha256"] or "",
                }
                for file in report["files"]
            ],
            terminal=terminal,
            right=("size",),
        ),
    ]
    return "\n".join(blocks)


def _not_loaded(weights: dict[str, Any]) -> str:
    kinds = {
        "of heads that this model has not": weights["of_other_heads"],
        "computed, so not read from the file": weights["computed_here"],
        "unknown to plainbert": weights["unknown"],
    }
    return (
        "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
        or "none: every stored weight is used"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
