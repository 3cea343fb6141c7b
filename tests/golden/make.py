"""Make the stored checkpoints and their stored outputs again: ``python tests/golden/make.py``.

Each folder beside this file holds a tiny checkpoint as transformers saves it, and ``expected.safetensors``: inputs,
and what transformers makes of them in float64. The weights are stored in float16, so that the files are small, and
read as float32 or float64, which hold them exactly. ``old_names`` is a checkpoint under the names of 2018. Needs
transformers; the test that reads the folders does not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent
HEADS = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
)
FIELDS = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 19,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
}
ROWS, LENGTH, CHOICES = 3, 9, 2


def make_model(head: str) -> Any:
    """Draw every parameter of a head, biases and LayerNorms too, as numbers that float16 holds."""
    torch.manual_seed(HEADS.index(head))
    labels = 2 if head == "BertForQuestionAnswering" else 3
    model = getattr(transformers, head)(transformers.BertConfig(**FIELDS, num_labels=labels))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=0.2)
    return model.half()


def make_inputs(head: str) -> dict[str, torch.Tensor]:
    """Draw ids, segments and a mask; the second row is padded, the third is one token."""
    rows = ROWS * CHOICES if head == "BertForMultipleChoice" else ROWS
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] + [0] * 8]).repeat(rows // ROWS, 1)
    inputs = {
        "input_ids": torch.randint(1, 50, (rows, LENGTH)) * mask,
        "token_type_ids": torch.randint(0, 2, (rows, LENGTH)),
        "attention_mask": mask,
    }
    if head == "BertForMultipleChoice":
        return {name: value.view(ROWS, CHOICES, LENGTH) for name, value in inputs.items()}
    return inputs


def make_labels(head: str) -> dict[str, torch.Tensor]:
    """Give labels; a part of the tokens has none."""
    words = torch.tensor([[-100, 7, -100, 49, 3, -100, -100, -100, 8], [-100] * 9, [11] + [-100] * 8])
    tags = words.where(words < 0, words % 3)
    return {
        "BertModel": {},
        "BertForPreTraining": {"labels": words, "next_sentence_label": torch.tensor([0, 1, 0])},
        "BertForMaskedLM": {"labels": words},
        "BertForNextSentencePrediction": {"labels": torch.tensor([0, 1, 1])},
        "BertForSequenceClassification": {"labels": torch.tensor([2, 0, 1])},
        "BertForMultipleChoice": {"labels": torch.tensor([1, 0, 1])},
        "BertForTokenClassification": {"labels": tags},
        "BertForQuestionAnswering": {
            "start_positions": torch.tensor([2, 0, 30]),
            "end_positions": torch.tensor([4, 0, 30]),
        },
    }[head]


def expected_of(model: Any, head: str) -> dict[str, torch.Tensor]:
    """Run the model in float64 and give inputs and outputs under one flat set of names."""
    inputs, labels = make_inputs(head), make_labels(head)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(**inputs, **labels, output_hidden_states=True, output_attentions=True)
    found = {f"inputs.{name}": value for name, value in {**inputs, **labels}.items()}
    for name in ("loss", "logits", "prediction_logits", "seq_relationship_logits", "start_logits", "end_logits"):
        if getattr(outputs, name, None) is not None:
            found[f"outputs.{name}"] = getattr(outputs, name)
    if head == "BertModel":
        found["outputs.pooler_output"] = outputs.pooler_output
    for name in ("hidden_states", "attentions"):
        for index, value in enumerate(getattr(outputs, name)):
            found[f"outputs.{name}.{index}"] = value
    return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}


def main() -> None:
    """Write every folder."""
    for head in HEADS:
        folder = HERE / head
        model = make_model(head)
        model.save_pretrained(folder)
        save_file(expected_of(model.eval().double(), head), folder / "expected.safetensors")
    source, folder = HERE / "BertForPreTraining", HERE / "old_names"
    folder.mkdir(exist_ok=True)
    tensors = load_file(source / "model.safetensors")
    tensors["bert.embeddings.position_ids"] = torch.arange(FIELDS["max_position_embeddings"])[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in tensors.items()
    }
    save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    config = {**FIELDS, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "expected.safetensors").write_bytes((source / "expected.safetensors").read_bytes())


if __name__ == "__main__":
    main()
