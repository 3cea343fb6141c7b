"""Bits are promised against one release; a comparison with another would prove nothing."""

from __future__ import annotations

import transformers

from plainbert.cli.verify import EQUALLED_TRANSFORMERS


def test_the_release_that_is_compared_with_is_the_one_that_is_promised() -> None:
    assert transformers.__version__ == EQUALLED_TRANSFORMERS
