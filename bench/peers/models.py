"""The models of bench/all_models.cpp in PyTorch, with random weights and the same settings: from transformers where it has
them, MobileNetV3 from torchvision, the others written here: SETR (fudan's naive and PUP heads), the U-Net, and the ViT
with rotated queries and keys."""

import math

import torch
import torch.nn.functional as F
import torchvision
import transformers as hf
from torch import nn

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


class RopeLayer(nn.Module):
    def __init__(self, width, heads, mlp):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.qkv, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, mlp, bias=False), nn.Linear(width, mlp, bias=False)
        self.down = nn.Linear(mlp, width, bias=False)

    def forward(self, x, cosines, sines):
        def turned(y):
            first, second = y.chunk(2, -1)
            return y * cosines + torch.cat([-second, first], -1) * sines

        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(turned(q), turned(k), v)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, tokens, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class RopeVit(nn.Module):
    """bench/rope_vit.h."""

    def __init__(self, width=768, layers=12, heads=12, mlp=2048, patch=16, image=224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.ModuleList(RopeLayer(width, heads, mlp) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-6)
        half = width // heads // 2
        periods = torch.exp(torch.arange(half) * (-math.log(10000) / half))
        angles = torch.arange((image // patch) ** 2)[:, None] * periods
        angles = torch.cat([angles, angles], 1)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, pixel_values):
        x = self.patches(pixel_values).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        return (self.norm(x).mean(1),)


class UnetBlock(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, width_in), nn.GroupNorm(32, width_out)
        self.conv1 = nn.Conv2d(width_in, width_out, 3, padding=1)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1)
        self.shortcut = nn.Conv2d(width_in, width_out, 1) if width_in != width_out else nn.Identity()

    def forward(self, x):
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Unet(nn.Module):
    """bench/unet.h."""

    def __init__(self, widths=(64, 128, 256)):
        super().__init__()
        before = (widths[0], *widths[:-1])
        self.first, self.last = nn.Conv2d(3, widths[0], 3, padding=1), nn.Conv2d(widths[0], 3, 3, padding=1)
        self.down = nn.ModuleList(UnetBlock(a, b) for a, b in zip(before, widths))
        self.halve = nn.ModuleList(nn.Conv2d(width, width, 3, 2, 1) for width in widths)
        self.middle = UnetBlock(widths[-1], widths[-1])
        after = (*widths[1:], widths[-1])
        self.up = nn.ModuleList(UnetBlock(a + b, b) for a, b in zip(reversed(after), reversed(widths)))

    def forward(self, pixel_values):
        x, kept = self.first(pixel_values), []
        for block, halve in zip(self.down, self.halve):
            kept.append(block(x))
            x = halve(kept[-1])
        x = self.middle(x)
        for block in self.up:
            skip = kept.pop()
            x = block(torch.cat([F.interpolate(x, size=skip.shape[2:]), skip], 1))
        return (self.last(x),)


class Alone(nn.Module):
    """A model with one output, as a tuple."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        return (self.model(pixel_values),)


def vit(**sizes):
    return Outputs(hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000, **sizes)), ["logits"])


def detr(encoder_layers):
    config = hf.DetrConfig(
        use_timm_backbone=False,
        backbone_config=hf.ResNetConfig(out_features=["stage4"]),
        num_labels=91,
        encoder_layers=encoder_layers,
    )
    return Outputs(hf.DetrForObjectDetection(config), ["logits", "pred_boxes"])


def rt_detr():
    backbone = hf.RTDetrResNetConfig(out_features=["stage2", "stage3", "stage4"])
    model = hf.RTDetrForObjectDetection(hf.RTDetrConfig(backbone_config=backbone, num_labels=80))
    return Outputs(model, ["logits", "pred_boxes"])


def depth_anything():
    backbone = hf.Dinov2Config(
        **DINO_SMALL,
        image_size=518,
        out_indices=[3, 6, 9, 12],
        apply_layernorm=True,
        reshape_hidden_states=False,
    )
    config = hf.DepthAnythingConfig(backbone_config=backbone, reassemble_hidden_size=384)
    return Outputs(hf.DepthAnythingForDepthEstimation(config), ["predicted_depth"])


DINO_SMALL = dict(hidden_size=384, num_attention_heads=6, patch_size=14)
FEATURES = ["last_hidden_state", "pooler_output"]
OTHERS = {
    "convnext-tiny-224": lambda: Outputs(
        hf.ConvNextForImageClassification(hf.ConvNextConfig(num_labels=1000)), ["logits"]
    ),
    "convnextv2-tiny-1k-224": lambda: Outputs(
        hf.ConvNextV2ForImageClassification(hf.ConvNextV2Config(num_labels=1000)), ["logits"]
    ),
    "swin-tiny-patch4-window7-224": lambda: Outputs(
        hf.SwinForImageClassification(hf.SwinConfig(num_labels=1000)), ["logits"]
    ),
    "mobilenet-v3-large": lambda: Alone(torchvision.models.mobilenet_v3_large()),
    "dinov2-with-registers-small": lambda: Outputs(
        hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(image_size=518, **DINO_SMALL)), FEATURES
    ),
    "dinov2-base": lambda: Outputs(hf.Dinov2Model(hf.Dinov2Config(image_size=518, patch_size=14)), FEATURES),
    "dinov3-vits16": lambda: Outputs(hf.DINOv3ViTModel(hf.DINOv3ViTConfig(num_register_tokens=4)), FEATURES),
    "clip-vit-base-patch32": lambda: Outputs(
        hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig()), ["last_hidden_state", "image_embeds"]
    ),
    "siglip-base-patch16-224": lambda: Outputs(hf.SiglipVisionModel(hf.SiglipVisionConfig()), FEATURES),
    "rope-vit-base-patch16-224": RopeVit,
    "segformer-b0-512": lambda: Outputs(
        hf.SegformerForSemanticSegmentation(hf.SegformerConfig(num_labels=150)), ["logits"]
    ),
    "rtdetr-r50vd": rt_detr,
    "depth-anything-v2-small": depth_anything,
    "sam-vit-base": lambda: Outputs(hf.SamVisionModel(hf.SamVisionConfig()), ["last_hidden_state"]),
    "unet-256": Unet,
}
SIDES = {  # of the square images that are not of 224 x 224
    "segformer-b0-512": 512,
    "rtdetr-r50vd": 640,
    "depth-anything-v2-small": 518,
    "sam-vit-base": 1024,
    "unet-256": 256,
}
CONVOLUTIONAL = {"setr-pup", "convnext-tiny-224", "convnextv2-tiny-1k-224", "mobilenet-v3-large"}
CONVOLUTIONAL |= {"segformer-b0-512", "rtdetr-r50vd", "depth-anything-v2-small", "unet-256"}


def build(name):
    """The model, and the shape of one image for it."""
    torch.manual_seed(1)
    if name in DETR:
        return detr(DETR[name]).eval(), (3, 800, 1333)
    if name in SETR:
        return Setr(**SETR[name]).eval(), (3, 384, 384)
    side = SIDES.get(name, 224)
    model = vit(**VIT[name]) if name in VIT else OTHERS[name]()
    return model.eval(), (3, side, side)


def has_convolutions(name):
    """Beyond the patch embedding."""
    return name in DETR or name in CONVOLUTIONAL
