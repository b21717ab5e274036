"""What the training scripts share: learning-rate schedule, weight averaging, the facts for training.json."""
import datetime
import importlib.metadata
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def warmup_cosine(opt: torch.optim.Optimizer, total: int, warmup: int, floor: float = 0.0) -> torch.optim.lr_scheduler.LambdaLR:
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))
    return torch.optim.lr_scheduler.LambdaLR(opt, factor)


@torch.no_grad()
def follow(average: torch.nn.Module, model: torch.nn.Module, decay: float) -> None:
    """Exponential moving average of the parameters; buffers (BatchNorm statistics) are copied."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
    if buffers := list(average.buffers()):
        torch._foreach_copy_(buffers, list(model.buffers()))


def environment() -> dict:
    names = ("torch", "transformers", "numpy", "pillow", "scikit-learn", "scikit-image", "safetensors")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return dict(device=device, date=datetime.date.today().isoformat(), versions={n: importlib.metadata.version(n) for n in names})


def save_checkpoint(out: Path, state: dict, step: int, log: list[dict]) -> None:
    torch.save(dict(step=step, log=log, **{k: v.state_dict() for k, v in state.items()}), out / "checkpoint.pt")


def load_checkpoint(out: Path, state: dict) -> tuple[int, list[dict]]:
    """Fills the state's modules from OUT/checkpoint.pt, if there is one; returns the step reached and the log so far."""
    if not (out / "checkpoint.pt").exists():
        return 0, []
    saved = torch.load(out / "checkpoint.pt", map_location="cpu", weights_only=True)
    for k, v in state.items():
        v.load_state_dict(saved[k])
    return saved["step"], saved["log"]


def save_weights(path: Path, half: bool, tensors: dict[str, torch.Tensor] | None = None) -> None:
    """Writes tensors (or rewrites the file's own) contiguously; with `half` the matrices are stored as float16."""
    tensors = load_file(path) if tensors is None else tensors
    short = lambda t: t.half() if half and t.dim() > 1 else t.float()
    save_file({k: short(t).cpu().contiguous() for k, t in tensors.items()}, path, metadata={"format": "pt"})
