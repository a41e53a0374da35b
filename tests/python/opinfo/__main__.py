"""Starts the command line of the harness in an environment that must stand before torch is loaded."""

import os
import sys
from pathlib import Path


def start() -> int:
    # One thread, and none before a fork.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    if not any("cuda" in argument for argument in sys.argv):
        # Where there is a CUDA device the tables make some of their samples on it, which a forked worker cannot.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.path[:0] = [str(Path(__file__).parents[1])]
    from opinfo.command import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
