"""The options of one run over texts, settled, with what is counted on the way; and keywords that others have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from plainbert.errors import KeywordError, warn
from plainbert.tasks.tokenizing import UnknownTokens

# What users of other libraries type into encode, and what to do here.
_ELSEWHERE = {
    "batch_size": "pass max_batch_tokens=, a bound on rows times length",
    "convert_to_numpy": "leave it out, an array is what comes back",
    "convert_to_tensor": "use torch.from_numpy on the array that comes back",
    "device": "pass device= to Embedder.from_pretrained",
    "normalize_embeddings": "pass normalize=",
    "output_value": "use BertModel for the token vectors",
    "precision": "convert the float32 array that comes back",
    "show_progress_bar": "pass progress=",
}


@dataclass
class Run:
    """The settled options of one run over texts, and what has been counted so far."""

    prompt: str
    left_out: int
    """Tokens of the prompt, from the start of a row, that the pooling leaves out."""
    normalize: bool
    width: int
    max_batch_tokens: int
    refuse_long: bool
    max_length: int
    texts: int = 0
    cut: int = 0
    dropped: int = 0
    unknown: UnknownTokens = field(default_factory=UnknownTokens)

    def report(self) -> None:
        """Say in one warning what was dropped, and in one what was not known."""
        if self.cut:
            warn(
                f"{self.cut} of {self.texts} texts were cut to {self.max_length} tokens (max_length); "
                f"{self.dropped} tokens were dropped"
            )
        self.unknown.report()


def refuse_keywords(unknown: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first keyword that encode does not have.

    Raises:
        KeywordError: names it, what to write in its place, and those that exist.
    """
    for name in unknown:
        hint = f"{_ELSEWHERE[name]}; " if name in _ELSEWHERE else ""
        raise KeywordError(f"Embedder.encode has no argument {name!r}; {hint}it takes {', '.join(known)}")


@contextmanager
def progress_bar(wanted: bool, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draw a bar over the texts on stderr, if wanted, and give what moves it; without a total it counts."""
    if not wanted:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Texts"), BarColumn(), TextColumn("{task.completed:.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
