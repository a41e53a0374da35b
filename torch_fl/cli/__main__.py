"""`python -m torch_fl.cli` is the command `flagos`, for an environment whose scripts are not on the path."""

import sys

from torch_fl.cli import main

sys.exit(main())
