"""Handwritten digits: the split that every training script shares, and their pictures."""
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SPLIT_SEED = 2024
TEST, VAL = 400, 200


def digit_splits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Stratified train / val / test: (values 0..16 as float32 [N, 8, 8], labels int64 [N])."""
    data = load_digits()
    order = np.arange(len(data.target))
    rest, test = train_test_split(order, test_size=TEST, random_state=SPLIT_SEED, stratify=data.target)
    train, val = train_test_split(rest, test_size=VAL, random_state=SPLIT_SEED, stratify=data.target[rest])
    pick = lambda i: (data.images[i].astype(np.float32), data.target[i].astype(np.int64))
    return {"train": pick(train), "val": pick(val), "test": pick(test)}


def picture(values: np.ndarray, size: int = 64) -> np.ndarray:
    """[N, 8, 8] in 0..16 -> uint8 [N, size, size], dark ink on white paper, enlarged by Pillow's bicubic filter."""
    grey = np.round(values * (255 / 16)).astype(np.uint8)
    return np.stack([255 - np.asarray(Image.fromarray(g).resize((size, size), Image.BICUBIC)) for g in grey])
