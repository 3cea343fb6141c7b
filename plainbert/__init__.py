"""BERT in PyTorch that you can read and trust.

The public names are resolved on first use, so that ``import plainbert`` costs nothing: torch is imported by the
first model, the ``tokenizers`` library by the first tokenizer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# name -> the module that defines it. One table, so that the lazy lookup, `dir()` and `__all__` cannot disagree.
_HOMES = {
    "BertConfig": "config",
    "BertModel": "models.bert",
    "BertPreTrainedModel": "models.pretrained",
    "BertForPreTraining": "models.heads",
    "BertForMaskedLM": "models.heads",
    "BertForNextSentencePrediction": "models.heads",
    "BertForSequenceClassification": "models.heads",
    "BertForMultipleChoice": "models.heads",
    "BertForTokenClassification": "models.heads",
    "BertForQuestionAnswering": "models.heads",
    "BertTokenizer": "text.tokenizer",
    "Embedder": "tasks.embed",
    "PlainBertError": "errors",
    "InputError": "errors",
    "ConfigError": "errors",
    "CheckpointError": "errors",
    "MissingFileError": "errors",
    "TokenizerError": "errors",
    "KeywordError": "errors",
    "HubError": "errors",
    "PlainBertWarning": "errors",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from plainbert.config import BertConfig as BertConfig
    from plainbert.errors import CheckpointError as CheckpointError
    from plainbert.errors import ConfigError as ConfigError
    from plainbert.errors import HubError as HubError
    from plainbert.errors import InputError as InputError
    from plainbert.errors import KeywordError as KeywordError
    from plainbert.errors import MissingFileError as MissingFileError
    from plainbert.errors import PlainBertError as PlainBertError
    from plainbert.errors import PlainBertWarning as PlainBertWarning
    from plainbert.errors import TokenizerError as TokenizerError
    from plainbert.models.bert import BertModel as BertModel
    from plainbert.models.heads import BertForMaskedLM as BertForMaskedLM
    from plainbert.models.heads import BertForMultipleChoice as BertForMultipleChoice
    from plainbert.models.heads import BertForNextSentencePrediction as BertForNextSentencePrediction
    from plainbert.models.heads import BertForPreTraining as BertForPreTraining
    from plainbert.models.heads import BertForQuestionAnswering as BertForQuestionAnswering
    from plainbert.models.heads import BertForSequenceClassification as BertForSequenceClassification
    from plainbert.models.heads import BertForTokenClassification as BertForTokenClassification
    from plainbert.models.pretrained import BertPreTrainedModel as BertPreTrainedModel
    from plainbert.tasks.embed import Embedder as Embedder
    from plainbert.text.tokenizer import BertTokenizer as BertTokenizer


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'plainbert' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"plainbert.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
