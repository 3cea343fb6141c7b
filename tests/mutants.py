"""Break a copy of the package in each classic way; the suite must fail every time: ``python tests/mutants.py``.

A mutant is an exact replacement of text in one file. It must be found once: a mutant whose text is gone is a failure
too, and ``tests/parity/test_mutants.py`` says so in every run of the suite. Each is run against the part of the suite
that should see it, the quickest first, until the first failure. A name given as an argument runs the mutants that
hold it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 300

OUTPUTS = ("tests/golden/test_golden.py", "tests/parity/test_outputs.py")
TRAINING = ("tests/parity/test_training.py",)
HEAD_MASKS = ("tests/properties/test_model.py::test_a_head_at_zero_is_a_head_that_gives_nothing",)
LOW_SCORES = ("tests/parity/test_masks.py::test_a_key_stays_hidden_however_low_the_scores_of_the_others_are",)
KEYLESS = ("tests/parity/test_keyless.py::test_a_query_without_a_key_gets_zero_and_disturbs_nobody",)
AUTOCAST = ("tests/parity/test_autocast.py::test_loss_logits_and_gradients_are_equal_under_autocast",)
LOW_NUMBERS = ("tests/parity/test_keyless.py::test_a_low_number_stays_a_number_in_a_narrower_dtype",)
ANSWERS = (
    "tests/parity/test_decided.py::test_a_position_before_the_row_is_no_answer_where_transformers_trains_on_cls",
)
NOTHING = (
    "tests/parity/test_decided.py"
    "::test_a_loss_with_nothing_to_predict_is_zero_with_no_gradient_where_transformers_gives_nan",
)

BERT, HEADS, INPUTS = "models/bert.py", "models/heads.py", "models/inputs.py"
LOSSES, ACTIVATIONS, PRETRAINED = "models/losses.py", "models/activations.py", "models/pretrained.py"
PRETRAINING = "models/pretraining.py"
FAMILY, LOADING, PLAN = "families/bert.py", "loading.py", "loading_plan.py"

NORM = "self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)"
WRONG_NORM = "self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=1e-5)"
SUM = "return self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)"
AFTER_ATTENTION = f'"""(B, S, E), (B, S, E) -> (B, S, E)."""\n        {SUM}'
AFTER_WIDE = f'"""(B, S, F), (B, S, E) -> (B, S, E)."""\n        {SUM}'


@dataclass(frozen=True)
class Mutant:
    """One slip.

    Attributes:
        name: what is wrong.
        path: the file in the package.
        old: text that stands there once.
        new: what takes its place.
        tests: the part of the suite that must see it, one after another.
    """

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...] = OUTPUTS

    def apply(self, package: Path) -> None:
        """Change the file below ``package``; ValueError when the text is not there exactly once."""
        path = package / self.path
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.path} holds the text {text.count(self.old)} times:\n{self.old}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def swapped(rules: str) -> str:
    """Swap the old names of LayerNorm's weight and bias."""
    return rules.replace("weight|gamma", "weight|beta").replace("bias|beta", "bias|gamma")


