"""`python -m relaxc` is the command `relaxc`."""

import sys

from relaxc.cli import main

if __name__ == "__main__":
    sys.exit(main())
