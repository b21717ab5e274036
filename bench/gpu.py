"""What measurements on a GPU say of it, of its clocks meanwhile, and of what was measured."""

import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results/gpu"
FIXED = ["name", "driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit"]
CHANGING = ["utilization.gpu", "clocks.sm", "clocks.mem", "power.draw"]


def output(command, limit):
    """What the command prints; RuntimeError if it fails. What takes longer is killed, with all that it started."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            out, errors = process.communicate(timeout=limit)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise RuntimeError((errors or out).strip()[-400:])
    return out


def query(names, *options):
    """The command that prints a line of these, of the first GPU that programs see."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    return ["nvidia-smi", f"--id={first}", f"--query-gpu={','.join(names)}", "--format=csv,noheader", *options]


def described():
    """The GPU's name, driver, highest clocks and power limit."""
    return dict(zip(FIXED, output(query(FIXED), 20).strip().splitlines()[0].split(", ")))


class Clocks:
    """Reads the clocks and the power five times a second while a `with` statement runs.

    `told()` has their least, median and largest values in MHz and W over the readings at which the GPU was busy.
    """

    def __enter__(self):
        command = query(CHANGING, "--loop-ms=200")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.lines = self.process.communicate()[0].splitlines()

    def told(self):
        readings = []
        for line in self.lines:
            try:
                busy, *values = [float(text.split()[0]) for text in line.split(", ")]
            except (ValueError, IndexError):  # "[N/A]", or a line that was cut off
                continue
            if busy > 0 and len(values) + 1 == len(CHANGING):
                readings.append(values)
        return {"readings": len(readings)} | {
            name: {"min": min(values), "median": statistics.median(values), "max": max(values)}
            for name, values in zip(CHANGING[1:], zip(*readings))
        }


def save(kind, result, folder=RESULTS, when=None):
    """Writes DATE-KIND.json, which begins with the date."""
    when = when or datetime.datetime.now(datetime.timezone.utc)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{when:%Y-%m-%d-%H%M}-{kind}.json"
    write(path, {"date": f"{when:%Y-%m-%d %H:%M} UTC", **result})
    return path


def write(path, result):
    """In place of what is there, even if this is interrupted."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(result, indent=1) + "\n")
    new.replace(path)


def newest(kind, folder=RESULTS):
    """The path of the last file of a kind, None if there is none."""
    return max(folder.glob(f"*-{kind}.json"), default=None)


def commit():
    """Of the sources, as bench/commit.h has it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return output(command, 20).strip()
    except (OSError, RuntimeError):
        return "unknown"
