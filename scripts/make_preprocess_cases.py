#!/usr/bin/env python3
"""Makes the reference cases of the preprocessing tests with Pillow, OpenCV and transformers.

usage: make_preprocess_cases.py FOLDER [CASES_A_KIND [SEED]]
needs: numpy "pillow<13" opencv-python-headless "transformers<5" safetensors

FOLDER/resize.safetensors: u8 "<number>.<kind>.in" and "<number>.<kind>.out".
FOLDER/pixels.safetensors: u8 "<number>.<kind>.in", f32 "<number>.<kind>.out" (pixel_values), and in
the metadata "<number>.<kind>": the preprocessor_config.json.
The files in tests/data/preprocess were made with 6 cases a kind and seed 1.
"""
import json
import os
import sys

import cv2
import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from transformers import DeiTImageProcessor, DetrImageProcessor, ViTImageProcessor

FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]  # Pillow's numbers 0..5


def random_image(rng, limit):
    """Noise, or a smooth picture with hard edges; some of them thin, some with extreme levels."""
    h, w = (int(x) for x in rng.integers(1, limit, 2))
    if rng.random() < 0.2:
        h = int(rng.integers(1, 4))
    kind = rng.random()
    if kind < 0.4:
        return rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
    if kind < 0.6:
        return rng.choice(np.array([0, 255], np.uint8), (h, w, 3))
    y, x = np.mgrid[0:h, 0:w]
    planes = [128 + 127 * np.sin(x / rng.uniform(1, 20) + y / rng.uniform(1, 20)) for _ in range(3)]
    image = np.stack(planes, -1)
    image[h // 3:, : w // 2] = rng.integers(0, 256, 3)
    return image.astype(np.uint8)


def resize_cases(rng, count, limit):
    for kind in [*FILTERS, "opencv"]:
        for i in range(count):
            image = random_image(rng, limit)
            w, h = (int(x) for x in rng.integers(1, limit, 2))
            if rng.random() < 0.1:
                w = image.shape[1]
            if rng.random() < 0.1:
                h = image.shape[0]
            if kind == "bicubic" and i == 0:  # Pillow's other order of the passes
                image, w, h = rng.integers(0, 256, (211, 2, 3), dtype=np.uint8), 9, 37
            if kind == "opencv":
                yield kind, image, cv2.resize(image, (w, h), interpolation=cv2.INTER_LINEAR), None
            else:
                out = np.asarray(Image.fromarray(image).resize((w, h), FILTERS.index(kind)))
                yield kind, image, out, None


def constants(rng):
    return {"image_mean": rng.uniform(0.2, 0.6, 3).round(3).tolist(),
            "image_std": rng.uniform(0.2, 0.6, 3).round(3).tolist()}


def vit_config(rng):
    side = [int(x) for x in rng.integers(3, 20, 2)]
    size = [side[0], {"height": side[0], "width": side[1]}][int(rng.integers(2))]
    config = {"size": size, "resample": int(rng.integers(6)), **constants(rng)}
    if rng.random() < 0.3:
        config |= {"do_rescale": False}
    elif rng.random() < 0.3:
        config |= {"rescale_factor": 1 / 127.5, "do_normalize": False}
    return config


def deit_config(rng):
    crop = [int(x) for x in rng.integers(3, 22, 2)]
    return {"size": {"height": int(rng.integers(8, 20)), "width": int(rng.integers(8, 20))},
            "do_center_crop": True, "crop_size": {"height": crop[0], "width": crop[1]},
            "resample": 3, **constants(rng)}


def detr_config(rng):
    short = int(rng.integers(5, 20))
    size = [{"shortest_edge": short, "longest_edge": short + int(rng.integers(0, 15))},
            {"shortest_edge": short, "longest_edge": 1333},
            {"max_height": short, "max_width": short + 5}][int(rng.integers(3))]
    return {"size": size, **constants(rng)}


def timm_pixels(image, config):
    """timm's evaluation transforms by its rules: resize the short side, crop, / 255, normalise."""
    crop = config["input_size"][-1]
    scale = int(np.floor(crop / config["crop_pct"]))
    w, h = image.size
    new_w, new_h = (scale, int(scale * h / w)) if w <= h else (int(scale * w / h), scale)
    image = image.resize((new_w, new_h), FILTERS.index(config["interpolation"]))
    top, left = int(round((new_h - crop) / 2)), int(round((new_w - crop) / 2))
    x = np.asarray(image)[top:top + crop, left:left + crop].astype(np.float32) / np.float32(255)
    x = (x - np.float32(config["mean"])) / np.float32(config["std"])
    return x.transpose(2, 0, 1)


def pixel_cases(rng, count, limit):
    processors = {"vit": (ViTImageProcessor, vit_config), "deit": (DeiTImageProcessor, deit_config),
                  "detr": (DetrImageProcessor, detr_config)}
    for kind, (processor, make_config) in processors.items():
        for _ in range(count):
            image, config = random_image(rng, limit), make_config(rng)
            while kind == "detr" and min(image.shape[:2]) * 12 < max(image.shape[:2]):
                image = random_image(rng, limit)  # so thin that the reference makes it empty
            arguments = {"return_tensors": "np", "input_data_format": "channels_last"}
            pixels = processor(**config)(Image.fromarray(image), **arguments)["pixel_values"][0]
            yield kind, image, pixels.astype(np.float32), config
    for _ in range(count):
        image, crop = random_image(rng, limit), int(rng.integers(3, 20))
        config = {"input_size": [3, crop, crop], "crop_pct": float(rng.choice([0.875, 0.9, 1.0])),
                  "interpolation": "bicubic", "mean": constants(rng)["image_mean"],
                  "std": constants(rng)["image_std"]}
        while min(image.shape[:2]) * 12 < max(image.shape[:2]):
            image = random_image(rng, limit)
        yield "timm", image, timm_pixels(Image.fromarray(image), config), config


def write(path, cases):
    tensors, metadata = {}, {}
    for number, (kind, image, out, config) in enumerate(cases):
        name = f"{number}.{kind}"
        tensors[f"{name}.in"] = np.ascontiguousarray(image)
        tensors[f"{name}.out"] = np.ascontiguousarray(out)
        if config is not None:
            metadata[name] = json.dumps(config)
    save_file(tensors, path, metadata or None)


def main():
    folder = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    rng = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    limit = 24 if count <= 6 else 300
    write(os.path.join(folder, "resize.safetensors"), resize_cases(rng, count, limit))
    write(os.path.join(folder, "pixels.safetensors"), pixel_cases(rng, count, limit))


main()
