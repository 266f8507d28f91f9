#!/usr/bin/env python3
"""Experiment 09: the critical batch size; see ../critical.py.

    pip install numpy scipy
    python experiments/09-critical-batch/analyze.py        # from results/: prints the page's tables, writes expected.json
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from critical import main  # noqa: E402

main(Path(__file__).resolve().parent)
