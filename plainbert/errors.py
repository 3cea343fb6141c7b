"""Every exception and warning of plainbert.

    PlainBertError
    |-- InputError (ValueError)           a value that the caller can change
    |   |-- ConfigError                   a config.json field, or a BertConfig argument
    |   |-- CheckpointError               a file of a checkpoint: broken, refused, or not of this model
    |   |   `-- MissingFileError (FileNotFoundError)
    |   `-- TokenizerError                a tokenizer file, or a tokenizer argument
    |-- KeywordError (TypeError)          a keyword that nothing here takes
    `-- HubError (OSError)                the Hub refused, or could not be reached

    PlainBertWarning (UserWarning)        done as asked, and there is something to know

A message reads ``<name> must <rule>, got <value>; <what to do>``: what was wrong, the value, the way out.
"""

from __future__ import annotations

import sys
import warnings


class PlainBertError(Exception):
    """Base of every exception that plainbert raises on purpose."""


class InputError(PlainBertError, ValueError):
    """A value that the caller can change: ids, masks, lengths, options."""


class ConfigError(InputError):
    """A field of config.json, or an argument of ``BertConfig``, that no model can be built from."""


class CheckpointError(InputError):
    """A checkpoint whose files are broken, unsafe, or do not fit the model; names the file or the weight."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """A file that the checkpoint must have and has not; says where it was looked for."""

    def __str__(self) -> str:
        # OSError would print an errno form; what was passed is already the sentence.
        return str(self.args[0]) if self.args else ""


class TokenizerError(InputError):
    """A tokenizer file or argument that cannot be honoured."""


class KeywordError(PlainBertError, TypeError):
    """A keyword that nothing here takes; names those that are."""


class HubError(PlainBertError, OSError):
    """The Hub refused the request, or could not be reached."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PlainBertWarning(UserWarning):
    """Something was done as asked and the caller should know about it: fresh weights, an odd file."""


_NOT_THE_CALLER = ("plainbert", "torch")


def warn(message: str) -> None:
    """Warn the caller of this package: the warning carries the first line outside it, however deep the call was.

    The lines by which torch calls a module are passed over too.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_CALLER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, PlainBertWarning, stacklevel=level)