# Texts that are too long for a line below.
READ = "if here in expected and here not in plan.sources:\n            plan.sources[here] = "
NORM_RULES = '({_NORM})\\.(?:weight|gamma)", r"bert.\\1.weight"),\n    Rule(rf"(?:bert\\.)?({_NORM})\\.(?:bias|beta)"'
HEAD_NORM_RULES = (
    'LayerNorm)\\.(?:weight|gamma)", r"\\1.weight"),\n'
    '    Rule(r"(cls\\.predictions\\.transform\\.LayerNorm)\\.(?:bias|beta)"'
)
TYPES = "        embeddings = words + self.token_type_embeddings(token_type_ids)\n"
PLACES = "        embeddings = embeddings + self.position_embeddings(position_ids)\n"
MUTANTS = (
    # embeddings
    Mutant(
        "position before token type", BERT, TYPES + PLACES,
        TYPES.replace("token_type_embeddings(token_type", "position_embeddings(position")
        + PLACES.replace("position_embeddings(position", "token_type_embeddings(token_type"),
        ("tests/parity/test_outputs.py",),
    ),
    Mutant("no token types", BERT, TYPES, "        embeddings = words\n"),
    Mutant("token types always 0", BERT, "if token_type_ids is None:", "if True:"),
    Mutant("no positions", BERT, PLACES, ""),
    Mutant("positions from 1", BERT, "torch.arange(words.shape[1], ", "torch.arange(1, 1 + words.shape[1], "),
    Mutant("position_ids not read", BERT, "if position_ids is None:", "if True:",
           ("tests/parity/test_outputs.py::test_position_ids_are_looked_up_as_given",)),
    Mutant(
        "padding learns", BERT, "config.hidden_size, padding_idx=config.pad_token_id)", "config.hidden_size)",
        ("tests/parity/test_shapes.py::test_the_row_of_padding_gets_no_gradient_where_transformers_gives_it_none",),
    ),
    Mutant("other eps in the embeddings", BERT, f"config.type_vocab_size, config.hidden_size)\n        {NORM}",
           f"config.type_vocab_size, config.hidden_size)\n        {WRONG_NORM}"),
    Mutant("no dropout after embeddings", BERT, "self.dropout(self.LayerNorm(embeddings))",
           "self.LayerNorm(embeddings)", TRAINING),
    Mutant("dropout before the norm of embeddings", BERT, "self.dropout(self.LayerNorm(embeddings))",
           "self.LayerNorm(self.dropout(embeddings))", TRAINING),
    # attention
    Mutant("no scale, eager", BERT, "key.transpose(2, 3)) * self.scale", "key.transpose(2, 3))"),
    Mutant("no scale, sdpa", BERT, "scale=self.scale)", "scale=1.0)"),
    Mutant("scale of the whole width", BERT, "self.scale = self.attention_head_size**-0.5",
           "self.scale = config.hidden_size**-0.5"),
    Mutant("scale by D", BERT, "self.scale = self.attention_head_size**-0.5",
           "self.scale = self.attention_head_size**-1.0"),
    Mutant("query from the key's weights", BERT, "self.split_heads(self.query(hidden_states))",
           "self.split_heads(self.key(hidden_states))"),
    Mutant("value from the key's weights", BERT, "self.split_heads(self.value(hidden_states))",
           "self.split_heads(self.key(hidden_states))"),
    Mutant("heads cut the other way", BERT,
           "hidden.view(B, S, self.num_attention_heads, self.attention_head_size).transpose(1, 2)",
           "hidden.view(B, S, self.attention_head_size, self.num_attention_heads).permute(0, 3, 1, 2)"),
    Mutant("heads not moved back", BERT, "context.transpose(1, 2).reshape(B, S, E)", "context.reshape(B, S, E)"),
    Mutant("softmax over queries", BERT, "F.softmax(scores, dim=-1).masked_fill(",
           "F.softmax(scores, dim=-2).masked_fill("),
    Mutant("softmax over queries without a mask", BERT, "return F.softmax(scores, dim=-1)\n",
           "return F.softmax(scores, dim=-2)\n"),
    Mutant("no dropout on probabilities, eager", BERT, "            maps = self.dropout(maps)\n", "", TRAINING),
    Mutant("no dropout on probabilities, sdpa", BERT, "self.dropout.p if self.training else 0.0", "0.0", TRAINING),
    Mutant("dropout in evaluation, sdpa", BERT, "self.dropout.p if self.training else 0.0", "self.dropout.p"),
    Mutant("head mask of the first layer everywhere", BERT, "head_mask[index]", "head_mask[0]", HEAD_MASKS),
    Mutant("head mask does nothing, sdpa", BERT, "context = context * head_mask", "pass", HEAD_MASKS),
    # masks
    Mutant("no mask", BERT, "prepare_mask(self.config, attention_mask, hidden),", "None,"),
    Mutant("no mask, sdpa", BERT, "query, key, value, attention_mask, dropout,", "query, key, value, None, dropout,"),
    Mutant("mask inverted", INPUTS, "return look[:, None, None, :]", "return ~look[:, None, None, :]"),
    Mutant("mask inverted, eager", BERT, "masked_keys = ~attention_mask", "masked_keys = attention_mask"),
    Mutant("mask over queries", INPUTS, "return look[:, None, None, :].expand", "return look[:, None, :, None].expand"),
    Mutant("-10000 hides, eager", BERT, "scores.to(dtype), torch.finfo(dtype).min", "scores.to(dtype), -10000.0",
           LOW_SCORES),
    Mutant("masked softmax in the dtype of autocast", BERT, "scores.to(dtype), torch.finfo(dtype).min",
           "scores, torch.finfo(scores.dtype).min", AUTOCAST),
    Mutant("uniform where there is no key, eager", BERT, ".masked_fill(masked_keys, 0.0)", "", KEYLESS),
    Mutant("half precision makes -inf of low numbers", INPUTS,
           "if mask.is_floating_point() and mask.dtype != hidden.dtype:",
           "mask = mask if mask.dtype == torch.bool else mask.to(hidden.dtype)\n    if False:", LOW_NUMBERS),
    # layers
    Mutant("tanh GELU", ACTIVATIONS, '"gelu": F.gelu,', '"gelu": lambda x: F.gelu(x, approximate="tanh"),'),
    Mutant("no activation", BERT, "return self.intermediate_act_fn(self.dense(hidden_states))",
           "return self.dense(hidden_states)"),
    Mutant("other eps after attention", BERT, f"nn.Linear(config.hidden_size, config.hidden_size)\n        {NORM}",
           f"nn.Linear(config.hidden_size, config.hidden_size)\n        {WRONG_NORM}"),
    Mutant("other eps after the feed-forward", BERT,
           f"nn.Linear(config.intermediate_size, config.hidden_size)\n        {NORM}",
           f"nn.Linear(config.intermediate_size, config.hidden_size)\n        {WRONG_NORM}"),
    Mutant("no residual after attention", BERT, AFTER_ATTENTION, AFTER_ATTENTION.replace(" + input_tensor", "")),
    Mutant("no residual after the feed-forward", BERT, AFTER_WIDE, AFTER_WIDE.replace(" + input_tensor", "")),
    Mutant("norm before the sum, after attention", BERT, AFTER_ATTENTION,
           AFTER_ATTENTION.replace(") + input_tensor)", ")) + input_tensor")),
    Mutant("norm before the sum, after the feed-forward", BERT, AFTER_WIDE,
           AFTER_WIDE.replace(") + input_tensor)", ")) + input_tensor")),
    Mutant("dropout after the sum", BERT, AFTER_ATTENTION,
           AFTER_ATTENTION.replace("(hidden_states)) + input_tensor)", "(hidden_states) + input_tensor))"), TRAINING),
    Mutant("no dropout after the feed-forward", BERT, AFTER_WIDE,
           AFTER_WIDE.replace("self.dropout(self.dense(hidden_states))", "self.dense(hidden_states)"), TRAINING),
    Mutant("residual of the layer's input", BERT, "self.output(wide, attended)", "self.output(wide, hidden_states)"),
    Mutant("feed-forward reads the layer's input", BERT, "self.intermediate(attended)",
           "self.intermediate(hidden_states)"),
    Mutant("last layer not run", BERT, "enumerate(self.layer):", "enumerate(self.layer[:-1]):"),
    Mutant("embeddings not among the states", BERT, "states, maps = [hidden_states], []", "states, maps = [], []"),
    Mutant("other dropout when a layer is computed again", BERT, "*arguments, use_reentrant=False)",
           "*arguments, use_reentrant=False, preserve_rng_state=False)", TRAINING),
    Mutant("pooler reads the last token", BERT, "hidden_states[:, 0]", "hidden_states[:, -1]"),
    Mutant("pooler reads the mean", BERT, "hidden_states[:, 0]", "hidden_states.mean(1)"),
    Mutant("pooler without tanh", BERT, "self.activation = nn.Tanh()", "self.activation = nn.Identity()"),
    # heads and losses
    Mutant("decoder not tied", HEADS, "if decoder is not None and self.config.tie_word_embeddings:", "if False:"),
    Mutant("decoder without bias", PRETRAINING, "return self.decoder(self.transform(hidden_states))",
           "return self.transform(hidden_states) @ self.decoder.weight.T"),
    Mutant("no activation before the decoder", PRETRAINING,
           "self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))",
           "self.LayerNorm(self.dense(hidden_states))"),
    Mutant("other eps before the decoder", PRETRAINING, NORM, WRONG_NORM),
    Mutant("start and end swapped", HEADS, "start_logits, end_logits = self.qa_outputs(",
           "end_logits, start_logits = self.qa_outputs("),
    Mutant("choices laid the other way", HEADS, ".view(-1, choices)", ".view(choices, -1).T"),
    Mutant("no dropout before the classifier", HEADS, "self.classifier(self.dropout(encoded.pooler_output))  # (B, C)",
           "self.classifier(encoded.pooler_output)  # (B, C)", TRAINING),
    Mutant("classifier_dropout not read", HEADS, "if config.classifier_dropout is None else config.classifier_dropout",
           "", TRAINING),
    Mutant("sum of the losses of start and end", HEADS, 'end_positions, "end_positions")) / 2',
           'end_positions, "end_positions"))'),
    Mutant("position -1 is the first token", LOSSES, "positions.where(inside, IGNORED_LABEL)",
           "positions.where(inside, IGNORED_LABEL).where(positions >= 0, 0)", ANSWERS),
    Mutant("loss over ignored tokens too", LOSSES, "(labels != IGNORED_LABEL).sum().clamp(min=1)", "labels.numel()"),
    Mutant("loss of nothing is NaN", LOSSES, ".sum().clamp(min=1)", ".sum()", NOTHING),
    Mutant("ignored tokens have the label 0", LOSSES, "    labels = labels.long()\n",
           "    labels = labels.long()\n    labels = labels.where(labels >= 0, 0)\n"),
    Mutant("regression by cross entropy", LOSSES, 'F.mse_loss if problem == "regression" else ', "", TRAINING),
    # weights
    Mutant("fresh weights of another size", PRETRAINED, "parameter.normal_(std=std)", "parameter.normal_(std=0.02)",
           ("tests/parity/test_shapes.py::test_fresh_weights_are_drawn_as_in_transformers",)),
    Mutant("one layer read twice", PLAN, f"{READ}plain[short]",
           f'{READ}plain.get(short.replace("layer.1.", "layer.0."), plain[short])'),
    Mutant("gamma and beta swapped", FAMILY, NORM_RULES, swapped(NORM_RULES)),
    Mutant("gamma and beta of the head swapped", FAMILY, HEAD_NORM_RULES, swapped(HEAD_NORM_RULES)),
    Mutant("training mode after loading", LOADING, "return model.eval()", "return model"),
    Mutant("tied weights saved twice", LOADING, "if id(tensor) in seen and model.config.tie_word_embeddings:",
           "if False:", ("tests/golden/test_golden.py",)),
)  # fmt: skip


