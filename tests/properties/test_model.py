"""What must not change a result: padding, the batch, the order of rows, the form of a mask, who asks, and when."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import plainbert

VOCABULARY, LAYERS, HEADS, WIDTH, POSITIONS = 99, 2, 4, 32, 40
CLASSES = [
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
]
quickly = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
token_rows = st.lists(
    st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=20), min_size=1, max_size=5
)  # id 0 is the padding


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def attention(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def build(tiny_config: Callable[..., dict[str, Any]], attention: str) -> Callable[..., Any]:
    """Make a model with large weights in float64, in which a slip is far from rounding."""

    def make(name: str = "BertModel", **overrides: Any) -> Any:
        torch.manual_seed(1)
        fields = tiny_config(initializer_range=0.3, attn_implementation=attention, **overrides)
        model = getattr(plainbert, name)(plainbert.BertConfig(**fields)).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        return model

    return make


@pytest.fixture(scope="module")
def model(build: Callable[..., Any]) -> Any:
    return build()


def batch_of(rows: list[list[int]], length: int | None = None) -> dict[str, torch.Tensor]:
    """Pad rows of ids on the right, with their mask and segments that depend on the ids alone."""
    length = max(map(len, rows)) if length is None else length
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "token_type_ids": (ids % 3 == 1).long()}


def run(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> Any:
    with torch.no_grad():
        return model(**inputs, **options)


def assert_close(one: torch.Tensor, other: torch.Tensor) -> None:
    """Float64 leaves room for another order of sums and for nothing else."""
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@quickly
@given(rows=token_rows, more=st.integers(1, 20))
def test_padding_does_not_change_a_text(model: Any, rows: list[list[int]], more: int) -> None:
    length = max(map(len, rows))
    tight, loose = run(model, batch_of(rows)), run(model, batch_of(rows, length + more))
    for index, row in enumerate(rows):
        alone = run(model, batch_of([row])).last_hidden_state[0]
        assert_close(tight.last_hidden_state[index, : len(row)], alone)
        assert_close(loose.last_hidden_state[index, : len(row)], alone)
    assert_close(tight.pooler_output, loose.pooler_output)


@quickly
@given(rows=token_rows, seed=st.integers(0, 2**31))
def test_the_order_of_texts_is_the_order_of_results(model: Any, rows: list[list[int]], seed: int) -> None:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    inputs = batch_of(rows)
    shuffled = run(model, {name: value[order] for name, value in inputs.items()}, output_attentions=True)
    straight = run(model, inputs, output_attentions=True)
    assert_close(shuffled.last_hidden_state, straight.last_hidden_state[order])
    assert_close(shuffled.attentions[1], straight.attentions[1][order])


@quickly
@given(rows=token_rows, junk=st.integers(0, VOCABULARY - 1), segment=st.integers(0, 1))
def test_what_stands_under_the_mask_is_not_read(model: Any, rows: list[list[int]], junk: int, segment: int) -> None:
    inputs = batch_of(rows, max(map(len, rows)) + 2)
    hidden_keys = inputs["attention_mask"] == 0
    other = {
        "input_ids": inputs["input_ids"].masked_fill(hidden_keys, junk),
        "token_type_ids": inputs["token_type_ids"].masked_fill(hidden_keys, segment),
        "attention_mask": inputs["attention_mask"],
    }
    one, two = run(model, inputs).last_hidden_state, run(model, other).last_hidden_state
    assert torch.equal(one[~hidden_keys], two[~hidden_keys])


@quickly
@given(rows=token_rows, place=st.integers(0, 19), word=st.integers(1, VOCABULARY - 1))
def test_a_text_does_not_depend_on_its_neighbours(model: Any, rows: list[list[int]], place: int, word: int) -> None:
    neighbour = [*rows[-1]]
    neighbour[place % len(neighbour)] = word
    one = run(model, batch_of([*rows, rows[-1]])).last_hidden_state
    two = run(model, batch_of([*rows, neighbour])).last_hidden_state
    assert torch.equal(one[:-1], two[:-1])


@quickly
@given(rows=token_rows, data=st.data())
def test_every_word_that_is_looked_at_counts(model: Any, rows: list[list[int]], data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(rows))
    place = data.draw(st.integers(0, len(row) - 1))
    other = [*row]
    other[place] = data.draw(st.integers(1, VOCABULARY - 1))
    assume(other[place] != row[place])
    one, two = run(model, batch_of([row])).last_hidden_state, run(model, batch_of([other])).last_hidden_state
    assert bool(((one - two).abs().amax(-1) > 1e-9).all()), "every token looks at every token"


@quickly
@given(rows=token_rows)
def test_words_in_another_order_mean_something_else(model: Any, rows: list[list[int]]) -> None:
    row = max(rows, key=len)
    assume(len(row) > 1 and row[0] != row[-1])
    one = run(model, batch_of([row])).last_hidden_state
    two = run(model, batch_of([row[::-1]])).last_hidden_state
    assert not torch.allclose(one, two.flip(1), atol=1e-6)


@quickly
@given(rows=token_rows)
def test_every_form_of_a_mask_means_the_same(model: Any, rows: list[list[int]]) -> None:
    inputs = batch_of(rows, max(map(len, rows)) + 1)
    flat = inputs.pop("attention_mask")
    length = flat.shape[1]
    look = flat.bool()[:, None, None, :].expand(-1, 1, length, -1)
    lowest = torch.finfo(torch.float64).min
    forms = [
        flat.bool(),
        flat.double(),
        look,
        look[:, 0],
        look[:, :, :1],
        look.expand(-1, HEADS, -1, -1),
        torch.zeros(look.shape).double().masked_fill(~look, lowest),
        torch.zeros(look.shape).double().masked_fill(~look, -torch.inf),
        torch.zeros(look.shape).double().masked_fill(~look, -1e5),
        torch.zeros(look.expand(-1, HEADS, -1, -1).shape).double().masked_fill(~look, lowest),
    ]
    expected = run(model, {**inputs, "attention_mask": flat}).last_hidden_state
    for form in forms:
        assert_close(run(model, {**inputs, "attention_mask": form}).last_hidden_state, expected)


@quickly
@given(rows=token_rows)
def test_no_mask_is_a_mask_of_ones(model: Any, rows: list[list[int]]) -> None:
    length = min(map(len, rows))
    inputs = batch_of([row[:length] for row in rows])
    expected = run(model, inputs).last_hidden_state
    inputs.pop("attention_mask")
    assert torch.equal(run(model, inputs).last_hidden_state, expected)
    whole = torch.ones(len(rows), 1, length, length, dtype=torch.bool)
    assert_close(run(model, {**inputs, "attention_mask": whole}).last_hidden_state, expected)
    assert_close(run(model, {**inputs, "attention_mask": ~whole * 0.0}).last_hidden_state, expected)


@quickly
@given(rows=token_rows)
def test_a_mask_is_how_tokens_may_look_and_not_only_which(model: Any, rows: list[list[int]]) -> None:
    inputs = batch_of([max(rows, key=len)])
    length = inputs["input_ids"].shape[1]
    assume(length > 1)
    before = torch.ones(1, length, length, dtype=torch.bool).tril()
    states = run(model, {**inputs, "attention_mask": before}).last_hidden_state
    shorter = {name: value[:, : length - 1] for name, value in inputs.items()}
    cut = run(model, {**shorter, "attention_mask": before[:, :-1, :-1]}).last_hidden_state
    assert_close(states[:, :-1], cut)


@quickly
@given(rows=token_rows)
def test_a_head_mask_of_ones_is_none(model: Any, rows: list[list[int]]) -> None:
    inputs = batch_of(rows)
    plain = run(model, inputs, output_attentions=True)
    for ones in (torch.ones(HEADS), torch.ones(LAYERS, HEADS)):
        masked = run(model, inputs, head_mask=ones, output_attentions=True)
        assert torch.equal(masked.last_hidden_state, plain.last_hidden_state)
        assert torch.equal(masked.attentions[1], plain.attentions[1])


@quickly
@given(rows=token_rows, layer=st.integers(0, LAYERS - 1), head=st.integers(0, HEADS - 1))
def test_a_head_at_zero_is_a_head_that_gives_nothing(
    model: Any, build: Callable[..., Any], rows: list[list[int]], layer: int, head: int
) -> None:
    inputs, mask = batch_of(rows), torch.ones(LAYERS, HEADS)
    mask[layer, head] = 0
    without = build()
    attention = without.encoder.layer[layer].attention
    width = WIDTH // HEADS
    with torch.no_grad():  # its columns of the output layer see nothing
        attention.output.dense.weight[:, head * width : (head + 1) * width] = 0
    masked = run(model, inputs, head_mask=mask, output_attentions=True)
    expected = run(without, inputs)
    assert_close(masked.last_hidden_state, expected.last_hidden_state)
    assert bool((masked.attentions[layer][:, head] == 0).all())
    half = run(model, inputs, head_mask=mask.clamp(min=0.5)).last_hidden_state
    with torch.no_grad():
        again = build()
        again.encoder.layer[layer].attention.output.dense.weight[:, head * width : (head + 1) * width] *= 0.5
    assert_close(half, run(again, inputs).last_hidden_state)


@quickly
@given(rows=token_rows)
def test_word_vectors_of_the_ids_are_the_ids(model: Any, rows: list[list[int]]) -> None:
    inputs = batch_of(rows)
    expected = run(model, inputs)
    vectors = model.get_input_embeddings()(inputs.pop("input_ids")).detach()
    found = run(model, {**inputs, "inputs_embeds": vectors})
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
    assert torch.equal(found.pooler_output, expected.pooler_output)


@quickly
@given(rows=token_rows)
def test_what_is_left_out_has_its_documented_default(model: Any, rows: list[list[int]]) -> None:
    inputs = batch_of(rows)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    bare = run(model, {"input_ids": ids, "attention_mask": mask}).last_hidden_state
    spelt = {
        "input_ids": ids.int(),
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(ids),
        "position_ids": torch.arange(ids.shape[1])[None].expand_as(ids),
    }
    assert torch.equal(run(model, spelt).last_hidden_state, bare)


@pytest.mark.parametrize("name", CLASSES)
def test_asking_for_states_changes_no_result(build: Callable[..., Any], attention: str, name: str) -> None:
    head = build(name)
    inputs = batch_of([[5, 6, 7, 8], [9, 10]])
    plain = run(head, inputs)
    asked = run(head, inputs, output_hidden_states=True)
    maps = run(head, inputs, output_hidden_states=True, output_attentions=True)
    assert plain.hidden_states is plain.attentions is None
    for field, value in plain.items():
        assert torch.equal(asked[field], value), field
        assert torch.equal(maps[field], value), field
    assert len(asked.hidden_states) == LAYERS + 1
    assert [one.shape for one in maps.attentions] == [(2, HEADS, 4, 4)] * LAYERS
    if name == "BertModel":
        assert torch.equal(asked.hidden_states[-1], plain.last_hidden_state)
    by_config = build(name, output_hidden_states=True, output_attentions=True)
    found = run(by_config, inputs)
    assert all(torch.equal(one, two) for one, two in zip(found.hidden_states, maps.hidden_states, strict=True))
    assert run(by_config, inputs, output_hidden_states=False).hidden_states is None


@pytest.mark.parametrize("name", [*CLASSES, "BertForMultipleChoice"])
@settings(quickly, max_examples=4)
@given(seed=st.integers(0, 2**31), std=st.sampled_from([0.02, 1.0, 100.0]))
def test_a_model_saved_and_loaded_is_the_same_model(
    build: Callable[..., Any], attention: str, name: str, seed: int, std: float
) -> None:
    model = build(name)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder, attn_implementation=attention)
    assert again.config.architectures == [name]
    before, after = model.state_dict(), again.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) and before[key].dtype == after[key].dtype for key in before)


@quickly
@given(rows=token_rows)
def test_the_same_call_gives_the_same_bits_in_any_thread(model: Any, rows: list[list[int]]) -> None:
    inputs = batch_of(rows)
    expected = run(model, inputs, output_attentions=True)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: run(model, inputs, output_attentions=True), range(8)))
    for found in results:
        assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
        assert torch.equal(found.attentions[1], expected.attentions[1])


def test_models_loaded_and_built_in_many_threads_are_whole(
    build: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = build("BertForMaskedLM")
    folder = tmp_path_factory.mktemp("threads")
    model.save_pretrained(folder)
    expected = model.state_dict()

    def load_or_build(index: int) -> Any:
        if index % 2:
            return plainbert.BertForMaskedLM.from_pretrained(folder).state_dict()
        fresh = plainbert.BertForMaskedLM(model.config)
        return {name: value for name, value in fresh.state_dict().items() if value.is_meta}

    with ThreadPoolExecutor(4) as threads:
        for index, state in enumerate(threads.map(load_or_build, range(24))):
            if index % 2:
                assert all(torch.equal(state[name], value) for name, value in expected.items())
            else:
                assert state == {}, "a model built while another is loaded has its memory"
