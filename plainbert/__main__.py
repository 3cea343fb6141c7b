"""``python -m plainbert``: the same as the command ``plainbert``."""

from __future__ import annotations

import sys

from plainbert.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
