#!/usr/bin/env python3
"""Converts a PyTorch checkpoint (.pth, .pt, .bin) to model.safetensors beside it.

usage: convert_pth.py CHECKPOINT.pth [model.safetensors]
needs: pip install torch safetensors
"""
import argparse
import os
import sys

import torch
from safetensors.torch import save_file

source = sys.argv[1]
target = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(source), "model.safetensors")
# Only tensors and plain values are loaded, never code; some training scripts also stored their options.
with torch.serialization.safe_globals([argparse.Namespace]):
    state = torch.load(source, map_location="cpu", weights_only=True)
for wrapper in ("state_dict", "model", "module"):
    if isinstance(state.get(wrapper), dict):
        state = state[wrapper]
# A copy of each, because safetensors holds no two tensors that share memory.
tensors = {name: value.contiguous().clone() for name, value in state.items() if torch.is_tensor(value)}
save_file(tensors, target, metadata={"format": "pt"})
print(f"{target}: {len(tensors)} tensors")
