"""Scenes for the detection and segmentation models: handwritten digits painted on photographs.

Digits come from scikit-learn (split in digits.py), photographs from the scikit-image wheel (public domain, CC0 or without
known restrictions; the test photographs are all CC0) and the scikit-learn wheel (china.jpg and flower.jpg, CC BY 2.0).
The training, validation and test splits share no digit, no photograph and no seed.  Scenes are composed in torch, in batches,
on whatever device is asked for; the fixed ones are drawn on the CPU, so that a seed gives the same scenes everywhere.

    python scenes.py --split test --count 8 --size 320 320 OUTDIR
writes scene-000.png, ... with scene-000-classes.png (0 = background, digit + 1) and truth.json.
"""
import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import skimage.data
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_sample_image

from digits import digit_splits

PHOTOS = {
    "train": ("astronaut", "rocket", "brick", "gravel", "hubble_deep_field", "coins", "immunohistochemistry", "retina", "china.jpg"),
    "val": ("camera", "flower.jpg"),
    "test": ("chelsea", "coffee", "grass"),
}
SEEDS = {"train": 11, "val": 22, "test": 33}
SLOTS = 6           # digits in a scene: 1 .. SLOTS
TILE = 320          # side of a photograph's square in the atlas
GLYPH = 64          # side of an enlarged digit
INK, HALO = 0.5, 0.26    # ink level where the fill and where its outline begin
MIN_VISIBLE = 0.6   # a digit hidden more than this is taken out of the scene


@dataclass
class Scenes:
    images: torch.Tensor    # uint8 [B, 3, H, W]
    classes: torch.Tensor   # uint8 [B, H, W], 0 = background, digit + 1
    boxes: torch.Tensor     # float32 [B, SLOTS, 4], (cx, cy, w, h) in fractions of the scene
    labels: torch.Tensor    # int64 [B, SLOTS], -1 = empty slot


def load_photo(name: str) -> np.ndarray:
    photo = load_sample_image(name) if name.endswith(".jpg") else getattr(skimage.data, name)()
    return np.stack([photo] * 3, -1) if photo.ndim == 2 else photo[..., :3]


def photo_squares(name: str) -> list[np.ndarray]:
    """The photograph, short side TILE, cut into overlapping squares along its long side."""
    photo = Image.fromarray(load_photo(name))
    scale = TILE / min(photo.size)
    w, h = (max(TILE, round(s * scale)) for s in photo.size)
    pixels = np.asarray(photo.resize((w, h), Image.LANCZOS))
    count = max(2, math.ceil(max(w, h) / TILE)) if max(w, h) > TILE else 1
    starts = np.linspace(0, max(w, h) - TILE, count).round().astype(int)
    return [pixels[:TILE, s:s + TILE] if w >= h else pixels[s:s + TILE, :TILE] for s in starts]


def glyphs(values: np.ndarray) -> torch.Tensor:
    """[N, 8, 8] in 0..16 -> smooth ink in 0..1, [N, 1, GLYPH, GLYPH], with a margin of one source pixel."""
    ink = torch.from_numpy(values / values.max(axis=(1, 2), keepdims=True))[:, None]
    return F.interpolate(F.pad(ink, (1, 1, 1, 1)), size=(GLYPH, GLYPH), mode="bicubic", align_corners=False).clamp(0, 1)


