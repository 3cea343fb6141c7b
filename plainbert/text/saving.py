"""A tokenizer to the files that transformers and we load back with equal ids; ``loading.py`` writes them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from tokenizers import models

from plainbert.text.backend import Backend, class_name, is_standard, library_errors
from plainbert.text.settings import INPUT_NAMES, Settings
from plainbert.text.vocab import format_vocab

log = logging.getLogger("plainbert")

# Where a tokenizer came from is nobody's business, and what is inside tokenizer.json is not said twice.
_NOT_SAVED = (
    "name_or_path",
    "tokenizer_file",
    "special_tokens_map_file",
    "vocab_file",
    "auto_map",
    "added_tokens_decoder",
    "extra_special_tokens",
    "max_len",
)


def tokenizer_files(backend: Backend, config: Mapping[str, Any], settings: Settings) -> dict[str, bytes]:
    """Return tokenizer.json, tokenizer_config.json, special_tokens_map.json, and vocab.txt for a WordPiece tokenizer.

    Args:
        backend: The tokenizer.
        config: The tokenizer_config.json that it was loaded with; keys that are not ours are kept.
        settings: What was read from it, and assigned since.

    Returns:
        Name of the file to its content.
    """
    with library_errors("saving tokenizer.json"):
        files = {"tokenizer.json": backend.tokenizer.to_str(pretty=True).encode()}
    files["tokenizer_config.json"] = _json(_config(backend, config, settings))
    files["special_tokens_map.json"] = _json(_special_tokens_map(backend))
    if isinstance(backend.tokenizer.model, models.WordPiece):
        vocab = format_vocab(backend.tokenizer.get_vocab(with_added_tokens=False))
        if vocab is None:
            log.warning("vocab.txt is not written: a line cannot hold every token; tokenizer.json has them all")
        else:
            files["vocab.txt"] = vocab.encode()
    return files


def _special_tokens_map(backend: Backend) -> dict[str, Any]:
    saved: dict[str, Any] = {role: token for role, token in backend.special.named.items() if token is not None}
    if backend.special.extra:
        saved["additional_special_tokens"] = list(backend.special.extra)
    return saved


def _config(backend: Backend, config: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    saved = {key: value for key, value in config.items() if key not in _NOT_SAVED}
    # null, where a role is empty, keeps its default from being taken on the way back.
    saved |= backend.special.named | _special_tokens_map(backend) | backend.switches
    saved |= {
        "model_max_length": settings.model_max_length,
        "padding_side": settings.padding_side,
        "truncation_side": settings.truncation_side,
    }
    name = class_name(config)
    if isinstance(backend.tokenizer.model, models.WordPiece):
        # transformers rebuilds BERT's pipeline for such a class; for any other pipeline the file must be taken whole.
        whole = not is_standard(backend.tokenizer, backend.special)
    else:
        whole = name in (None, "BertTokenizer")
    saved["tokenizer_class"] = "PreTrainedTokenizerFast" if whole else name or "BertTokenizer"
    if whole or settings.input_names != INPUT_NAMES:
        saved["model_input_names"] = list(settings.input_names)
    return saved


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
