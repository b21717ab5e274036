"""Train the small SETR that segments digits in scenes.

A ViT over 16x16 patches with the PUP head (progressive upsampling), laid out and named like mmsegmentation's SETR, trained
from scratch on an endless stream of scenes (../scenes.py).  Weights are averaged; the test scenes are read once, at the end.

    python train_setr.py --out OUTDIR
writes config.json, preprocessor_config.json, model.safetensors, training.json and test.npz.  A run that reaches --minutes
stops and is continued from OUTDIR/checkpoint.pt by the same command.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import environment, follow, load_checkpoint, save_checkpoint, save_weights, warmup_cosine
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scenes import PHOTOS, SceneMaker, Scenes, first_scenes, fixed_scenes

SIZE, PATCH, CLASSES, EXPORTED, TEST, VAL = 160, 16, 11, 48, 1024, 512
WIDTH, LAYERS, HEADS, MLP, CHANNELS, EPS = 192, 6, 6, 576, 64, 1e-6
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
PALETTE = [(0, 0, 0), (230, 25, 75), (60, 180, 75), (255, 225, 25), (0, 130, 200), (245, 130, 48), (170, 128, 255),
           (70, 240, 240), (240, 50, 230), (255, 255, 170), (250, 190, 212)]
CONFIG = {
    "model_type": "setr", "flavour": "mmseg", "head": "pup", "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "intermediate_size": MLP, "image_size": SIZE, "patch_size": PATCH, "num_labels": CLASSES,
    "decoder_channels": CHANNELS, "tap_layers": [LAYERS - 1], "layer_norm_eps": EPS,
    "id2label": {"0": "background"} | {str(d + 1): str(d) for d in range(10)}, "palette": PALETTE,
}
PREPROCESSOR = {
    "image_processor_type": "SetrImageProcessor", "do_resize": True, "size": {"shortest_edge": SIZE, "longest_edge": SIZE}, "resample": 2,
    "do_rescale": False, "do_normalize": True, "image_mean": list(MEAN), "image_std": list(STD),
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, eps=EPS), nn.LayerNorm(WIDTH, eps=EPS)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, MLP), nn.Linear(MLP, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, WIDTH))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Setr(nn.Module):
    """SETR-PUP.  The 1x1 classifier runs before the last doubling, with which it commutes: a quarter of the work."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos = nn.Parameter(torch.randn(1, 1 + (SIZE // PATCH) ** 2, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=EPS)
        self.convs = nn.ModuleList(nn.Conv2d(CHANNELS if i else WIDTH, CHANNELS, 3, padding=1, bias=False) for i in range(4))
        self.bns = nn.ModuleList(nn.BatchNorm2d(CHANNELS) for _ in range(4))
        self.out = nn.Conv2d(CHANNELS, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x)
        h, w = x.shape[2:]
        x = torch.cat([self.cls.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        x = self.norm(x[:, 1:]).transpose(1, 2).unflatten(2, (h, w))
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            x = F.relu(bn(conv(x)))
            x = F.interpolate(x if i < 3 else self.out(x), scale_factor=2, mode="bilinear", align_corners=False)
        return x

    def public_names(self) -> dict[str, str]:
        """Our parameter name -> the name in an mmsegmentation checkpoint."""
        names = {"cls": "backbone.cls_token", "pos": "backbone.pos_embed"}
        modules = {"patch": "backbone.patch_embed.projection", "norm": "decode_head.norm", "out": "decode_head.conv_seg"}
        for i in range(LAYERS):
            ours, theirs = f"blocks.{i}.", f"backbone.layers.{i}."
            modules |= {ours + "ln1": theirs + "ln1", ours + "ln2": theirs + "ln2", ours + "proj": theirs + "attn.attn.out_proj",
                        ours + "fc1": theirs + "ffn.layers.0.0", ours + "fc2": theirs + "ffn.layers.1"}
            names |= {ours + f"qkv.{k}": theirs + f"attn.attn.in_proj_{k}" for k in ("weight", "bias")}
        for i in range(4):
            modules |= {f"convs.{i}": f"decode_head.up_convs.{i}.0.conv", f"bns.{i}": f"decode_head.up_convs.{i}.0.bn"}
        for key in self.state_dict():
            module, _, leaf = key.rpartition(".")
            if module in modules and leaf != "num_batches_tracked":
                names[key] = f"{modules[module]}.{leaf}"
        return names


def normalise(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(t, device=images.device).view(3, 1, 1) for t in (MEAN, STD))
    return (images.float() - mean) / std


def seg_loss(logits: torch.Tensor, classes: torch.Tensor) -> dict[str, torch.Tensor]:
    """Cross-entropy and, for the classes present in the batch, soft Dice."""
    target = classes.long()
    p = logits.softmax(1)
    hot = torch.zeros_like(p).scatter_(1, target[:, None], 1.0)
    inter, total = (p * hot).sum((0, 2, 3)), (p + hot).sum((0, 2, 3))
    return dict(ce=F.cross_entropy(logits, target), dice=(1 - 2 * inter / total.clamp(min=1)).mean())


@torch.no_grad()
def predictions(model: nn.Module, images: torch.Tensor, dev: torch.device) -> torch.Tensor:
    model.eval()
    return torch.cat([model(normalise(x.to(dev))).float().argmax(1).to(torch.uint8).cpu() for x in images.split(64)])


def score(predicted: torch.Tensor, classes: torch.Tensor) -> dict[str, float]:
    """Pixel accuracy and intersection over union from one confusion matrix over all scenes."""
    pairs = classes.flatten().long() * CLASSES + predicted.flatten().long()
    confusion = torch.bincount(pairs, minlength=CLASSES ** 2).view(CLASSES, CLASSES).double()
    iou = confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag()).clamp(min=1)
    return dict(mean_iou=round(float(iou.mean()), 4), digits_iou=round(float(iou[1:].mean()), 4),
                pixel_accuracy=round(float(confusion.diag().sum() / confusion.sum()), 4))


@torch.no_grad()
def settle_norms(model: Setr, maker: SceneMaker, batch: int, rounds: int = 60) -> None:
    """Measures the BatchNorm statistics anew, for the averaged weights."""
    for m in model.bns:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    for _ in range(rounds):
        model(normalise(maker.batch(batch, SIZE, SIZE).images))


def train(args: argparse.Namespace, dev: torch.device) -> tuple[Setr, list[dict], bool]:
    """Returns the averaged weights, the log, and whether all steps were done."""
    torch.manual_seed(args.seed)
    model, average = Setr().to(dev), Setr().to(dev)
    average.load_state_dict(model.state_dict())
    decay = [p for p in model.parameters() if p.dim() in (2, 4)]
    plain = [p for p in model.parameters() if p.dim() not in (2, 4)]
    groups = [dict(params=decay, weight_decay=0.03), dict(params=plain, weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=dev.type == "cuda")
    sched = warmup_cosine(opt, args.steps, 1000, floor=0.01)
    state = dict(model=model, average=average, opt=opt, sched=sched)
    first, log = load_checkpoint(args.out, state)
    maker = SceneMaker("train", dev, seed=1000 * args.seed + first)
    val = fixed_scenes("val", VAL, SIZE, SIZE)
    forward = torch.compile(model, dynamic=False) if args.compile else model
    start, sums = time.time(), {}
    for step in range(first + 1, args.steps + 1):
        model.train()
        scenes = maker.batch(args.batch, SIZE, SIZE)
        with torch.autocast(dev.type, torch.bfloat16):
            logits = forward(normalise(scenes.images))
        losses = seg_loss(logits.float(), scenes.classes)
        opt.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        follow(average, model, min(0.9995, step / (step + 100)))
        for k, v in losses.items():
            sums[k] = sums.get(k, 0) + v.detach() / args.log_every
        if step % args.log_every == 0 or step == args.steps:
            val_score = score(predictions(average, val.images, dev), val.classes)
            log.append(dict(step=step, **{k: round(float(v), 4) for k, v in sums.items()}, val=val_score))
            sums = {}
            print(json.dumps(log[-1]), round(time.time() - start), "s", flush=True)
            save_checkpoint(args.out, state, step, log)
            if time.time() - start > 60 * args.minutes and step < args.steps:
                return average, log, False
    settle_norms(average, maker, args.batch)
    return average, log, True


def write_test(out: Path, model: Setr, scenes: Scenes) -> dict:
    """A few test scenes with their truth and what the stored model, in float64, makes of them."""
    model = model.cpu().double().eval()
    with torch.no_grad():
        logits = torch.cat([model(normalise(x).double()) for x in scenes.images.split(8)])
    predicted = logits.argmax(1).to(torch.uint8)
    np.savez_compressed(out / "test.npz", images=scenes.images.permute(0, 2, 3, 1).numpy(), classes=scenes.classes.numpy(),
                        predicted=predicted.numpy(), logits_every_4th=logits[:4, :, ::4, ::4].float().numpy())
    return dict(scenes=len(predicted), **score(predicted, scenes.classes))


def write(args: argparse.Namespace, model: Setr, log: list[dict], dev: torch.device) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    names, path = model.public_names(), args.out / "model.safetensors"
    save_weights(path, args.half, {names[k]: v for k, v in model.state_dict().items() if k in names})
    stored = load_file(path)
    model.load_state_dict({k: stored[v].float() for k, v in names.items()}, strict=False)
    (args.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (args.out / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=2) + "\n")
    result = {}
    for split, count in (("val", VAL), ("test", TEST)):
        scenes = fixed_scenes(split, count, SIZE, SIZE)
        predicted = predictions(model, scenes.images, dev)
        result[split] = dict(scenes=count, **score(predicted, scenes.classes))
    result["test_npz"] = write_test(args.out, model, first_scenes(scenes, EXPORTED))
    report = dict(task="digit segmentation", data=f"digits on photographs, {SIZE}x{SIZE} scenes", photographs=PHOTOS, seed=args.seed,
                  steps=args.steps, batch=args.batch, learning_rate=args.lr, **environment(),
                  parameters=sum(p.numel() for p in model.parameters()), result=result, log=log)
    (args.out / "training.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(result))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--steps", type=int, default=12000)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--log-every", type=int, default=1000)
    ap.add_argument("--minutes", type=float, default=1e9, help="stop after this long; the same command continues")
    ap.add_argument("--compile", action="store_true")
    ap.add_argument("--half", action="store_true", help="store the matrices as float16")
    args = ap.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    average, log, done = train(args, dev)
    if done:
        write(args, average, log, dev)


if __name__ == "__main__":
    main()
