#!/usr/bin/env python3
"""Writes the golden files of optimizers, models and fp16 training again, by the installed PyTorch: write_fresh.py FOLDER

In one process: PyTorch takes seconds to import.
"""
import pathlib
import sys

import make_half_golden
import make_model_golden
import make_optimizer_golden

folder = pathlib.Path(sys.argv[1])
for module, place in ((make_optimizer_golden, folder / "fresh_optimizers.safetensors"), (make_model_golden, folder),
                      (make_half_golden, folder)):
    sys.argv[1] = str(place)
    module.main()
