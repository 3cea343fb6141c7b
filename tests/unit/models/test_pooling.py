"""Token vectors to one vector a text: each mode by hand, and what must not matter."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from plainbert.errors import InputError
from plainbert.models.pooling import POOLING_MODES, pool

# Two texts of three and one token in four places, vectors of width 2.
HIDDEN = torch.tensor(
    [
        [[1.0, -2.0], [3.0, 8.0], [5.0, 0.0], [99.0, 99.0]],
        [[-4.0, -6.0], [99.0, 99.0], [99.0, 99.0], [99.0, 99.0]],
    ]
)
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
BY_HAND = {
    "cls": [[1.0, -2.0], [-4.0, -6.0]],
    "max": [[5.0, 8.0], [-4.0, -6.0]],
    "mean": [[3.0, 2.0], [-4.0, -6.0]],
    "mean_sqrt_len_tokens": [[9 / 3**0.5, 6 / 3**0.5], [-4.0, -6.0]],
    "weightedmean": [[22 / 6, 14 / 6], [-4.0, -6.0]],
    "lasttoken": [[5.0, 0.0], [-4.0, -6.0]],
}


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_each_mode_gives_what_its_formula_says(mode: str) -> None:
    torch.testing.assert_close(pool(HIDDEN, MASK, (mode,)), torch.tensor(BY_HAND[mode]))


def test_several_modes_are_laid_side_by_side_in_the_order_given() -> None:
    both = pool(HIDDEN, MASK, ("cls", "mean"))
    assert both.shape == (2, 4)
    assert torch.equal(both, torch.cat([pool(HIDDEN, MASK, ("cls",)), pool(HIDDEN, MASK, ("mean",))], dim=1))
    assert torch.equal(pool(HIDDEN, MASK, ("mean", "cls"))[:, :2], both[:, 2:])


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_what_stands_at_padding_has_no_effect(mode: str) -> None:
    for junk in (0.0, -1e30, float("inf"), float("nan")):
        other = HIDDEN.masked_fill(MASK[..., None] == 0, junk)
        assert torch.equal(pool(other, MASK, (mode,)), pool(HIDDEN, MASK, (mode,)))


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_more_padding_changes_nothing(mode: str) -> None:
    wider = pool(pad(HIDDEN, (0, 0, 0, 3)), pad(MASK, (0, 3)), (mode,))
    torch.testing.assert_close(wider, pool(HIDDEN, MASK, (mode,)))


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_padding_on_the_left_gives_the_same_vectors(mode: str) -> None:
    moved = pool(pad(HIDDEN, (0, 0, 2, 0), value=7.0), pad(MASK, (2, 0)), (mode,))
    torch.testing.assert_close(moved, pool(HIDDEN, MASK, (mode,)))


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_a_row_that_is_all_padding_gives_zeros(mode: str) -> None:
    mask = MASK.clone()
    mask[1] = 0
    pooled = pool(HIDDEN, mask, (mode,))
    assert torch.equal(pooled[1], torch.zeros(2))
    assert torch.equal(pooled[0], pool(HIDDEN, MASK, (mode,))[0])


def test_the_tokens_of_a_prompt_are_left_out_and_weights_still_count_from_the_first_token() -> None:
    assert torch.equal(pool(HIDDEN, MASK, ("mean",), prompt_length=1)[0], torch.tensor([4.0, 4.0]))
    assert torch.equal(pool(HIDDEN, MASK, ("cls",), prompt_length=1)[0], torch.tensor([3.0, 8.0]))
    weighted = pool(HIDDEN, MASK, ("weightedmean",), prompt_length=1)[0]
    torch.testing.assert_close(weighted, torch.tensor([21 / 5, 16 / 5]))
    assert torch.equal(pool(HIDDEN, MASK, ("mean",), prompt_length=1)[1], torch.zeros(2))


def test_half_precision_is_summed_in_float32_and_float64_stays() -> None:
    many = torch.full((1, 4000, 1), 1.001, dtype=torch.bfloat16)
    pooled = pool(many, torch.ones(1, 4000), ("mean",))
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, many[:, 0].float())
    assert pool(HIDDEN.double(), MASK, ("mean", "max")).dtype == torch.float64


@pytest.mark.parametrize("modes", [("average",), ("mean", "first"), ()])
def test_unknown_modes_are_refused_by_name(modes: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=r"average|first|\[\]"):
        pool(HIDDEN, MASK, modes)


def test_a_bare_string_is_not_a_sequence_of_modes() -> None:
    with pytest.raises(InputError, match="got 'cls'"):
        pool(HIDDEN, MASK, "cls")


def test_a_mask_of_another_shape_is_refused_with_both_shapes() -> None:
    with pytest.raises(InputError, match=r"\(2, 4\), got \(2, 3\)"):
        pool(HIDDEN, MASK[:, :3])