class SceneMaker:
    """Draws batches of scenes of one split; two makers with equal arguments draw equal scenes."""

    def __init__(self, split: str, device: str | torch.device = "cpu", seed: int | None = None) -> None:
        self.device = torch.device(device)
        self.gen = torch.Generator(self.device).manual_seed(SEEDS[split] if seed is None else seed)
        squares = np.concatenate([s for name in PHOTOS[split] for s in photo_squares(name)])
        self.atlas = torch.from_numpy(squares).to(self.device).permute(2, 0, 1)[None].float() / 255
        values, labels = digit_splits()[split]
        self.glyphs = glyphs(values).to(self.device)
        self.labels = torch.from_numpy(labels).to(self.device)

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(*shape, generator=self.gen, device=self.device)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=self.gen, device=self.device)

    def chance(self, p: float, *shape: int) -> torch.Tensor:
        return self.uniform(0, 1, *shape) < p

    def pixel_grid(self, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixel centres (y, x) in units of the scene's short side."""
        short = min(height, width)
        y = (torch.arange(height, device=self.device) + 0.5) / short
        x = (torch.arange(width, device=self.device) + 0.5) / short
        return torch.meshgrid(y, x, indexing="ij")

    def photo_crops(self, n: int, height: int, width: int) -> torch.Tensor:
        """Random flipped crops of the atlas, [n, 3, height, width]."""
        tiles = self.atlas.shape[2] // TILE
        aspect = torch.tensor([height, width], device=self.device) / max(height, width)
        side = self.uniform(0.3, 0.7, n, 1) * TILE * aspect
        low = self.uniform(0, 1, n, 2) * (TILE - side)
        y, x = self.pixel_grid(height, width)
        y, x = y / y.max(), x / x.max()
        x = torch.where(self.chance(0.5, n, 1, 1), 1 - x, x.expand(n, -1, -1))
        y = low[:, 0, None, None] + y * side[:, 0, None, None] + TILE * self.integers(tiles, n, 1, 1)
        x = low[:, 1, None, None] + x * side[:, 1, None, None]
        grid = torch.stack([x / TILE * 2 - 1, y / (TILE * tiles) * 2 - 1], -1)
        return F.grid_sample(self.atlas.expand(n, -1, -1, -1), grid, padding_mode="border", align_corners=False)

    def backgrounds(self, n: int, height: int, width: int) -> torch.Tensor:
        """Photographs with changed colours, some mixed with a smooth colour field."""
        x = self.photo_crops(n, height, width)
        grey = x.mean(1, keepdim=True)
        x = grey + self.uniform(0.2, 1.4, n, 1, 1, 1) * (x - grey)
        mix = torch.eye(3, device=self.device) + torch.where(self.chance(0.6, n, 1, 1), self.uniform(-0.35, 0.35, n, 3, 3), 0.0)
        x = torch.einsum("nij,njhw->nihw", mix, x)
        x = 0.5 + self.uniform(0.5, 1.05, n, 1, 1, 1) * (x - 0.5) + self.uniform(-0.15, 0.15, n, 1, 1, 1)
        field = F.interpolate(self.uniform(0, 1, n, 3, 4, 4), size=(height, width), mode="bicubic", align_corners=False)
        part = torch.where(self.chance(0.35, n, 1, 1, 1), self.uniform(0, 0.6, n, 1, 1, 1), 0.0)
        return torch.lerp(x, field, part).clamp(0, 1)

    def layout(self, side: torch.Tensor, active: torch.Tensor, extent: torch.Tensor) -> torch.Tensor:
        """Centres (y, x) for digits of the given sides: usually the least crowded of a few random layouts."""
        n, tries = len(side), 12
        margin = 0.42 * side[:, None, :, None]
        centre = margin + torch.rand(n, tries, SLOTS, 2, generator=self.gen, device=self.device) * (extent - 2 * margin)
        reach = 0.4 * (side[:, None, :, None] + side[:, None, None, :])
        gap = (centre[:, :, :, None] - centre[:, :, None]).abs()
        overlap = (reach - gap[..., 0]).clamp(min=0) * (reach - gap[..., 1]).clamp(min=0)
        pair = (active[:, :, None] & active[:, None]).triu(1)
        crowd = (overlap * pair[:, None]).sum((2, 3))
        choice = torch.where(self.chance(0.12, n), 0, crowd.argmin(1))
        return centre[torch.arange(n, device=self.device), choice]

    def ink(self, index: torch.Tensor, side: torch.Tensor, centre: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """The digits' ink [n, SLOTS, height, width], each rotated, sheared and stretched at its place."""
        n = len(index)
        angle, shear = self.uniform(-0.35, 0.35, n, SLOTS), self.uniform(-0.2, 0.2, n, SLOTS)
        sx = 2 / (side * self.uniform(0.8, 1.1, n, SLOTS))
        sy = 2 / (side * self.uniform(0.9, 1.1, n, SLOTS))
        y, x = self.pixel_grid(height, width)
        cell = lambda t: t[:, :, None, None]
        dy, dx = y - cell(centre[..., 0]), x - cell(centre[..., 1])
        cos, sin = cell(angle.cos()), cell(angle.sin())
        u = (cos * dx + sin * dy) * cell(sx)
        v = (cos * dy - sin * dx) * cell(sy)
        grid = torch.stack([u + cell(shear) * v, v], -1).flatten(0, 1)
        return F.grid_sample(self.glyphs[index.flatten()], grid, align_corners=False).view(n, SLOTS, height, width)

    def colours(self, under: torch.Tensor) -> torch.Tensor:
        """Fill colours [n, SLOTS, 3], each the farthest from the background under the digit among a few random ones."""
        n = len(under)
        candidates = self.uniform(0, 1, n, SLOTS, 4, 3)
        low, high = candidates.amin(-1, keepdim=True), candidates.amax(-1, keepdim=True)
        vivid = (candidates - low) / (high - low) * high.clamp(min=0.5)
        candidates = torch.where(self.chance(0.6, n, SLOTS, 4, 1), vivid, candidates)
        best = (candidates - under[:, :, None]).square().sum(-1).argmax(-1)
        return candidates.gather(2, best[..., None, None].expand(-1, -1, 1, 3))[:, :, 0]

    def batch(self, n: int, height: int, width: int) -> Scenes:
        image = self.backgrounds(n, height, width)
        index = self.integers(len(self.labels), n, SLOTS)
        active = torch.arange(SLOTS, device=self.device) <= self.integers(SLOTS, n, 1)
        side = torch.exp(self.uniform(math.log(0.27), math.log(0.6), n, SLOTS))
        extent = torch.tensor([height, width], device=self.device) / min(height, width)
        ink = self.ink(index, side, self.layout(side, active, extent), height, width)
        outlined = self.chance(0.5, n, SLOTS)
        fill_mask, cover = ink > INK, ink > torch.where(outlined, HALO, INK)[:, :, None, None]
        active = active & (visible_fraction(fill_mask, cover & active[:, :, None, None]) >= MIN_VISIBLE)
        labels = torch.where(active, self.labels[index], -1)

        weight = fill_mask.float() / fill_mask.sum((2, 3), keepdim=True).clamp(min=1)
        fill = self.colours(torch.einsum("nshw,nchw->nsc", weight, image))
        line = torch.where(fill.mean(-1, keepdim=True) > 0.5, 0.1, 0.95) * self.uniform(0.8, 1.05, n, SLOTS, 3)
        sharp = self.uniform(12, 36, n, SLOTS, 1, 1)
        fill_alpha = torch.sigmoid((ink - INK) * sharp) * (active[:, :, None, None] & (ink > 0.05))
        line_alpha = torch.sigmoid((ink - HALO) * 2 * sharp) * ((active & outlined)[:, :, None, None] & (ink > 0.05))
        classes = torch.zeros(n, height, width, dtype=torch.uint8, device=self.device)
        for s in range(SLOTS):
            image = torch.lerp(image, line[:, s, :, None, None], line_alpha[:, s, None])
            shade = 1 - 0.35 * (1 - ink[:, s, None])
            image = torch.lerp(image, fill[:, s, :, None, None] * shade, fill_alpha[:, s, None])
            on = active[:, s, None, None]
            classes = classes.masked_fill(cover[:, s] & on, 0)
            classes = torch.where(fill_mask[:, s] & on, (labels[:, s, None, None] + 1).to(torch.uint8), classes)
        noise = torch.randn(image.shape, generator=self.gen, device=self.device) * self.uniform(0, 0.02, n, 1, 1, 1)
        images = ((image + noise).clamp(0, 1) * 255).round().to(torch.uint8)
        return Scenes(images, classes, mask_boxes(fill_mask), labels)


def visible_fraction(fill: torch.Tensor, cover: torch.Tensor) -> torch.Tensor:
    """Share of every digit's fill [B, S, H, W] that no later digit covers."""
    later = torch.zeros_like(cover[:, 0])
    fractions = []
    for s in reversed(range(fill.shape[1])):
        fractions.append((fill[:, s] & ~later).sum((1, 2)) / fill[:, s].sum((1, 2)).clamp(min=1))
        later = later | cover[:, s]
    return torch.stack(fractions[::-1], 1)


def mask_boxes(mask: torch.Tensor) -> torch.Tensor:
    """Tight boxes (cx, cy, w, h), as fractions, of masks [B, S, H, W]."""
    ends = []
    for line in (mask.any(2), mask.any(3)):
        size = line.shape[-1]
        first, last = line.float().argmax(-1), size - line.flip(-1).float().argmax(-1)
        ends.append((first / size, last / size))
    (x0, x1), (y0, y1) = ends
    return torch.stack([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0], -1)


def fixed_scenes(split: str, count: int, height: int, width: int) -> Scenes:
    """The first `count` scenes of a split, made on the CPU and therefore the same on every machine."""
    maker = SceneMaker(split)
    parts = [maker.batch(32, height, width) for _ in range(-(-count // 32))]
    return Scenes(*(torch.cat([getattr(p, f) for p in parts])[:count] for f in ("images", "classes", "boxes", "labels")))


def first_scenes(scenes: Scenes, count: int) -> Scenes:
    return Scenes(scenes.images[:count], scenes.classes[:count], scenes.boxes[:count], scenes.labels[:count])


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--split", choices=sorted(PHOTOS), default="test")
    ap.add_argument("--count", type=int, default=8)
    ap.add_argument("--size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), default=(160, 160))
    ap.add_argument("out", type=Path)
    args = ap.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    height, width = args.size
    scenes, truth = fixed_scenes(args.split, args.count, height, width), {}
    for i in range(args.count):
        Image.fromarray(scenes.images[i].permute(1, 2, 0).numpy()).save(args.out / f"scene-{i:03}.png")
        Image.fromarray(scenes.classes[i].numpy()).save(args.out / f"scene-{i:03}-classes.png")
        cx, cy, w, h = (scenes.boxes[i] * torch.tensor([width, height, width, height])).unbind(-1)
        corners = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1).tolist()
        truth[f"scene-{i:03}.png"] = [dict(label=str(l), box=b) for l, b in zip(scenes.labels[i].tolist(), corners) if l >= 0]
    (args.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main()
