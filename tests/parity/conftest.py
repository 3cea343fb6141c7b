"""The one way to compare a model here with the same model in transformers: ``parity``.

Equal means ``torch.equal`` after both sides have fresh memory. References have their biases and LayerNorms drawn too:
transformers starts them at 0 and 1, where leaving one out would change nothing.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import plainbert

transformers = pytest.importorskip("transformers", reason="the yardstick; it needs Python 3.11")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# Head -> the fields of its output, besides loss, hidden_states and attentions.
HEADS = {
    "BertModel": ("last_hidden_state", "pooler_output"),
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),
    "BertForMaskedLM": ("logits",),
    "BertForNextSentencePrediction": ("logits",),
    "BertForSequenceClassification": ("logits",),
    "BertForMultipleChoice": ("logits",),
    "BertForTokenClassification": ("logits",),
    "BertForQuestionAnswering": ("start_logits", "end_logits"),
}
ROWS, LENGTH, CHOICES = 3, 11, 2
LENGTHS = (11, 7, 1)  # tokens in each row, the rest is padding


def differences(ours: Any, theirs: Any, name: str) -> Iterator[str]:
    """Name what differs between two tensors, or two tuples of them."""
    if isinstance(theirs, tuple):
        if not isinstance(ours, tuple) or len(ours) != len(theirs):
            yield f"{name}: a tuple of {len(theirs)} expected, got {type(ours).__name__}"
        else:
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from differences(one, other, f"{name}[{index}]")
    elif (ours is None) != (theirs is None):
        yield f"{name}: {'missing' if ours is None else 'not in transformers'}"
    elif theirs is not None:
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            yield f"{name}: {ours.dtype} {tuple(ours.shape)} for {theirs.dtype} {tuple(theirs.shape)}"
        elif not torch.equal(ours, theirs):
            yield f"{name}: off by {(ours.double() - theirs.double()).abs().max():.3e}"


class Parity:
    """Models in pairs, inputs for them, and the comparisons."""

    heads = tuple(HEADS)

    def __init__(self, tiny_config: Callable[..., dict[str, Any]], fresh: Callable[[Any], Any], folder: Path) -> None:
        self.tiny_config, self.fresh, self.folder = tiny_config, fresh, folder
        self.saved, self.paired = functools.cache(self._saved), functools.cache(self._paired)

    # --- models ---

    def fields(self, head: str, **overrides: Any) -> dict[str, Any]:
        """Give the config fields of a tiny model under ``head``."""
        labels = 2 if head == "BertForQuestionAnswering" else 3
        return self.tiny_config(**{"num_labels": labels, **overrides})

    def _saved(self, head: str, std: float, overrides: tuple[tuple[str, Any], ...]) -> Path:
        """Save a reference whose every parameter is drawn, once for each head and shape, and give its folder."""
        torch.manual_seed(len(head) + round(100 * std))
        fields = self.fields(head, initializer_range=std, **dict(overrides))
        model = getattr(transformers, head)(transformers.BertConfig(**fields))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim == 1:
                    parameter.normal_(mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=max(std, 0.1))
        place = self.folder / f"{head}-{len(list(self.folder.iterdir()))}"
        model.save_pretrained(place)
        return place

    def pair(
        self, head: str, attention: str = "sdpa", dtype: torch.dtype = torch.float32, std: float = 0.3, **overrides: Any
    ) -> tuple[Any, Any]:
        """Give one checkpoint as loaded here and in transformers, in evaluation mode; tests share them unchanged."""
        return self.paired(head, attention, dtype, std, tuple(sorted(overrides.items())))

    def _paired(
        self, head: str, attention: str, dtype: torch.dtype, std: float, overrides: tuple[tuple[str, Any], ...]
    ) -> tuple[Any, Any]:
        place = self.saved(head, std, overrides)
        ours, theirs = self.load(head, place, attn_implementation=attention, dtype=dtype)
        assert not ours.training
        return ours, theirs

    def own_pair(self, head: str, dtype: torch.dtype = torch.float32, std: float = 0.3, **overrides: Any) -> Any:
        """Give a pair that the test may change."""
        return self.load(head, self.saved(head, std, tuple(sorted(overrides.items()))), dtype=dtype)

    def load(self, head: str, place: Path, **options: Any) -> tuple[Any, Any]:
        """Load ``place`` here and in transformers, in fresh memory."""
        ours = getattr(plainbert, head).from_pretrained(place, **options)
        theirs = getattr(transformers, head).from_pretrained(place, **options).eval()
        return self.fresh(ours), self.fresh(theirs)

    # --- inputs ---

    def batch(self, head: str = "BertModel", seed: int = 0) -> dict[str, Tensor]:
        """Give ids, segments and a mask of rows of different lengths. Id 0, the padding, stands nowhere."""
        generator = torch.Generator().manual_seed(seed)
        rows = ROWS * CHOICES if head == "BertForMultipleChoice" else ROWS
        mask = torch.tensor([[1] * n + [0] * (LENGTH - n) for n in LENGTHS]).repeat(rows // ROWS, 1)
        flat = {
            "input_ids": torch.randint(1, 99, (rows, LENGTH), generator=generator),
            "token_type_ids": torch.randint(0, 2, (rows, LENGTH), generator=generator),
            "attention_mask": mask,
        }
        if head == "BertForMultipleChoice":
            return {name: value.view(ROWS, CHOICES, LENGTH) for name, value in flat.items()}
        return flat

    def labels(self, head: str, seed: int = 1) -> dict[str, Tensor]:
        """Give labels for ``batch(head)``: some tokens are not to be guessed."""
        generator = torch.Generator().manual_seed(seed)

        def draw(high: int, *shape: int) -> Tensor:
            return torch.randint(0, high, shape, generator=generator)

        words, tags = draw(99, ROWS, LENGTH), draw(3, ROWS, LENGTH)
        for tokens in (words, tags):
            tokens[draw(3, ROWS, LENGTH) > 0] = -100
            tokens[0, 0] = 1  # never all of them
        return {
            "BertModel": {},
            "BertForPreTraining": {"labels": words, "next_sentence_label": draw(2, ROWS)},
            "BertForMaskedLM": {"labels": words},
            "BertForNextSentencePrediction": {"labels": draw(2, ROWS)},
            "BertForSequenceClassification": {"labels": draw(3, ROWS)},
            "BertForMultipleChoice": {"labels": draw(CHOICES, ROWS)},
            "BertForTokenClassification": {"labels": tags},
            "BertForQuestionAnswering": {"start_positions": draw(LENGTH, ROWS), "end_positions": draw(LENGTH, ROWS)},
        }[head]

    # --- comparisons ---

    def assert_equal(self, ours: Any, theirs: Any, name: str = "value") -> None:
        """Two tensors, or tuples of them, must be the same to the last bit."""
        found = list(differences(ours, theirs, name))
        assert not found, "\n".join(found)

    def assert_same_outputs(
        self, head: str, ours: Any, theirs: Any, inputs: dict[str, Any], theirs_inputs: dict[str, Any] | None = None
    ) -> Any:
        """Every field of both outputs must be the same to the last bit; the output here is given back."""
        with torch.no_grad():
            one, other = ours(**inputs), theirs(**(inputs if theirs_inputs is None else theirs_inputs))
        found = [
            line
            for field in (*HEADS[head], "hidden_states", "attentions", *(["loss"] if head != "BertModel" else []))
            for line in differences(getattr(one, field), getattr(other, field, None), field)
        ]
        assert not found, "\n".join(found)
        return one

    def loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Give the model's loss; for the bare model a number in which every output has a part."""
        outputs = model(**inputs)
        loss: Tensor | None = getattr(outputs, "loss", None)
        if loss is None:
            loss = outputs.last_hidden_state.pow(2).mean() + outputs.pooler_output.sum()
        return loss

    def gradients(self, model: nn.Module, inputs: dict[str, Any], seed: int = 5) -> dict[str, Tensor]:
        """Give loss and every gradient, from one state of the random number generator."""
        torch.manual_seed(seed)
        loss = self.loss(model, inputs)
        loss.backward()
        grads = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        model.zero_grad()
        return {"loss": loss.detach(), **grads}

    def assert_same_gradients(self, ours: nn.Module, theirs: nn.Module, inputs: dict[str, Any]) -> None:
        """Loss and every gradient must be the same to the last bit, and there must be as many."""
        self.assert_same_tensors(self.gradients(ours, inputs), self.gradients(theirs, inputs))

    def assert_same_tensors(self, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
        """Two dictionaries must have the same names and the same values to the last bit."""
        assert sorted(ours) == sorted(theirs)
        found = [line for name in theirs for line in differences(ours[name], theirs[name], name)]
        assert not found, "\n".join(found)

    def after_steps(self, model: nn.Module, inputs: dict[str, Any], steps: int = 3) -> dict[str, Tensor]:
        """Give every parameter of a copy of the model after a few steps of AdamW with dropout on."""
        trained = self.fresh(copy.deepcopy(model)).train()
        torch.manual_seed(11)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            self.loss(trained, inputs).backward()
            optimizer.step()
        return {name: value.detach() for name, value in trained.named_parameters()}


@pytest.fixture(scope="session")
def parity(
    tiny_config: Callable[..., dict[str, Any]],
    fresh_memory: Callable[[Any], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Parity:
    """Models in pairs, inputs for them, and the comparisons."""
    return Parity(tiny_config, fresh_memory, tmp_path_factory.mktemp("parity"))


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> str:
    """Each of the eight models."""
    return str(request.param)


@pytest.fixture(params=("eager", "sdpa"))
def attention(request: pytest.FixtureRequest) -> str:
    """Each way to compute attention."""
    return str(request.param)


@pytest.fixture(params=(torch.float32, torch.float64, torch.bfloat16), ids=lambda dtype: str(dtype)[6:])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each dtype of a comparison."""
    found: torch.dtype = request.param
    return found


@pytest.fixture(params=(0.02, 0.3))
def std(request: pytest.FixtureRequest) -> float:
    """Weights as drawn, and large ones, under which a small slip is seen."""
    return float(request.param)
