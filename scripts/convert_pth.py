#!/usr/bin/env python3
"""Converts a PyTorch checkpoint (.pth, .pt, .bin) to model.safetensors beside it.

usage: convert_pth.py CHECKPOINT.pth [model.safetensors]
needs: pip install torch safetensors
"""
import os
import sys

import torch
from safetensors.torch import save_file

source = sys.argv[1]
target = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(source), "model.safetensors")
state = torch.load(source, map_location="cpu", weights_only=True)  # refuses anything but tensors
for wrapper in ("state_dict", "model", "module"):
    if isinstance(state.get(wrapper), dict):
        state = state[wrapper]
# A copy of each, because safetensors holds no two tensors that share memory.
tensors = {name: value.contiguous().clone() for name, value in state.items() if torch.is_tensor(value)}
save_file(tensors, target, metadata={"format": "pt"})
print(f"{target}: {len(tensors)} tensors")
