"""BERT on disk: how its weights are named in released checkpoints.

The names here are BERT's own, so the table mostly says which spellings of the same name exist: with and without the
``bert.`` of a model with a head, LayerNorm's ``gamma`` and ``beta`` of 2018, and what is stored twice.
"""

from __future__ import annotations

from plainbert.checkpoints.weight_map import Rule, WeightMap

# Every weight of the encoder, as one alternative of a pattern; LayerNorm apart, for its two spellings.
_DENSE = (
    r"encoder\.layer\.\d+\."
    r"(?:attention\.self\.(?:query|key|value)|attention\.output\.dense|intermediate\.dense|output\.dense)"
)
_NORM = r"(?:embeddings|encoder\.layer\.\d+\.attention\.output|encoder\.layer\.\d+\.output)\.LayerNorm"
_TABLE = r"embeddings\.(?:word|position|token_type)_embeddings\.weight"

RULES = (
    Rule(rf"(?:bert\.)?({_TABLE})", r"bert.\1"),
    Rule(rf"(?:bert\.)?((?:{_DENSE}|pooler\.dense)\.(?:weight|bias))", r"bert.\1"),
    Rule(rf"(?:bert\.)?({_NORM})\.(?:weight|gamma)", r"bert.\1.weight"),
    Rule(rf"(?:bert\.)?({_NORM})\.(?:bias|beta)", r"bert.\1.bias"),
    Rule(r"(?:bert\.)?(embeddings\.(?:position_ids|token_type_ids))", r"bert.\1"),
    Rule(r"(cls\.predictions\.transform\.LayerNorm)\.(?:weight|gamma)", r"\1.weight"),
    Rule(r"(cls\.predictions\.transform\.LayerNorm)\.(?:bias|beta)", r"\1.bias"),
    Rule(r"(cls\.predictions\.transform\.dense\.(?:weight|bias))", r"\1"),
    Rule(r"(cls\.predictions\.(?:bias|decoder\.weight|decoder\.bias))", r"\1"),
    Rule(r"(cls\.seq_relationship\.(?:weight|bias))", r"\1"),
    Rule(r"((?:classifier|qa_outputs)\.(?:weight|bias))", r"\1"),
)
WEIGHT_MAP = WeightMap(RULES)

# Names that belong to the encoder. A weight among them that no rule knows changes the result (an adapter, another
# attention), so it is an error; an unknown name outside them belongs to somebody's head and is only named.
ENCODER_NAMESPACES = ("bert.", "embeddings.", "encoder.", "pooler.")
