#!/usr/bin/env python3
"""Converts a PyTorch checkpoint (.pth, .pt, .bin) to model.safetensors beside it. Needs Python alone."""
import argparse
import contextlib
import json
import os
import pickle
import struct
import sys
import zipfile

from torch_pickle import Refused, Stranger, Tensor, array_of, load

# Where training programs put a model's weights, the usual place first, and what all names begin with.
PARTS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "params_ema", "params", "weights",
         "state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema", "teacher", "student")
BEGINNINGS = ("state_dict.", "model.", "module.", "_orig_mod.", "net.", "network.", "model_ema.", "ema_model.", "teacher.", "student.")
NOT_WEIGHTS = ("optim", "sched", "scaler", "rng", "criterion", "loss")  # words in the names of a program's other states
DEEPEST = 8  # levels in which weights are looked for


def weights_of_module(module, prefix="", depth=0):
    """What state_dict() of a pickled torch.nn.Module would give."""
    found = {}
    if depth > 64 or not isinstance(module, Stranger) or not isinstance(module.state, dict):
        return found
    passing = module.state.get("_non_persistent_buffers_set") or ()
    for group in ("_parameters", "_buffers"):
        for name, value in (module.state.get(group) or {}).items():
            if isinstance(value, Tensor) and not (group == "_buffers" and name in passing):
                found[prefix + name] = value
    for name, child in (module.state.get("_modules") or {}).items():
        found.update(weights_of_module(child, f"{prefix}{name}.", depth + 1))
    return found


def members(thing):
    """What is in a container, by name."""
    if isinstance(thing, Stranger):
        state = thing.state if isinstance(thing.state, dict) else {}
        return {**state, **thing, **{f"[{i}]": each for i, each in enumerate(thing.elements)}}
    if isinstance(thing, dict):
        return thing
    return {f"[{i}]": each for i, each in enumerate(thing)} if isinstance(thing, (list, tuple)) else {}


def states(thing, path=(), depth=0):
    """All state dicts in what was loaded, as {path: {name: tensor}}: the usual places first."""
    if isinstance(thing, Stranger) and isinstance(thing.state, dict) and "_modules" in thing.state:
        found = weights_of_module(thing)
        return {path: found} if found else {}
    held = {name: value for name, value in members(thing).items() if isinstance(name, str)}
    if depth > DEEPEST:
        return {}
    found, own = {}, {}
    for name in sorted(held, key=lambda name: PARTS.index(name) if name in PARTS else len(PARTS)):
        value = held[name]
        if isinstance(value, Stranger):
            if value.name.startswith("torch._utils._rebuild"):
                raise Refused(f"holds \"{name}\", a tensor of a kind that safetensors does not have ({value.name})")
            value = array_of(value) or value
        if isinstance(value, Tensor):
            own[name] = value
        elif not any(word in name.lower() for word in NOT_WEIGHTS):
            found.update(states(value, path + (name,), depth + 1))
    # A number beside a state dict is a measure; a list has no names.
    if own and isinstance(thing, dict) and (not found or any(value.shape for value in own.values())):
        found = {path: own, **found}
    return found


def chosen(found, part):
    """One of the state dicts: the part asked for, or the usual one."""
    def text(path):
        return ".".join(path) or "the file itself"
    if part is not None:
        for path in found:
            if text(path) == part:
                return path
        raise Refused(f"has no part \"{part}\" with tensors, but {', '.join(text(path) for path in list(found)[:8])}")
    usual = [path for path in found if path and all(name in PARTS for name in path)]
    if not usual and len(found) > 1:
        raise Refused(f"holds several sets of weights: name one with --part: {', '.join(text(path) for path in list(found)[:8])}")
    return min(usual, key=lambda path: [PARTS.index(name) for name in path]) if usual else next(iter(found))


def describe(thing):
    if isinstance(thing, (list, tuple)) and any(isinstance(each, Tensor) for each in thing):
        return f"holds a list of {len(thing)} tensors without names"
    if isinstance(thing, Tensor):
        return "holds one tensor without a name"
    if isinstance(thing, Stranger):
        return f"holds an object of {thing.name} without tensors"
    if isinstance(thing, dict) and thing:
        return f"holds no tensors by name, but {', '.join(str(key)[:40] for key in list(thing)[:6])}"
    return f"holds no tensors but one value of type {type(thing).__name__}"


def without_beginnings(tensors):
    """Takes off what a training program puts before all names, and its count of averaged steps."""
    bare = {name: value for name, value in tensors.items() if name != "n_averaged"} or tensors
    for beginning in BEGINNINGS * 3:
        if all(name.startswith(beginning) and name != beginning for name in bare):
            bare = {name[len(beginning):]: value for name, value in bare.items()}
    return bare


def save(target, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        begin, end = end, end + value.count() * value.size
        header[name] = {"dtype": value.type, "shape": list(value.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    unfinished = target + ".part"
    try:
        with open(unfinished, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for value in tensors.values():
                file.write(value.bytes())
        os.replace(unfinished, target)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def shards(source):
    """The files of a checkpoint: itself, or those that a pytorch_model.bin.index.json lists."""
    if not source.endswith(".index.json"):
        return [source]
    with open(source, encoding="utf-8") as file:
        listed = json.load(file)
    names = sorted(set(listed["weight_map"].values())) if isinstance(listed, dict) and isinstance(listed.get("weight_map"), dict) else []
    if not names or not all(isinstance(name, str) and name == os.path.basename(name) != "" for name in names):
        raise Refused("lists no files in its own folder")
    return [os.path.join(os.path.dirname(source), name) for name in names]


def convert(source, target, part):
    """The line that says what was written."""
    tensors, note = {}, ""
    with contextlib.ExitStack() as files:  # open to the end: tensors are read when they are written
        for path in shards(source):
            if os.path.exists(target) and os.path.samefile(path, target):
                raise Refused("would be overwritten: name another target")
            root = load(files.enter_context(open(path, "rb")))
            found = states(root)
            if not found:
                raise Refused(f"{describe(root)}: save model.state_dict() and convert that")
            place = chosen(found, part)
            tensors.update(found[place])
            others = [".".join(other) for other in found if other != place and other]
            if others and place:
                note = f" of \"{'.'.join(place)}\" (--part takes others: {', '.join(others[:8])})"
        tensors = without_beginnings(tensors)
        save(target, tensors)
    return f"{target}: {len(tensors)} tensors{note}"


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", metavar="CHECKPOINT.pth")
    parser.add_argument("target", metavar="model.safetensors", nargs="?", help="where it goes, instead of beside it")
    parser.add_argument("--part", metavar="NAME", help="which weights to take if the file holds several, \"model_ema\" for instance")
    arguments = parser.parse_args(given)
    source = arguments.source
    target = arguments.target or os.path.join(os.path.dirname(source), "model.safetensors")
    try:
        print(convert(source, target, arguments.part))
    except Refused as error:
        sys.exit(f"convert_pth.py: {source}: {error}")
    except OSError as error:
        sys.exit(f"convert_pth.py: {error.filename or source}: {error.strerror or error}")
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError,
            MemoryError, OverflowError, RecursionError, struct.error, UnicodeError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        sys.exit(f"convert_pth.py: {source}: is damaged, or nothing that torch.save wrote: {what}")


if __name__ == "__main__":
    main()
