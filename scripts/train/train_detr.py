"""Train the small DETR that finds digits in scenes.

The network is transformers' DetrForObjectDetection with a thin ResNet, trained from scratch on an endless stream of scenes
(../scenes.py).  Four things are used in training only and leave no trace in the exported model: BatchNorm that learns (the
export holds its frozen statistics), several independent groups of queries, losses on every decoder layer, and a dense
classifier on the encoder's output.  Weights are averaged; the test scenes are read once, at the end.

    python train_detr.py --out OUTDIR
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
from PIL import Image
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

from common import environment, follow, load_checkpoint, save_checkpoint, save_weights, warmup_cosine
from detection import average_precision, box_corners, generalized_iou, match

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scenes import PHOTOS, SLOTS, SceneMaker, Scenes, first_scenes, fixed_scenes

SCENE, SIZE, QUERIES, CLASSES, EXPORTED, TEST, VAL = 160, 256, 16, 10, 48, 1024, 512
NO_OBJECT_WEIGHT = 0.2
SHAPES = torch.Generator().manual_seed(7)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PREPROCESSOR = {
    "image_processor_type": "DetrImageProcessor", "format": "coco_detection", "do_resize": True,
    "size": {"shortest_edge": SIZE, "longest_edge": SIZE}, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": list(MEAN), "image_std": list(STD), "do_pad": True,
}


def model_config() -> DetrConfig:
    backbone = ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 192, 256], depths=[2, 2, 2, 2], layer_type="bottleneck",
                            hidden_act="relu", out_features=["stage4"])
    names = {i: str(i) for i in range(CLASSES)}
    return DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=128,
                      encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
                      encoder_ffn_dim=256, decoder_ffn_dim=256, num_queries=QUERIES, dropout=0.0, auxiliary_loss=False,
                      id2label=names, label2id={v: k for k, v in names.items()})


def let_norms_learn(module: nn.Module) -> None:
    """Replaces the library's frozen BatchNorm by the ordinary one, under the same names."""
    for name, child in module.named_children():
        if type(child).__name__ == "DetrFrozenBatchNorm2d":
            setattr(module, name, nn.BatchNorm2d(len(child.weight)))
        else:
            let_norms_learn(child)


class Trainee(nn.Module):
    """DETR with learning BatchNorm, `groups` sets of queries and a dense classifier on the encoder's output."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.detr = DetrForObjectDetection(model_config())
        let_norms_learn(self.detr)
        self.detr.requires_grad_(True)
        self.extra_queries = nn.Embedding((groups - 1) * QUERIES, self.detr.config.d_model)
        self.dense = nn.Linear(self.detr.config.d_model, CLASSES + 1)
        nn.init.normal_(self.detr.model.query_position_embeddings.weight, std=1.0)

    def forward(self, pixels: torch.Tensor, groups: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits [L, B, groups * Q, C + 1] and boxes of every decoder layer, and dense logits [B, h, w, C + 1]."""
        m = self.detr.model
        features = m.backbone.model(pixels).feature_maps[-1]
        pos = m.position_embedding(shape=features[:1].shape, device=pixels.device, dtype=torch.float32).flatten(2).transpose(1, 2)
        memory = m.input_projection(features).flatten(2).transpose(1, 2)
        for layer in m.encoder.layers:
            memory = layer(memory, None, spatial_position_embeddings=pos)
        queries = torch.cat([m.query_position_embeddings.weight, self.extra_queries.weight])[:groups * QUERIES]
        queries = queries[None].expand(len(pixels), -1, -1)
        state, states = torch.zeros_like(queries), []
        group = torch.arange(groups * QUERIES, device=pixels.device) // QUERIES
        apart = torch.where(group[:, None] == group, 0.0, float("-inf"))[None, None] if groups > 1 else None
        for layer in m.decoder.layers:
            state = layer(state, apart, pos, queries, memory)
            states.append(m.decoder.layernorm(state))
        states = torch.stack(states)
        dense = self.dense(memory).unflatten(1, features.shape[-2:])
        return self.detr.class_labels_classifier(states), self.detr.bbox_predictor(states).sigmoid(), dense


