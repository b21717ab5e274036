#!/usr/bin/env python3
"""Converts a PyTorch checkpoint (.pth, .pt, .bin) to model.safetensors beside it."""
import argparse
import os
import sys

parser = argparse.ArgumentParser(description=__doc__, epilog="needs: pip install torch safetensors")
parser.add_argument("source", metavar="CHECKPOINT.pth")
parser.add_argument("target", metavar="model.safetensors", nargs="?", help="where it goes, instead of beside it")
arguments = parser.parse_args()

try:
    import torch
    from safetensors.torch import save_file
except ImportError as error:
    sys.exit(f"convert_pth.py: {error}: pip install torch safetensors")

source = arguments.source
target = arguments.target or os.path.join(os.path.dirname(source), "model.safetensors")
if not os.path.isfile(source):
    sys.exit(f"convert_pth.py: {source}: there is no such file")
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
