"""How loading runs: dtypes, devices, the config given, randomness, threads, memory, and numbers that are none."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plainbert import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    CheckpointError,
    ConfigError,
    InputError,
    PlainBertWarning,
)

Store = Callable[..., Path]
Fill = Callable[[BertPreTrainedModel], Any]


@pytest.fixture
def folder(small: BertConfig, store: Store) -> Path:
    """A bare model in float32."""
    return store(BertModel(small).state_dict(), small)


# --- dtype ---


@pytest.mark.parametrize("asked", [torch.float16, "float16", "torch.float16"])
@pytest.mark.parametrize("word", ["dtype", "torch_dtype"])
def test_the_dtype_asked_for_is_used_under_both_words(folder: Path, word: str, asked: Any) -> None:
    model = BertModel.from_pretrained(folder, **{word: asked})
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    assert model.config.dtype == "float16"


def test_a_dtype_given_by_both_words_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"dtype must be given once, got dtype='float16' and torch_dtype='float32'"):
        BertModel.from_pretrained(folder, dtype="float16", torch_dtype="float32")


@pytest.mark.parametrize("asked", [None, "auto"])
@pytest.mark.parametrize(
    ("in_config", "stored", "expected"),
    [
        (None, torch.float32, torch.float32),
        (None, torch.bfloat16, torch.bfloat16),
        (None, torch.float64, torch.float64),
        ("float16", torch.float32, torch.float16),
        ("float32", torch.float16, torch.float32),
    ],
)
def test_without_one_the_dtype_is_that_of_the_config_else_of_the_weights(
    small: BertConfig,
    store: Store,
    asked: str | None,
    in_config: str | None,
    stored: torch.dtype,
    expected: torch.dtype,
) -> None:
    small.dtype = in_config
    state = {name: tensor.to(stored) for name, tensor in BertModel(small).state_dict().items()}
    model = BertModel.from_pretrained(store(state, small), dtype=asked)
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


def test_integers_that_come_first_do_not_decide_the_dtype(small: BertConfig, store: Store) -> None:
    state = {name: tensor.half() for name, tensor in BertModel(small).state_dict().items()}
    folder = store({"embeddings.position_ids": torch.arange(40)[None], **state}, small)
    assert BertModel.from_pretrained(folder).dtype == torch.float16


@pytest.mark.parametrize("wrong", ["float8", "int8", torch.int64, torch.complex64, "half", 16])
@pytest.mark.parametrize("word", ["dtype", "torch_dtype"])
def test_another_dtype_is_refused(folder: Path, word: str, wrong: Any) -> None:
    with pytest.raises(InputError, match=f"dtype must be one of float32, .*got {wrong!r}"):
        BertModel.from_pretrained(folder, **{word: wrong})


def test_values_are_converted_once_from_what_is_stored(small: BertConfig, store: Store, randomized: Fill) -> None:
    """A float64 number goes straight to bfloat16, not by way of float32, which would round twice."""
    state = {name: tensor.double() + 1e-3 for name, tensor in randomized(BertModel(small)).state_dict().items()}
    loaded = BertModel.from_pretrained(store(state, small), dtype=torch.bfloat16)
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, state[name].bfloat16())


# --- device, attention, mode ---


@pytest.mark.parametrize("wrong", ["cudaa", "gpu", "", "cpu:x", None, 1.5])
def test_a_device_that_is_none_is_refused_before_anything_is_read(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"device must be one .*got {wrong!r}"):
        BertModel.from_pretrained(tmp_path, device=wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda")])
def test_a_gpu_that_is_not_there_is_refused(folder: Path, device: Any) -> None:
    with pytest.raises(InputError, match=r"device must be one that this machine has, got 'cuda"):
        BertModel.from_pretrained(folder, device=device)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_the_default_device_of_torch_is_not_asked(small: BertConfig, rows: Tensor, store: Store, name: str) -> None:
    """Files are read on the CPU; where the weights go is an argument."""
    source = BertModel(small).eval()
    state = {**source.state_dict(), "embeddings.position_ids": torch.arange(40)[None]}
    folder = store(state, small, name)
    with torch.device("meta"):
        model = BertModel.from_pretrained(folder)
        with pytest.warns(PlainBertWarning, match="classifier"):
            head = BertForSequenceClassification.from_pretrained(folder)
    assert not any(parameter.is_meta for parameter in (*model.parameters(), *head.parameters()))
    assert torch.equal(model(rows).last_hidden_state, source(rows).last_hidden_state)


@pytest.mark.parametrize("asked", ["sdpa", "eager"])
def test_the_attention_asked_for_is_used(folder: Path, asked: str) -> None:
    assert BertModel.from_pretrained(folder, attn_implementation=asked).config.attn_implementation == asked
    assert BertModel.from_pretrained(folder).config.attn_implementation == "sdpa"


@pytest.mark.parametrize("wrong", ["flash_attention_2", "", "SDPA", 1])
def test_another_attention_is_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"attn_implementation must be one of sdpa, eager, got {wrong!r}"):
        BertModel.from_pretrained(folder, attn_implementation=wrong)


def test_a_loaded_model_is_in_evaluation_and_can_be_trained(folder: Path, rows: Tensor) -> None:
    model = BertModel.from_pretrained(folder)
    assert not any(module.training for module in model.modules())
    model(rows).pooler_output.square().sum().backward()
    unused = {"embeddings.token_type_embeddings.weight", "embeddings.position_embeddings.weight"}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if name not in unused)
    assert not any(parameter.is_meta for parameter in model.parameters())


# --- a config of one's own ---


def test_a_config_given_replaces_the_file(small: BertConfig, folder: Path) -> None:
    (folder / "config.json").unlink()
    small.hidden_dropout_prob, small.attn_implementation, small.extra = 0.4, "eager", {"note": 1}
    model = BertModel.from_pretrained(folder, config=small, attention_probs_dropout_prob=0.2)
    config = model.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.4, 0.2)
    assert (config.attn_implementation, config.extra) == ("eager", {"note": 1})
    assert config is not small
    assert small.attention_probs_dropout_prob == 0.1
    assert small.dtype is None


@pytest.mark.parametrize("wrong", ["bert-base-uncased", {"hidden_size": 32}, 3])
def test_a_config_of_another_kind_is_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"config must be a plainbert\.BertConfig, got {type(wrong).__name__}"):
        BertModel.from_pretrained(folder, config=wrong)


# --- randomness ---


@pytest.mark.parametrize("head", [BertModel, BertForMaskedLM, BertForSequenceClassification])
def test_loading_draws_no_random_number_when_nothing_is_fresh(small: BertConfig, store: Store, head: Any) -> None:
    folder = store(head(small).state_dict(), small)
    before = torch.get_rng_state()
    head.from_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_fresh_weights_follow_the_seed(folder: Path) -> None:
    def load(seed: int) -> Tensor:
        torch.manual_seed(seed)
        with pytest.warns(PlainBertWarning, match="classifier"):
            return BertForSequenceClassification.from_pretrained(folder).classifier.weight

    assert torch.equal(load(1), load(1))
    assert not torch.equal(load(1), load(2))


def test_a_model_built_after_loading_is_drawn_as_ever(small: BertConfig, folder: Path) -> None:
    BertModel.from_pretrained(folder)
    assert BertModel(small).embeddings.word_embeddings.weight.std() > 0.2
    with pytest.raises(CheckpointError, match="lacks"):
        BertModel.from_pretrained(folder, num_hidden_layers=3)
    assert not BertModel(small).embeddings.word_embeddings.weight.is_meta


# --- threads and memory ---


def test_eight_threads_load_and_build_at_once(small: BertConfig, folder: Path, rows: Tensor) -> None:
    """Building without weights is a state of one thread: a model built by another beside it has its weights."""
    expected = BertModel.from_pretrained(folder)(rows).last_hidden_state

    def work(index: int) -> bool:
        if index % 4 == 3:
            model = BertModel(small)
            return not any(parameter.is_meta for parameter in model.parameters())
        return torch.equal(BertModel.from_pretrained(folder)(rows).last_hidden_state, expected)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(48)))


PEAK = """
import resource, sys
import torch, plainbert.models.heads
torch.set_num_threads(1)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
model = getattr(plainbert, sys.argv[1]).from_pretrained(sys.argv[2])
print(peak() - before, sum(p.numel() * p.element_size() for p in model.parameters()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
@pytest.mark.parametrize("head", ["BertModel", "BertForMaskedLM"])
def test_loading_never_holds_two_copies(tiny_config: Callable[..., dict[str, Any]], tmp_path: Path, head: str) -> None:
    """A decoder tied to a large table, and a bare file under a head: what is fresh is drawn without a copy either."""
    config = BertConfig(**tiny_config(vocab_size=60_000, hidden_size=256, intermediate_size=512))
    BertModel(config).save_pretrained(tmp_path)
    code = [sys.executable, "-W", "ignore", "-c", PEAK, head, str(tmp_path)]
    result = subprocess.run(code, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    grown, needed = map(int, result.stdout.split())
    assert needed > 60e6
    assert grown < 1.5 * needed


# --- numbers that are none ---


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_one_number_that_is_none_is_named(small: BertConfig, store: Store, value: float, dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in BertModel(small).state_dict().items()}
    state["encoder.layer.1.output.dense.weight"][3, 5] = value
    with pytest.warns(PlainBertWarning, match=r"NaN or Inf in encoder\.layer\.1\.output\.dense\.weight; ") as caught:
        BertModel.from_pretrained(store(state, small))
    assert len(caught) == 1


def test_weights_that_are_all_nan_are_named_in_one_warning(small: BertConfig, store: Store) -> None:
    state = {name: torch.full_like(tensor, float("nan")) for name, tensor in BertModel(small).state_dict().items()}
    with pytest.warns(PlainBertWarning, match=r"NaN or Inf in .*and 33 more") as caught:
        BertModel.from_pretrained(store(state, small))
    assert len(caught) == 1


def test_large_numbers_are_numbers(small: BertConfig, store: Store) -> None:
    """Their sum overflows; they do not."""
    state = {name: torch.full_like(tensor, 3e38) for name, tensor in BertModel(small).state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BertModel.from_pretrained(store(state, small))


def test_a_number_too_large_for_the_dtype_asked_for_is_named(small: BertConfig, store: Store) -> None:
    state = {name: tensor.clone() for name, tensor in BertModel(small).state_dict().items()}
    state["encoder.layer.0.output.dense.weight"][0, 0] = 1e6
    with pytest.warns(
        PlainBertWarning, match=r"as torch\.float16, NaN or Inf in encoder\.layer\.0\.output\.dense\.weight"
    ):
        BertModel.from_pretrained(store(state, small), dtype=torch.float16)