def run_suite(package_parent: Path, test: str) -> tuple[int, str]:
    """Run a test or a file of them on the package below ``package_parent``; give pytest's exit code and its words."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(package_parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)),
        *("--expect-package", str(package_parent / "plainbert")),
        *("-x", str(ROOT / test)),
    ]
    try:
        done = subprocess.run(
            command, cwd=package_parent, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, f"not done after {LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr


def outcome_of(mutant: Mutant, package: Path) -> tuple[bool, str, float]:
    """Break a copy of ``package``; give whether the suite failed as it must, which test saw it, and the seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plainbert-mutant-") as scratch:
        copy = Path(scratch, "plainbert")
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            mutant.apply(copy)
        except ValueError:
            return False, "STALE: its text is not found once", 0.0
        code, text = next(
            (found for found in (run_suite(Path(scratch), test) for test in mutant.tests) if found[0]), (0, "")
        )
    took_s = time.monotonic() - start
    seen = re.search(r"^(?:FAILED|ERROR) (?:\S*/)?(\S+::\S+)", text, re.MULTILINE)
    if code == 1 and seen:
        return True, seen[1], took_s
    last = text.strip().splitlines()[-1] if text.strip() else ""
    return False, "SURVIVED" if code == 0 else f"pytest ended with {code}: {last}", took_s


