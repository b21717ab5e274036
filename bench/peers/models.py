"""The nine models in PyTorch, with random weights: ViT and DETR from transformers, SETR (fudan's naive and PUP heads)
written here, since transformers has none."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig, ViTConfig, ViTForImageClassification

VIT = {
    "vit-base-patch16-224": {},
    "vit-large-patch16-224": dict(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    "vit-huge-patch14-224": dict(
        hidden_size=1280, num_hidden_layers=32, num_attention_heads=16, intermediate_size=5120, patch_size=14
    ),
}
DETR = {"detr-resnet-50-e3": 3, "detr-resnet-50-e6": 6, "detr-resnet-50-e12": 12}  # encoder layers
SETR = {
    "setr-naive-base": dict(head="naive", width=768, layers=12, heads=12),
    "setr-naive": dict(head="naive", width=1024, layers=24, heads=16),
    "setr-pup": dict(head="pup", width=1024, layers=24, heads=16),
}


class Outputs(nn.Module):
    """A model of transformers as a function from pixels to a tuple of tensors."""

    def __init__(self, model, names):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, pixel_values):
        out = self.model(pixel_values=pixel_values)
        return tuple(out[name] for name in self.names)


class SetrLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.proj(attended)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Setr(nn.Module):
    """https://github.com/fudan-zvg/SETR; the auxiliary heads take no part in inference."""

    def __init__(self, head, width, layers, heads, image=384, patch=16, channels=256, classes=19):
        super().__init__()
        self.image, self.grid = image, image // patch
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, 1 + self.grid**2, width) * 0.02)
        self.layers = nn.ModuleList(SetrLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        kernel, count = (1, 1) if head == "naive" else (3, 4)
        self.convs = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width if i == 0 else channels, channels, kernel, padding=kernel // 2),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            )
            for i in range(count)
        )
        self.classifier = nn.Conv2d(channels, classes, 1)

    def forward(self, pixel_values):
        x = self.patches(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.position
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x[:, 1:]).transpose(1, 2).unflatten(2, (self.grid, self.grid))
        for i, conv in enumerate(self.convs):
            x = conv(x if i == 0 else F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False))
        size = (self.image, self.image)
        return (F.interpolate(self.classifier(x), size=size, mode="bilinear", align_corners=False),)


def build(name):
    """The model, and the shape of one image for it."""
    torch.manual_seed(1)
    if name in VIT:
        model = ViTForImageClassification(ViTConfig(num_labels=1000, **VIT[name]))
        return Outputs(model, ["logits"]).eval(), (3, 224, 224)
    if name in DETR:
        config = DetrConfig(
            use_timm_backbone=False,
            backbone_config=ResNetConfig(out_features=["stage4"]),
            num_labels=91,
            encoder_layers=DETR[name],
        )
        return Outputs(DetrForObjectDetection(config), ["logits", "pred_boxes"]).eval(), (3, 800, 1333)
    return Setr(**SETR[name]).eval(), (3, 384, 384)


def has_convolutions(name):
    """Beyond the patch embedding."""
    return name in DETR or name == "setr-pup"
