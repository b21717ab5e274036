"""Train the small ViT that reads handwritten digits.

The data are the 1797 8x8 digits that scikit-learn carries.  The "picture" of a digit is its 64x64 bicubic enlargement,
dark ink on white paper; the network sees it through the usual ViT preprocessing (Pillow bilinear resize to 32x32,
1/255, mean and std 0.5).  Model selection looks at the validation split only; the test split is read once, at the end.

    python train_digits.py --out OUTDIR
writes config.json, preprocessor_config.json, model.safetensors, training.json and test.npz.
"""
import argparse
import copy
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

from common import environment, follow, warmup_cosine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from digits import SPLIT_SEED, digit_splits, picture

SIZE = 32
PREPROCESSOR = {
    "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": SIZE, "width": SIZE}, "resample": 2,
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}
SELECTION = "fewest validation errors, then lowest validation loss; seed likewise among 1, 2, 3"


def model_config() -> ViTConfig:
    names = {i: str(i) for i in range(10)}
    return ViTConfig(hidden_size=96, num_hidden_layers=5, num_attention_heads=4, intermediate_size=256, image_size=SIZE,
                     patch_size=4, layer_norm_eps=1e-12, hidden_act="gelu", hidden_dropout_prob=0.1,
                     id2label=names, label2id={v: k for k, v in names.items()})


def preprocess(pictures: np.ndarray) -> torch.Tensor:
    """uint8 [N, H, W] -> float32 [N, 3, 32, 32], step by step what PREPROCESSOR describes."""
    out = np.empty((len(pictures), SIZE, SIZE, 3), np.float32)
    for i, p in enumerate(pictures):
        small = Image.fromarray(p).convert("RGB").resize((SIZE, SIZE), Image.BILINEAR)
        out[i] = (np.asarray(small) * (1 / 255)).astype(np.float32)
    return torch.from_numpy((out - np.float32(0.5)) / np.float32(0.5)).permute(0, 3, 1, 2).contiguous()


def augment(ink: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """ink in [0, 1], [N, 1, 64, 64] -> warped, coloured, noisy network input [N, 3, 32, 32]."""
    n, dev = len(ink), ink.device
    rand = lambda *s: torch.rand(*s, generator=gen, device=dev) * 2 - 1
    angle, shear = rand(n) * 0.26, rand(n) * 0.2
    sx, sy = 1 + 0.2 * rand(n), 1 + 0.2 * rand(n)
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack([cos / sx, (shear - sin) / sx, 0.2 * rand(n), sin / sy, cos / sy, 0.2 * rand(n)], 1).view(n, 2, 3)
    grid = F.affine_grid(theta, list(ink.shape), align_corners=False)
    bend = F.interpolate(0.08 * rand(n, 2, 5, 5), size=ink.shape[-2:], mode="bicubic", align_corners=True)
    ink = F.grid_sample(ink, grid + bend.permute(0, 2, 3, 1), padding_mode="border", align_corners=False)
    ink = ink.clamp(1e-4, 1) ** torch.exp(0.4 * rand(n, 1, 1, 1))
    paper = 0.85 + 0.15 * rand(n, 3, 1, 1)
    dark = 0.15 + 0.15 * rand(n, 3, 1, 1)
    x = paper + (dark - paper) * ink
    x = F.interpolate(x, size=(SIZE, SIZE), mode="bilinear", antialias=True, align_corners=False)
    x = x + 0.06 * rand(n, 1, 1, 1).abs() * torch.randn(x.shape, generator=gen, device=dev)
    return x.clamp(0, 1) * 2 - 1


@torch.no_grad()
def predict(model: ViTForImageClassification, x: torch.Tensor) -> torch.Tensor:
    model.eval()
    return torch.cat([model(pixel_values=b).logits for b in x.split(200)])


def errors(model: ViTForImageClassification, x: torch.Tensor, y: torch.Tensor) -> int:
    return int((predict(model, x).argmax(1) != y).sum())


def train(args: argparse.Namespace, splits: dict, dev: torch.device) -> tuple[ViTForImageClassification, list[dict]]:
    """Returns the weight average with the fewest validation errors (ties: lowest loss) and the log."""
    gen = torch.Generator(dev).manual_seed(args.seed)
    ink = torch.from_numpy(splits["train"][0]).to(dev)[:, None].float() / 255
    ink, label = 1 - ink, torch.from_numpy(splits["train"][1]).to(dev)
    vx, vy = preprocess(splits["val"][0]).to(dev), torch.from_numpy(splits["val"][1]).to(dev)
    model = ViTForImageClassification(model_config()).to(dev)
    average = copy.deepcopy(model)
    steps = -(-len(ink) // args.batch)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, betas=(0.9, 0.98))
    sched = warmup_cosine(opt, args.epochs * steps, 20 * steps)
    best, log, best_state = (10 ** 9, 0.0), [], None
    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(ink), generator=gen, device=dev).chunk(steps):
            logits = model(pixel_values=augment(ink[idx], gen)).logits
            loss = F.cross_entropy(logits, label[idx], label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            follow(average, model, 0.995)
            total += loss.detach() / steps
        if epoch % args.log_every and epoch != args.epochs:
            continue
        logits = predict(average, vx)
        wrong, val_loss = int((logits.argmax(1) != vy).sum()), float(F.cross_entropy(logits, vy))
        log.append(dict(epoch=epoch, train_loss=round(float(total), 4), val_loss=round(val_loss, 4), val_errors=wrong))
        print(log[-1], flush=True)
        if (wrong, val_loss) < best:
            best, best_state = (wrong, val_loss), copy.deepcopy(average.state_dict())
    average.load_state_dict(best_state)
    return average, log


def write(args: argparse.Namespace, model: ViTForImageClassification, splits: dict, log: list[dict]) -> None:
    out = Path(args.out)
    model = model.cpu().float().eval()
    model.save_pretrained(out)
    (out / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=2) + "\n")
    result = {}
    for name, (images, labels) in splits.items():
        wrong = errors(model, preprocess(images), torch.from_numpy(labels))
        result[name] = dict(images=len(labels), errors=wrong, accuracy=round(1 - wrong / len(labels), 5))
    images, labels = splits["test"]
    np.savez_compressed(out / "test.npz", images=images, labels=labels, logits=predict(model, preprocess(images)).numpy())
    report = dict(task="digit classification", data="scikit-learn load_digits, 64x64 bicubic pictures", seed=args.seed, selection=SELECTION,
                  split_seed=SPLIT_SEED, epochs=args.epochs, batch=args.batch, learning_rate=args.lr, **environment(),
                  parameters=sum(p.numel() for p in model.parameters()), result=result, log=log)
    (out / "training.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(result))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--epochs", type=int, default=1500)
    ap.add_argument("--batch", type=int, default=240)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=2)
    ap.add_argument("--log-every", type=int, default=25)
    args = ap.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, labels = zip(*[(picture(v), l) for v, l in digit_splits().values()])
    splits = dict(zip(("train", "val", "test"), zip(images, labels)))
    model, log = train(args, splits, dev)
    write(args, model, splits, log)


if __name__ == "__main__":
    main()
