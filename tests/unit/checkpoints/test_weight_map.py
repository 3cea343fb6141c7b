"""Names on disk become names here by whole-name rules; what a training tool put before every name is found."""

from __future__ import annotations

import pytest

from plainbert.checkpoints.weight_map import Rule, WeightMap, wrapper_prefix
from plainbert.errors import CheckpointError

TABLE = WeightMap(
    (Rule(r"(?:old\.)?(a\.\w+)", r"new.\1"), Rule(r"(a|b)\.x", r"second.\1"), Rule(r"c\.gamma", r"c.weight"))
)


@pytest.mark.parametrize(
    ("stored", "here"),
    [
        ("a.w", "new.a.w"),
        ("old.a.w", "new.a.w"),
        ("a.x", "new.a.x"),  # the first rule decides
        ("b.x", "second.b"),
        ("c.gamma", "c.weight"),
        ("c.gamma2", None),
        ("xa.w", None),
        ("a.w.x", None),
        ("old.old.a.w", None),
        ("a.w\n", None),
        ("A.w", None),
        ("", None),
    ],
)
def test_a_rule_matches_the_whole_name(stored: str, here: str | None) -> None:
    assert TABLE.name_here(stored) == here


def test_names_are_mapped_in_their_order_and_the_rest_is_given_back() -> None:
    found, unknown = TABLE.map_names(["z", "b.x", "a.w", "y"])
    assert list(found.items()) == [("second.b", "b.x"), ("new.a.w", "a.w")]
    assert unknown == ["z", "y"]


def test_two_names_for_one_parameter_are_refused() -> None:
    sentence = r"must hold new\.a\.w once, got it twice, as 'a\.w' and as 'old\.a\.w'; keep one"
    with pytest.raises(CheckpointError, match=sentence):
        TABLE.map_names(["a.w", "b.x", "old.a.w"])


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["module.a", "module.b.c"], "module."),
        (["_orig_mod.a"], "_orig_mod."),
        (["module._orig_mod.a", "module._orig_mod.b"], "module._orig_mod."),
        (["model.module.a", "model.module.b"], "model.module."),
        (["module.module.a"], "module.module."),
        (["0.auto_model.embeddings.x"], "0.auto_model."),
        (["module.a", "b"], ""),
        (["modules.a"], ""),
        (["module"], ""),
        (["a", "b"], ""),
        ([], ""),
    ],
)
def test_only_what_stands_before_every_name_is_a_wrapper(names: list[str], prefix: str) -> None:
    assert wrapper_prefix(names) == prefix
