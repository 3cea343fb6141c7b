"""``python -m plainbert``, and the command ``plainbert``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and give its exit code; an interrupt while it is being imported is one like any other."""
    try:
        from plainbert.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
