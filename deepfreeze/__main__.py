"""``python -m deepfreeze`` is the ``deepfreeze`` command."""

import sys

from deepfreeze.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