def main() -> int:
    """Run the suite on the package as it is, then on every mutant; 1 when one survives or cannot be applied."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only mutants whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.names or any(name in m.name for name in arguments.names)]
    if not chosen:
        parser.error(f"no mutant is called like {', '.join(arguments.names)}")
    with tempfile.TemporaryDirectory(prefix="plainbert-mutants-") as scratch:
        package = Path(scratch, "plainbert")  # what is edited during the run has no part in it
        shutil.copytree(ROOT / "plainbert", package, ignore=shutil.ignore_patterns("__pycache__"))
        with ThreadPoolExecutor(arguments.jobs) as threads:
            return run_all(chosen, package, threads)


def run_all(chosen: list[Mutant], package: Path, threads: ThreadPoolExecutor) -> int:
    """Run the suite on ``package``, then on each mutant of it, and print the table; give the exit code."""
    start = time.monotonic()
    # What fails without a mutant proves nothing with one.
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    for test, (code, text) in zip(tests, threads.map(lambda test: run_suite(package.parent, test), tests), strict=True):
        if code != 0:
            print(f"{test} must pass on the package as it is, and does not:\n{text[-2000:]}")
            return 1
    print(f"the tests pass on the package as it is, {time.monotonic() - start:.0f} s", flush=True)

    failed = 0
    width = max(len(mutant.name) for mutant in chosen)
    outcomes = threads.map(lambda mutant: outcome_of(mutant, package), chosen)
    for mutant, (seen, what, took_s) in zip(chosen, outcomes, strict=True):
        failed += not seen
        print(f"{'seen' if seen else 'FAIL'}  {mutant.name:{width}}  {took_s:5.1f} s  {what}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} slips seen, {failed} not, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