def normalise(images: torch.Tensor) -> torch.Tensor:
    """uint8 [B, 3, H, W] -> network input with long side SIZE."""
    x = images.float() / 255
    if max(x.shape[-2:]) != SIZE:
        x = F.interpolate(x, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    mean, std = (torch.tensor(t, device=x.device).view(3, 1, 1) for t in (MEAN, STD))
    return ((x - mean) / std).contiguous(memory_format=torch.channels_last)


def preprocess(image: np.ndarray) -> torch.Tensor:
    """uint8 [H, W, 3], square -> float32 [3, 256, 256], step by step what PREPROCESSOR describes."""
    small = np.asarray(Image.fromarray(image).resize((SIZE, SIZE), Image.BILINEAR))
    x = (small * (1 / 255)).astype(np.float32)
    return torch.from_numpy((x - np.float32(MEAN)) / np.float32(STD)).permute(2, 0, 1).contiguous()


def network_inputs(scenes: Scenes, dev: torch.device) -> torch.Tensor:
    return torch.stack([preprocess(i.permute(1, 2, 0).numpy()) for i in scenes.images]).to(dev)


def set_loss(logits: torch.Tensor, boxes: torch.Tensor, scenes: Scenes) -> dict[str, torch.Tensor]:
    """DETR's matched loss for P independent sets of predictions: [P, B, Q, C + 1] and [P, B, Q, 4]."""
    sets, n = logits.shape[:2]
    logits, boxes = logits.flatten(0, 1), boxes.flatten(0, 1)
    labels, truth = scenes.labels.repeat(sets, 1), scenes.boxes.repeat(sets, 1, 1)
    valid = labels >= 0
    with torch.no_grad():
        p = logits.softmax(-1).gather(2, labels.clamp(min=0)[:, None].expand(-1, QUERIES, -1))
        cost = 5 * torch.cdist(boxes, truth, p=1) - 2 * generalized_iou(boxes[:, :, None], truth[:, None]) - p
        slot = match(cost, valid)
    found = slot < SLOTS
    pick = slot.clamp(max=SLOTS - 1)
    target = torch.where(found, labels.gather(1, pick), CLASSES)
    weight = torch.ones(CLASSES + 1, device=logits.device)
    weight[CLASSES] = NO_OBJECT_WEIGHT
    truth = truth.gather(1, pick[..., None].expand(-1, -1, 4))
    count = found.sum().clamp(min=1)
    return dict(kind=F.cross_entropy(logits.transpose(1, 2), target, weight),
                l1=5 * ((boxes - truth).abs().sum(-1) * found).sum() / count,
                giou=2 * ((1 - generalized_iou(boxes, truth)) * found).sum() / count)


def dense_loss(logits: torch.Tensor, scenes: Scenes) -> torch.Tensor:
    """Every encoder cell names the digit whose box is nearest to the cell's centre, if it lies inside that box."""
    at = [(torch.arange(n, device=logits.device) + 0.5) / n for n in logits.shape[1:3]]
    y, x = (t.flatten()[None, :, None] for t in torch.meshgrid(*at, indexing="ij"))
    cx, cy, w, h = (t[:, None] for t in scenes.boxes.unbind(-1))
    away = torch.maximum((x - cx).abs() / (w / 2), (y - cy).abs() / (h / 2)).masked_fill(scenes.labels[:, None] < 0, 9)
    distance, slot = away.min(-1)
    target = torch.where(distance < 1, scenes.labels.gather(1, slot), CLASSES)
    return F.cross_entropy(logits.float().flatten(1, 2).transpose(1, 2), target)


def split_groups(t: torch.Tensor, groups: int) -> torch.Tensor:
    """[L, B, groups * Q, C] -> [L * groups, B, Q, C]"""
    return t.float().unflatten(2, (groups, QUERIES)).transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def detections(model: nn.Module, inputs: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Class logits and boxes of the last layer, float32."""
    model.eval()
    parts = [model(pixel_values=x) for x in inputs.split(64)]
    return tuple(torch.cat([getattr(p, k).float() for p in parts]).cpu().numpy() for k in ("logits", "pred_boxes"))


def score(logits: np.ndarray, boxes: np.ndarray, scenes: Scenes, full: bool = True) -> dict[str, float]:
    """Average precision at IoU 0.5 and, if `full`, at 0.75 and averaged over 0.5:0.95, as COCO defines them."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p = (p / p.sum(-1, keepdims=True))[..., :CLASSES]
    labels, truth = scenes.labels.cpu().numpy(), box_corners(scenes.boxes.cpu()).numpy()
    corners = box_corners(torch.from_numpy(boxes)).numpy()
    ap = [average_precision(p.max(-1), p.argmax(-1), corners, labels, truth, t) for t in np.arange(0.5, 0.96 if full else 0.51, 0.05)]
    if not full:
        return dict(ap50=round(ap[0], 4))
    return dict(ap50=round(ap[0], 4), ap75=round(ap[5], 4), ap=round(float(np.mean(ap)), 4))


def exported(trainee: Trainee) -> DetrForObjectDetection:
    """The library's own model, frozen norms and all, with the trainee's weights."""
    model = DetrForObjectDetection(model_config())
    model.load_state_dict({k: v for k, v in trainee.detr.state_dict().items() if "num_batches_tracked" not in k})
    return model.to(trainee.dense.weight.device).eval()


@torch.no_grad()
def settle_norms(trainee: Trainee, maker: SceneMaker, batch: int, rounds: int = 60) -> None:
    """Measures the BatchNorm statistics anew, for the averaged weights."""
    norms = [m for m in trainee.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    trainee.train()
    for _ in range(rounds):
        trainee(normalise(draw(maker, batch).images), 1)


def draw(maker: SceneMaker, batch: int) -> Scenes:
    """Most batches are enlarged like the exported scenes; others are painted at the network's own size, some oblong."""
    r = float(torch.rand((), generator=SHAPES))
    oblong = SIZE * 3 // 4
    height, width = (SIZE, oblong) if r < 0.07 else (oblong, SIZE) if r < 0.14 else (SIZE, SIZE) if r < 0.45 else (SCENE, SCENE)
    return maker.batch(batch, height, width)


def train(args: argparse.Namespace, dev: torch.device) -> tuple[Trainee, list[dict], bool]:
    """Returns the averaged weights, the log, and whether all steps were done."""
    torch.manual_seed(args.seed)
    trainee, average = Trainee(args.groups).to(dev), Trainee(args.groups).to(dev)
    average.load_state_dict(trainee.state_dict())
    trainee.to(memory_format=torch.channels_last)
    decay = [p for p in trainee.parameters() if p.dim() > 1]
    plain = [p for p in trainee.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([dict(params=decay, weight_decay=0.02), dict(params=plain, weight_decay=0.0)], lr=args.lr, fused=dev.type == "cuda")
    sched = warmup_cosine(opt, args.steps, 1000, floor=0.01)
    state = dict(trainee=trainee, average=average, opt=opt, sched=sched)
    first, log = load_checkpoint(args.out, state)
    maker = SceneMaker("train", dev, seed=1000 * args.seed + first)
    val = fixed_scenes("val", VAL, SCENE, SCENE)
    inputs = network_inputs(val, dev)
    forward = torch.compile(trainee, dynamic=False) if args.compile else trainee
    start, sums = time.time(), {}
    for step in range(first + 1, args.steps + 1):
        trainee.train()
        scenes = draw(maker, args.batch)
        pixels = normalise(scenes.images)
        run = forward if pixels.shape[2] == pixels.shape[3] else trainee
        with torch.autocast(dev.type, torch.bfloat16):
            logits, boxes, dense = run(pixels, args.groups)
        losses = set_loss(split_groups(logits, args.groups), split_groups(boxes, args.groups), scenes)
        losses["dense"] = dense_loss(dense, scenes)
        opt.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
        opt.step()
        sched.step()
        follow(average, trainee, min(0.9995, step / (step + 100)))
        for k, v in losses.items():
            sums[k] = sums.get(k, 0) + v.detach() / args.log_every
        if step % args.log_every == 0 or step == args.steps:
            val_score = score(*detections(exported(average), inputs), val, full=False)
            log.append(dict(step=step, **{k: round(float(v), 4) for k, v in sums.items()}, val=val_score))
            sums = {}
            print(json.dumps(log[-1]), round(time.time() - start), "s", flush=True)
            save_checkpoint(args.out, state, step, log)
            if time.time() - start > 60 * args.minutes and step < args.steps:
                return average, log, False
    settle_norms(average, maker, args.batch)
    return average, log, True


def write_test(out: Path, model: DetrForObjectDetection, scenes: Scenes) -> dict:
    """A few test scenes with their truth (corner boxes in pixels) and what the stored model, in float64, makes of them."""
    logits, boxes = detections(model.cpu().double(), network_inputs(scenes, torch.device("cpu")).double())
    np.savez_compressed(out / "test.npz", images=scenes.images.permute(0, 2, 3, 1).numpy(), labels=scenes.labels.numpy(),
                        boxes=(box_corners(scenes.boxes) * SCENE).numpy(), logits=logits, pred_boxes=boxes)
    return dict(scenes=len(logits), **score(logits, boxes, scenes))


def write(args: argparse.Namespace, trainee: Trainee, log: list[dict]) -> None:
    model, dev = exported(trainee), trainee.dense.weight.device
    model.save_pretrained(args.out)
    save_weights(args.out / "model.safetensors", args.half)
    model = DetrForObjectDetection.from_pretrained(args.out, dtype=torch.float32).to(dev)
    (args.out / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=2) + "\n")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    result = {}
    for split, count in (("val", VAL), ("test", TEST)):
        scenes = fixed_scenes(split, count, SCENE, SCENE)
        logits, boxes = detections(model, network_inputs(scenes, dev))
        result[split] = dict(scenes=count, **score(logits, boxes, scenes))
    result["test_npz"] = write_test(args.out, model, first_scenes(scenes, EXPORTED))
    report = dict(task="digit detection", data=f"digits on photographs, {SCENE}x{SCENE} scenes", photographs=PHOTOS, seed=args.seed,
                  steps=args.steps, batch=args.batch, groups=args.groups, learning_rate=args.lr, **environment(),
                  parameters=sum(v.numel() for k, v in model.state_dict().items()), result=result, log=log)
    (args.out / "training.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(result))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--steps", type=int, default=13000)
    ap.add_argument("--batch", type=int, default=384)
    ap.add_argument("--groups", type=int, default=5)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--log-every", type=int, default=1000)
    ap.add_argument("--minutes", type=float, default=1e9, help="stop after this long; the same command continues")
    ap.add_argument("--compile", action="store_true")
    ap.add_argument("--half", action="store_true", help="store the matrices as float16")
    args = ap.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    average, log, done = train(args, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if done:
        write(args, average, log)


if __name__ == "__main__":
    main()
