"""A user's own model: its names pass through saving and loading unchanged, and its own weights stay its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from plainbert import BertConfig, BertForSequenceClassification, BertModel, BertPreTrainedModel, PlainBertWarning
from plainbert.models.bert import BertLayer

Store = Callable[..., Path]
Fill = Callable[[BertPreTrainedModel], Any]


class Scorer(BertPreTrainedModel):
    """Names that look like a wrapper, an old LayerNorm, an encoder, a table; direct parameters; buffers."""

    def __init__(self, config: BertConfig, width: int = 3) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.module = nn.Linear(32, width)
        self.model = nn.Linear(width, 2)
        self.norm = nn.LayerNorm(width)
        self.gamma = nn.Parameter(torch.full((2,), 7.0))
        self.encoder = nn.Linear(2, 2)
        self.pooler = nn.Linear(2, 2)
        self.embeddings = nn.Embedding(5, 2)
        self.layer = BertLayer(config)
        self.register_buffer("scale", torch.full((2,), 3.0))
        self.register_buffer("count", torch.tensor(4))
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        with torch.no_grad():
            self.model.weight.fill_(0.25)

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden = self.norm(self.module(self.layer(self.bert(input_ids).last_hidden_state)[0]))
        hidden = self.pooler(self.encoder(self.model(hidden))) * self.gamma * self.scale
        return hidden + self.embeddings(input_ids % 5) + self.count + self.passing


def names_in(folder: Path) -> set[str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


def test_names_of_any_sort_pass_through_unchanged(
    small: BertConfig, rows: Tensor, randomized: Fill, tmp_path: Path
) -> None:
    model = randomized(Scorer(small, width=6))
    model.scale.mul_(2)
    model.count.fill_(9)
    model.save_pretrained(tmp_path)
    assert names_in(tmp_path) == set(model.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Scorer.from_pretrained(tmp_path, width=6)
    assert torch.equal(loaded(rows), model(rows))
    assert int(loaded.count) == 9
    assert loaded.count.dtype == torch.int64


def test_what_the_file_lacks_stays_as_the_subclass_made_it(small: BertConfig, store: Store) -> None:
    folder = store(BertModel(small).state_dict(), small)
    with pytest.warns(
        PlainBertWarning, match=r"no weights for gamma, scale, count, module\.weight.* of Scorer"
    ) as caught:
        model = Scorer.from_pretrained(folder)
    assert len(caught) == 1
    assert (model.model.weight == 0.25).all()
    assert (model.gamma == 7).all()
    assert (model.scale == 3).all()
    assert int(model.count) == 4
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


@pytest.mark.parametrize("written", ["as saved", "without bert.", "module.", "gamma and beta"])
def test_own_names_are_found_in_every_spelling_of_the_file(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, written: str
) -> None:
    class Model(BertPreTrainedModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.bert = BertModel(config)
            self.scorer = nn.Linear(32, 3)
            self.alpha = nn.Parameter(torch.zeros(3))
            self.register_buffer("scale", torch.ones(3))

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.scorer(self.bert(input_ids).pooler_output) * self.scale + self.alpha

    model = randomized(Model(small))
    model.scale.fill_(5)
    rename: dict[str, Callable[[str], str]] = {
        "as saved": lambda name: name,
        "without bert.": lambda name: name.removeprefix("bert."),
        "module.": lambda name: f"module.{name}",
        "gamma and beta": lambda name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"),
    }
    folder = store({rename[written](name): tensor for name, tensor in model.state_dict().items()}, small)
    assert torch.equal(Model.from_pretrained(folder)(rows), model(rows))


@pytest.mark.parametrize("prefix", ["model", "module", "backbone", "auto_model"])
def test_the_encoder_may_have_another_name(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, tmp_path: Path, prefix: str
) -> None:
    class Model(BertPreTrainedModel):
        base_model_prefix = prefix

        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            setattr(self, prefix, BertModel(config))

    model = randomized(Model(small))
    model.save_pretrained(tmp_path / "own")
    expected = model.base_model(rows).pooler_output
    assert torch.equal(Model.from_pretrained(tmp_path / "own").base_model(rows).pooler_output, expected)
    bare = model.base_model.state_dict()
    for written in (bare, {f"bert.{name}": tensor for name, tensor in bare.items()}):
        loaded = Model.from_pretrained(store(written, small))
        assert torch.equal(loaded.base_model(rows).pooler_output, expected)


def test_a_name_of_the_models_own_is_no_wrapper(small: BertConfig, randomized: Fill, tmp_path: Path) -> None:
    """Every name begins with `module.`, because the encoder is called so and holds all there is."""

    class Model(BertPreTrainedModel):
        base_model_prefix = "module"

        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.module = BertModel(config)
            self.module.adapter = nn.Linear(32, 4)

    model = randomized(Model(small))
    model.save_pretrained(tmp_path)
    assert torch.equal(Model.from_pretrained(tmp_path).module.adapter.weight, model.module.adapter.weight)


def test_a_subclass_of_the_bare_model_keeps_its_pooler_beside_its_own(small: BertConfig, store: Store) -> None:
    class Model(BertModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.attention_pooler = nn.Linear(32, 1)

    with pytest.warns(PlainBertWarning, match=r"no weights for attention_pooler\.weight, attention_pooler\.bias"):
        model = Model.from_pretrained(store(BertModel(small).state_dict(), small))
    assert model.pooler is not None


def test_a_head_that_a_subclass_replaces_is_the_one_that_is_loaded(
    small: BertConfig, rows: Tensor, randomized: Fill, tmp_path: Path
) -> None:
    class Model(BertForSequenceClassification):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.classifier = nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, config.num_labels))

    model = randomized(Model(small))
    model.save_pretrained(tmp_path)
    assert torch.equal(Model.from_pretrained(tmp_path)(rows).logits, model(rows).logits)


def test_ties_of_a_subclass_are_kept(small: BertConfig, randomized: Fill, tmp_path: Path) -> None:
    class Model(BertPreTrainedModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.bert = BertModel(config)
            self.output = nn.Linear(32, config.vocab_size, bias=False)
            self.output.weight = self.bert.embeddings.word_embeddings.weight

    model = randomized(Model(small))
    model.save_pretrained(tmp_path)
    assert "output.weight" not in names_in(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert loaded.output.weight is loaded.bert.embeddings.word_embeddings.weight
    assert torch.equal(loaded.output.weight, model.output.weight)


def test_frozen_weights_come_back_frozen(small: BertConfig, tmp_path: Path) -> None:
    class Model(BertPreTrainedModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.bert = BertModel(config)
            self.head = nn.Linear(32, 2)
            for parameter in self.bert.parameters():
                parameter.requires_grad = False

    Model(small).save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert not any(parameter.requires_grad for parameter in loaded.bert.parameters())
    assert all(parameter.requires_grad for parameter in loaded.head.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_what_a_subclass_made_follows_the_dtype(small: BertConfig, store: Store, dtype: torch.dtype) -> None:
    with pytest.warns(PlainBertWarning, match="no weights for"):
        model = Scorer.from_pretrained(store(BertModel(small).state_dict(), small), dtype=dtype)
    floating = {tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()}
    assert floating == {dtype}
    assert model.count.dtype == torch.int64


def test_arguments_of_the_constructor_are_handed_on(small: BertConfig, tmp_path: Path) -> None:
    Scorer(small, width=4).save_pretrained(tmp_path)
    assert Scorer.from_pretrained(tmp_path, width=4).module.out_features == 4
    with pytest.raises(TypeError, match=r"Scorer\.from_pretrained has no keyword 'widht'; it takes .*width"):
        Scorer.from_pretrained(tmp_path, widht=4)
    with pytest.raises(ValueError, match=r"has the shape \(.*4.*\) in the checkpoint but \(.*3.*\) in Scorer"):
        Scorer.from_pretrained(tmp_path)


def test_a_constructor_may_load_another_model(small: BertConfig, store: Store, tmp_path: Path) -> None:
    """A teacher beside the student: the building without weights goes on after it."""
    teacher = store(BertModel(small).state_dict(), small)

    class Model(BertPreTrainedModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.teacher = BertModel.from_pretrained(teacher)
            self.bert = BertModel(config)
            self.bert_is_empty = self.bert.embeddings.word_embeddings.weight.is_meta

    Model(small).save_pretrained(tmp_path / "own")
    before = torch.get_rng_state()
    loaded = Model.from_pretrained(tmp_path / "own")
    assert loaded.bert_is_empty
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(parameter.is_meta for parameter in loaded.parameters())


def test_a_saved_subclass_gives_its_encoder_to_others(small: BertConfig, rows: Tensor, tmp_path: Path) -> None:
    class Model(BertPreTrainedModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.bert = BertModel(config)
            self.scorer = nn.Linear(32, 3)

    model = Model(small).eval()
    model.save_pretrained(tmp_path)
    with pytest.warns(PlainBertWarning, match=r"BertModel does not use: scorer\.bias, scorer\.weight"):
        base = BertModel.from_pretrained(tmp_path)
    assert torch.equal(base(rows).pooler_output, model.bert(rows).pooler_output)


class Tied(BertPreTrainedModel):
    """Two names for one parameter, made by the subclass itself."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight


def test_ties_of_a_subclass_are_kept_while_the_file_agrees(small: BertConfig, store: Store) -> None:
    model = Tied(small)
    agreeing = Tied.from_pretrained(store(model.state_dict(), small))
    assert agreeing.first.weight is agreeing.second.weight
    other = torch.full((3, 3), 5.0)
    folder = store({**model.state_dict(), "second.weight": other}, small)
    with pytest.warns(PlainBertWarning, match=r"first\.weight and second\.weight are stored with different values"):
        parted = Tied.from_pretrained(folder)
    assert torch.equal(parted.first.weight, model.first.weight)
    assert torch.equal(parted.second.weight, other)


def test_a_name_from_a_file_cannot_steer_the_terminal(small: BertConfig, store: Store) -> None:
    folder = store({**BertModel(small).state_dict(), "mine\x1b[2J": torch.zeros(1)}, small)
    with pytest.warns(PlainBertWarning, match=r"does not use: mine\\x1b\[2J$"):
        BertModel.from_pretrained(folder)
