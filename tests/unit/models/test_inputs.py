"""What forward accepts: every refusal names the number, every form of a mask means what it says."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from plainbert import BertConfig, BertForMaskedLM, BertModel, InputError, PlainBertWarning
from plainbert.models.inputs import check_head_mask, prepare_mask

LOWEST = torch.finfo(torch.float32).min


def run(model: BertModel, *inputs: Any, **named: Any) -> Tensor:
    with torch.no_grad():
        return model(*inputs, **named).last_hidden_state


# --- ids ---


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (99, r"input_ids must be from 0 to 98 \(vocab_size is 99\), got 99"),
        (2**40, f"got {2**40}"),
        (-1, r"input_ids must be from 0 to 98 \(vocab_size is 99\), got -1"),
        (-(2**63), f"got {-(2**63)}"),
    ],
)
def test_an_id_outside_the_vocabulary_is_refused(model: BertModel, ids: Tensor, wrong: int, message: str) -> None:
    ids[2, 7] = wrong
    with pytest.raises(InputError, match=message):
        model(ids)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bool, torch.uint8, torch.int16, torch.complex64], ids=str
)
@pytest.mark.parametrize("name", ["input_ids", "token_type_ids", "position_ids"])
def test_ids_that_are_no_integers_are_refused(model: BertModel, ids: Tensor, name: str, dtype: torch.dtype) -> None:
    inputs = {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "position_ids": torch.arange(8)[None]}
    inputs[name] = inputs[name].to(dtype)
    with pytest.raises(InputError, match=rf"{name} must be integers \(int64 or int32\), got {dtype}"):
        model(**inputs)


def test_ids_of_32_bits_give_the_same_as_ids_of_64(model: BertModel, ids: Tensor) -> None:
    assert torch.equal(run(model, ids.int()), run(model, ids))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("token_type_ids", 2, r"token_type_ids must be from 0 to 1 \(type_vocab_size is 2\), got 2"),
        ("token_type_ids", -1, "token_type_ids must be from 0 to 1 .*got -1"),
        ("position_ids", 40, r"position_ids must be from 0 to 39 \(max_position_embeddings is 40\), got 40"),
        ("position_ids", -3, "position_ids must be from 0 to 39 .*got -3"),
    ],
)
def test_a_segment_or_position_outside_its_table_is_refused(
    model: BertModel, ids: Tensor, name: str, value: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model(ids, **{name: torch.zeros_like(ids).index_fill(1, torch.tensor([4]), value)})


@pytest.mark.parametrize("name", ["token_type_ids", "position_ids"])
@pytest.mark.parametrize("shape", [(8,), (3, 7), (2, 8), (3, 9), (3, 1), (3, 8, 1), ()])
def test_segments_and_positions_of_another_shape_are_refused(
    model: BertModel, ids: Tensor, name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match=rf"{name} must have the shape .*\(3, 8\), got {re.escape(str(shape))}"):
        model(ids, **{name: torch.zeros(shape, dtype=torch.long)})


@pytest.mark.parametrize("shape", [(8,), (1, 3, 8), ()])
def test_ids_of_another_dimension_are_refused_with_the_way_out(model: BertModel, shape: tuple[int, ...]) -> None:
    sentence = rf"input_ids must have the shape \(texts, tokens\), got {re.escape(str(shape))}; .*input_ids\[None\]"
    with pytest.raises(InputError, match=sentence):
        model(torch.ones(shape, dtype=torch.long))


@pytest.mark.parametrize("length", [41, 600, 10_000])
def test_a_row_longer_than_the_position_table_is_refused_with_both_numbers(model: BertModel, length: int) -> None:
    sentence = rf"input_ids has {length} tokens in a row, .*at most 40 \(max_position_embeddings\)"
    with pytest.raises(InputError, match=sentence):
        model(torch.ones(1, length, dtype=torch.long))
    with pytest.raises(InputError, match=f"{length} tokens in a row"):
        model(inputs_embeds=torch.zeros(1, length, 32))


def test_the_longest_row_runs(model: BertModel) -> None:
    assert run(model, torch.ones(1, 40, dtype=torch.long)).shape == (1, 40, 32)


@pytest.mark.parametrize(
    "mask", [None, torch.ones(0, 8), torch.ones(0, 1, 8, 8, dtype=torch.bool)], ids=["no", "2", "4"]
)
def test_an_empty_batch_gives_an_empty_result(model: BertModel, mask: Tensor | None, attention: str) -> None:
    model.config.attn_implementation = attention
    empty = torch.ones(0, 8, dtype=torch.long)
    outputs = model(empty, attention_mask=mask, token_type_ids=empty, output_attentions=True)
    assert outputs.last_hidden_state.shape == (0, 8, 32)
    assert outputs.pooler_output.shape == (0, 32)
    assert outputs.attentions[0].shape == (0, 4, 8, 8)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_without_tokens_are_refused(model: BertModel, rows: int) -> None:
    with pytest.raises(InputError, match=f"at least one token, got {rows} rows of 0 tokens"):
        model(torch.ones(rows, 0, dtype=torch.long))


@pytest.mark.parametrize(("both", "word"), [(True, "both"), (False, "neither")])
def test_ids_and_vectors_together_or_neither_are_refused(model: BertModel, ids: Tensor, both: bool, word: str) -> None:
    inputs = {"input_ids": ids, "inputs_embeds": torch.zeros(3, 8, 32)} if both else {}
    with pytest.raises(InputError, match=f"exactly one of input_ids and inputs_embeds must be given, got {word}"):
        model(**inputs)


@pytest.mark.parametrize("shape", [(3, 8), (3, 8, 31), (8, 32), (3, 8, 32, 1)])
def test_vectors_of_another_shape_are_refused(model: BertModel, shape: tuple[int, ...]) -> None:
    sentence = rf"inputs_embeds must have the shape \(texts, tokens, 32\), got {re.escape(str(shape))}"
    with pytest.raises(InputError, match=sentence):
        model(inputs_embeds=torch.zeros(shape))


def test_vectors_of_integers_are_refused(model: BertModel) -> None:
    with pytest.raises(InputError, match=r"inputs_embeds must be floating-point vectors, got torch\.int64"):
        model(inputs_embeds=torch.zeros(3, 8, 32, dtype=torch.long))


@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask"])
@pytest.mark.parametrize("kind", ["list", "ndarray"])
def test_what_is_no_tensor_is_refused_by_name(model: BertModel, ids: Tensor, name: str, kind: str) -> None:
    inputs: dict[str, Any] = {"input_ids": ids, name: torch.ones(3, 8).tolist() if kind == "list" else ids.numpy()}
    with pytest.raises(InputError, match=f"{name} must be a tensor, got {kind}"):
        model(**inputs)


def test_vectors_of_words_give_what_their_ids_give(model: BertModel, ids: Tensor) -> None:
    vectors = model.get_input_embeddings()(ids)
    assert torch.equal(run(model, inputs_embeds=vectors), run(model, ids))


def test_segments_and_positions_may_be_one_row_for_all(model: BertModel, ids: Tensor) -> None:
    positions, segments = torch.arange(8).flip(0)[None], torch.tensor([[0] * 4 + [1] * 4])
    one = run(model, ids, position_ids=positions, token_type_ids=segments)
    many = run(model, ids, position_ids=positions.expand(3, 8), token_type_ids=segments.expand(3, 8))
    assert torch.equal(one, many)
    assert not torch.equal(one, run(model, ids))


def test_rows_padded_on_the_left_equal_those_padded_on_the_right_when_given_their_positions(model: BertModel) -> None:
    text = torch.randint(1, 99, (1, 5))
    padding = torch.zeros(1, 3, dtype=torch.long)
    kept = torch.ones(1, 5)
    right = run(model, torch.cat([text, padding], 1), attention_mask=torch.cat([kept, padding], 1))[:, :5]
    left_ids, left_mask = torch.cat([padding, text], 1), torch.cat([padding, kept], 1)
    positions = (left_mask.cumsum(1) - 1).clamp(min=0).long()
    left = run(model, left_ids, attention_mask=left_mask, position_ids=positions)[:, 3:]
    torch.testing.assert_close(left, right, rtol=0, atol=1e-5)
    assert (run(model, left_ids, attention_mask=left_mask)[:, 3:] - right).abs().max() > 0.1


# --- padding without a mask ---


def test_padding_without_a_mask_is_named_in_a_warning(model: BertModel, ids: Tensor) -> None:
    ids[1, 6:] = 0
    with pytest.warns(PlainBertWarning, match="padding id 0 and no attention_mask was given"):
        model(ids)


def test_padding_with_a_mask_or_without_a_padding_id_is_nothing_to_speak_of(config: BertConfig, ids: Tensor) -> None:
    ids[1, 6:] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BertModel(config)(ids, attention_mask=torch.ones_like(ids))
        config.pad_token_id = None
        BertModel(config)(ids)


def test_the_padding_id_is_the_one_of_the_config(config: BertConfig, ids: Tensor) -> None:
    config.pad_token_id = 7
    ids[:] = 0
    model = BertModel(config)
    model(ids)
    ids[0, 0] = 7
    with pytest.warns(PlainBertWarning, match="padding id 7"):
        model(ids)


# --- masks ---


@pytest.fixture
def mask() -> Tensor:
    """(3, 8): rows of 8, 5 and 1 tokens."""
    return torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] + [0] * 7])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.float64], ids=str)
def test_a_flat_mask_of_any_dtype_means_the_same(
    model: BertModel, ids: Tensor, mask: Tensor, dtype: torch.dtype, attention: str
) -> None:
    model.config.attn_implementation = attention
    assert torch.equal(run(model, ids, mask.to(dtype)), run(model, ids, mask))


@pytest.mark.parametrize("value", [2, -1, 0.5, -10_000.0, float("nan"), float("-inf"), LOWEST])
def test_a_flat_mask_with_other_numbers_than_0_and_1_is_refused(model: BertModel, ids: Tensor, value: float) -> None:
    mask = torch.ones(3, 8)
    mask[1, 3] = value
    shown = re.escape(f"{torch.tensor(float(value)).item():g}")
    with pytest.raises(InputError, match=rf"attention_mask must hold only 0 and 1, got {shown}; .*\(B, 1, S, S\)"):
        model(ids, mask)


@pytest.mark.parametrize("shape", [(3, 7), (3, 9), (2, 8), (1, 8), (8,), (3, 1), (3, 16)])
def test_a_flat_mask_of_another_shape_is_refused(model: BertModel, ids: Tensor, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=rf"\(3, 8\).*got .*{re.escape(str(shape))}"):
        model(ids, torch.ones(shape))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 1, 8, 8), torch.int64),
        ((3, 1, 8, 8), torch.uint8),
        ((3, 8, 8), torch.float32),
        ((3, 8, 8), torch.int64),
        ((3, 2, 8, 8), torch.bool),
        ((3, 1, 8, 7), torch.bool),
        ((3, 1, 7, 8), torch.float32),
        ((2, 1, 8, 8), torch.float32),
        ((1, 1, 8, 8), torch.bool),
        ((3, 8, 9), torch.bool),
        ((3, 1, 8, 8, 1), torch.bool),
        ((3, 8, 1), torch.bool),
    ],
    ids=str,
)
def test_a_full_mask_of_another_dtype_or_shape_is_refused(
    model: BertModel, ids: Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    with pytest.raises(InputError, match=rf"attention_mask must be .*got {dtype} {re.escape(str(shape))}"):
        model(ids, torch.ones(shape, dtype=dtype))


def test_every_form_of_one_mask_gives_the_same(model: BertModel, ids: Tensor, mask: Tensor, attention: str) -> None:
    model.config.attn_implementation = attention
    expected = run(model, ids, mask)
    look = mask.bool()
    square = look[:, None, None, :].expand(3, 1, 8, 8)
    additive = torch.zeros(3, 1, 8, 8).masked_fill(~square, LOWEST)
    forms = {
        "bool (B, S, S)": square[:, 0],
        "bool (B, 1, S, S)": square,
        "bool (B, 1, 1, S)": look[:, None, None, :],
        "bool (B, H, S, S)": square.expand(3, 4, 8, 8),
        "float (B, 1, S, S)": additive,
        "float (B, 1, 1, S)": additive[:, :, :1],
        "float (B, H, S, S)": additive.expand(3, 4, 8, 8),
        "float -inf": torch.zeros(3, 1, 8, 8).masked_fill(~square, float("-inf")),
        "float64": additive.double(),
        "float64 -1e300": torch.zeros(3, 1, 8, 8).double().masked_fill(~square, -1e300),
        "float -1e9": torch.zeros(3, 1, 8, 8).masked_fill(~square, -1e9),
        "bfloat16": additive.bfloat16(),
    }
    for name, form in forms.items():
        torch.testing.assert_close(run(model, ids, form), expected, rtol=0, atol=2e-6, msg=name)


def test_a_mask_hides_keys_row_by_row_and_head_by_head(model: BertModel, ids: Tensor, attention: str) -> None:
    model.config.attn_implementation = attention
    look = torch.ones(3, 4, 8, 8, dtype=torch.bool).tril()
    look[:, 2] = True
    maps = model(ids, look, output_attentions=True).attentions[0]
    assert (maps[~look] == 0).all()
    assert (maps[:, 2] > 0).all()
    torch.testing.assert_close(maps.sum(-1), torch.ones(3, 4, 8))


def test_a_mask_of_ones_is_no_mask(model: BertModel, ids: Tensor) -> None:
    assert prepare_mask(model.config, torch.ones(3, 8), torch.zeros(3, 8, 32)) is None
    assert torch.equal(run(model, ids, torch.ones(3, 8)), run(model, ids))


@pytest.mark.parametrize("form", ["flat", "bool", "additive"])
def test_a_row_of_padding_looks_at_nothing_and_disturbs_nobody(
    model: BertModel, ids: Tensor, form: str, attention: str
) -> None:
    model.config.attn_implementation = attention
    flat = torch.tensor([[1] * 8, [0] * 8, [1] * 5 + [0] * 3])
    square = flat.bool()[:, None, None, :].expand(3, 1, 8, 8)
    additive = torch.zeros(3, 1, 8, 8).masked_fill(~square, float("-inf"))
    given = {"flat": flat, "bool": square, "additive": additive}[form]
    outputs = model(ids, given, output_attentions=True)
    assert outputs.last_hidden_state.isfinite().all()
    assert (outputs.attentions[0][1] == 0).all()
    others = run(model, ids[[0, 2]], given[[0, 2]])
    torch.testing.assert_close(outputs.last_hidden_state[[0, 2]], others, rtol=0, atol=2e-6)
    # Attention gives the zero vector: what the keys hold does not matter.
    with torch.no_grad():
        layer = model.encoder.layer[0].attention.self
        layer.value.bias.zero_()
        context, _ = layer(torch.randn(1, 8, 32), torch.zeros(1, 1, 8, 8, dtype=torch.bool))
    assert (context == 0).all()


def test_a_row_of_the_lowest_number_is_a_row_of_numbers(model: BertModel, ids: Tensor, attention: str) -> None:
    """Only -inf says that there is no key; a row of equal numbers, however low, is a mean over all keys."""
    model.config.attn_implementation = attention
    mask = torch.full((3, 1, 8, 8), LOWEST)
    maps = model(ids, mask, output_attentions=True).attentions[0]
    torch.testing.assert_close(maps, torch.full((3, 4, 8, 8), 1 / 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("number", [-1e9, -65504.0, LOWEST, float("-inf")])
def test_half_precision_hides_exactly_and_never_divides_nothing(
    config: BertConfig, ids: Tensor, dtype: torch.dtype, number: float, attention: str
) -> None:
    """-1e9 is beyond float16; scores of real models are below -16; a row may consist of padding alone."""
    config.attn_implementation = attention
    model = BertModel(config).eval().to(dtype)
    with torch.no_grad():
        for layer in model.encoder.layer:
            layer.attention.self.query.weight.mul_(20)
    square = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [0] * 8]).bool()[:, None, None, :].expand(3, 1, 8, 8)
    mask = torch.zeros(3, 1, 8, 8).masked_fill(~square, number)
    outputs = model(ids, mask, output_attentions=True)
    assert outputs.last_hidden_state.isfinite().all()
    for maps in outputs.attentions:
        assert (maps[1, :, :, 5:] == 0).all()
        torch.testing.assert_close(maps[:2].float().sum(-1), torch.ones(2, 4, 8), rtol=0, atol=5e-3)


# --- heads ---


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 4), (4, 2), (1, 4), (2, 4, 1), (), (2, 4, 8, 8)])
def test_a_head_mask_of_another_shape_is_refused(model: BertModel, ids: Tensor, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        InputError, match=rf"head_mask must have the shape \(4,\) or \(2, 4\), got {re.escape(str(shape))}"
    ):
        model(ids, head_mask=torch.ones(shape))


def test_a_head_mask_becomes_factors_of_the_probabilities(config: BertConfig) -> None:
    hidden = torch.zeros(1, 1, 32, dtype=torch.float16)
    one = check_head_mask(config, torch.tensor([1, 0, 1, 1]), hidden)
    assert one is not None
    assert (one.shape, one.dtype) == ((2, 4, 1, 1), torch.float16)
    assert check_head_mask(config, None, hidden) is None


def test_the_checks_stand_before_the_table_is_read(
    config: BertConfig, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU a look-up outside the table would take the process with it."""
    model = BertForMaskedLM(config)

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the table was read")

    monkeypatch.setattr(torch.nn.functional, "embedding", fail)
    for wrong in (
        {"input_ids": ids + 99},
        {"input_ids": ids, "token_type_ids": ids + 2},
        {"input_ids": ids.repeat(1, 6)},
    ):
        with pytest.raises(InputError):
            model(**wrong)
