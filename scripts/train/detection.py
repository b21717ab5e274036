"""Boxes, matching and average precision for the detector."""
import numpy as np
import torch


def box_corners(boxes: torch.Tensor) -> torch.Tensor:
    """(cx, cy, w, h) -> (x0, y0, x1, y1)"""
    cx, cy, w, h = boxes.unbind(-1)
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)


def generalized_iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """GIoU of (cx, cy, w, h) boxes, broadcast over the leading axes."""
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = box_corners(a).unbind(-1), box_corners(b).unbind(-1)
    inter = (torch.minimum(ax1, bx1) - torch.maximum(ax0, bx0)).clamp(min=0) * (torch.minimum(ay1, by1) - torch.maximum(ay0, by0)).clamp(min=0)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - inter
    hull = (torch.maximum(ax1, bx1) - torch.minimum(ax0, bx0)) * (torch.maximum(ay1, by1) - torch.minimum(ay0, by0))
    return inter / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


def match(cost: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Exact minimum-cost assignment of targets to queries, many small problems at once.

    cost [P, Q, N] and valid [P, N] -> for every query its target, or N for none: int64 [P, Q].  Dynamic programming over
    the 2^N sets of targets already given away, one query after another; meant for few targets (N <= 8).
    """
    p, queries, n = cost.shape
    dev = cost.device
    sets = torch.arange(2 ** n, device=dev)
    has = (sets[:, None] >> torch.arange(n, device=dev)) & 1
    without = sets[:, None] ^ (has << torch.arange(n, device=dev))
    best = torch.full((p, 2 ** n), float("inf"), device=dev)
    best[:, 0] = 0
    choices = []
    for q in range(queries):
        given = (best[:, without] + cost[:, q, None]).masked_fill(has == 0, float("inf"))
        value, choice = torch.cat([given, best[..., None]], -1).min(-1)
        best = value
        choices.append(choice)
    left = (valid.long() << torch.arange(n, device=dev)).sum(1)
    slots = []
    for choice in reversed(choices):
        slot = choice.gather(1, left[:, None])[:, 0]
        left = torch.where(slot < n, left ^ (1 << slot.clamp(max=n - 1)), left)
        slots.append(slot)
    return torch.stack(slots[::-1], 1)


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of corner boxes [4] and [M, 4]"""
    inter = np.clip(np.minimum(a[2:], b[:, 2:]) - np.maximum(a[:2], b[:, :2]), 0, None).prod(-1)
    area = lambda t: (t[..., 2] - t[..., 0]) * (t[..., 3] - t[..., 1])
    return inter / np.maximum(area(a) + area(b) - inter, 1e-9)


def average_precision(scores: np.ndarray, kinds: np.ndarray, boxes: np.ndarray, labels: np.ndarray, truth: np.ndarray, threshold: float) -> float:
    """Mean over the classes of COCO's 101-point average precision at one IoU threshold.

    scores, kinds [I, Q] and corner boxes [I, Q, 4] against labels [I, N] (-1 = none) and corner boxes [I, N, 4].
    """
    result = []
    for kind in np.unique(labels[labels >= 0]):
        total = int((labels == kind).sum())
        image, query = np.nonzero(kinds == kind)
        order = np.argsort(-scores[image, query], kind="stable")
        taken, hits = np.zeros(labels.shape, bool), np.zeros(len(order), bool)
        for rank, (i, q) in enumerate(zip(image[order], query[order])):
            overlap = np.where((labels[i] == kind) & ~taken[i], iou(boxes[i, q], truth[i]), -1)
            best = int(overlap.argmax())
            if overlap[best] >= threshold:
                taken[i, best] = hits[rank] = True
        recall = hits.cumsum() / total
        precision = hits.cumsum() / np.arange(1, len(hits) + 1)
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        at = np.searchsorted(recall, np.linspace(0, 1, 101))
        result.append(np.append(precision, 0.0)[at].mean())
    return float(np.mean(result))
