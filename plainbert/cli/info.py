"""``plainbert info``: what a checkpoint holds, from its headers and small files."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plainbert.cli import common

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
_MAX_TOKENIZER_BYTES = 256 << 20


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
    report = {
        "model": name,
        "folder": str(folder),
        "commit": source.commit,
        **_model(source),
        "pooling": _pooling(source),
        "tokenizer": _tokenizer(source, name, hub),
        "files": _files(source, folder),
    }
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False))
    else:
        click.echo(_page(report), nl=False)
    return common.DONE


def _model(source: Source) -> dict[str, Any]:
    """Describe config, parameters and names, by planning the load of the declared head without carrying it out."""
    import plainbert
    from plainbert.checkpoints.layout import read_json
    from plainbert.checkpoints.tensors import open_tensors
    from plainbert.cli.verify import HEADS
    from plainbert.config import BertConfig
    from plainbert.loading_plan import plan_loading
    from plainbert.models.pretrained import without_weights

    config: BertConfig = BertConfig.from_dict(read_json(source.require("config.json")))
    head = next((one for one in config.architectures or () if one in HEADS), "BertModel")
    with open_tensors(source) as stored:
        infos = stored.infos
    with without_weights():
        model = getattr(plainbert, head)(config)
    plan = plan_loading(model, infos)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if head == "BertModel" and any(name.startswith("pooler.") for name in plan.fresh):
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


def _tokenizer(source: Source, name: str, hub: dict[str, Any]) -> dict[str, Any] | None:
    """Describe the tokenizer; None for a checkpoint without one."""
    from plainbert.checkpoints.layout import read_json
    from plainbert.text.tokenizer import BertTokenizer

    if not common.has_tokenizer(source):
        return None
    tokenizer = BertTokenizer.from_pretrained(name, **hub)
    path, kind = source.path("tokenizer.json"), "WordPiece"
    if path is not None:
        model = read_json(path, max_bytes=_MAX_TOKENIZER_BYTES).get("model")
        kind = str(model.get("type", kind)) if isinstance(model, dict) else kind
    return {
        "kind": kind,
        "file": "vocab.txt" if path is None else "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "tokens": len(tokenizer),
        "max_length": tokenizer.model_max_length,
    }


def _files(source: Source, folder: Path) -> list[dict[str, Any]]:
    """List the files with size and hash; of a Hub repo, those that are not in the cache by name alone."""
    listed = []
    for filename in source.filenames():
        # Looked at before it is asked for: asking would download it.
        path = source.path(filename) if (folder / filename).exists() else None
        size = None if path is None else path.stat().st_size
        listed.append({"name": filename, "bytes": size, "sha256": None if path is None else _sha256(path)})
    return listed


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _page(report: dict[str, Any]) -> str:
    """Lay the report out for a reader."""
    weights, pooling, tokenizer = report["weights"], report["pooling"], report["tokenizer"]
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
        "names": f"{weights['read_as_they_are']} as they are here, {len(weights['renamed'])} renamed"
        + (f", all behind {weights['wrapper']!r}" if weights["wrapper"] else ""),
        "leftovers": _leftovers(weights),
        "fresh": ", ".join(weights["fresh"]) or "none: every parameter is stored",
        "pooling": "not declared (no modules.json)"
        if pooling is None
        else f"{' + '.join(pooling['modes'])}, {'normalised' if pooling['normalize'] else 'not normalised'}, "
        f"at most {pooling['max_length'] or 'as many as the model takes'} tokens"
        + (f", prompts {', '.join(pooling['prompts'])}" if pooling["prompts"] else ""),
        "tokenizer": "none"
        if tokenizer is None
        else f"{tokenizer['kind']} from {tokenizer['file']}, {tokenizer['tokens']:,} tokens, at most "
        f"{tokenizer['max_length'] or 'any number of'} in a row",
    }
    terminal = sys.stdout.isatty()
    blocks = [
        "".join(f"{key:<12}{common.printable(value)}\n" for key, value in facts.items()),
        "config\n"
        + "".join(
            f"  {key:<32}{common.printable(common.shorten(json.dumps(value, ensure_ascii=False), 80))}\n"
            for key, value in report["config"].items()
        ),
        common.render_table(
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


def _leftovers(weights: dict[str, Any]) -> str:
    kinds = {
        "of other heads": weights["of_other_heads"],
        "computed here": weights["computed_here"],
        "unknown": weights["unknown"],
    }
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names) or "none"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
