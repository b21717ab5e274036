#!/usr/bin/env python3
"""Writes small reference checkpoints of the model types beside ViT, DETR and SETR.

    python scripts/make_vision_models.py [OUTDIR [NAME ...]]

Each folder is what transformers' save_pretrained makes of random weights, with a
preprocessor_config.json and io.safetensors: pixel_values, and what the model makes of them in
float64 (stored as float32). The seeds are fixed. NAME picks functions below. Needs torch and
transformers.
"""

import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden")
random = torch.Generator()


def normal(*shape):
    return torch.randn(shape, generator=random)


def randomise(model):
    """Default initialisation hides wrong biases, scales and constants."""
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if not tensor.is_floating_point() or name.endswith(("inv_freq", "n_points_scale")):
                continue  # no parameters: indices, and what follows from the settings
            if name.endswith("running_var"):
                tensor.copy_(0.5 + 1.5 * torch.rand(tensor.shape, generator=random))
            elif name.endswith(("running_mean", "bias", "embedding")):
                tensor.copy_(0.2 * normal(*tensor.shape))
            elif tensor.dim() <= 1:
                tensor.copy_(1 + 0.2 * normal(*tensor.shape))
            elif tensor.shape[0] == 1 or "position" in name or "rel_pos" in name:
                tensor.copy_(0.5 * normal(*tensor.shape))
            else:
                tensor.copy_(normal(*tensor.shape) * 1.2 / math.sqrt(tensor[0].numel()))
    return model.eval()


def write(name, model, outputs, sizes, processor, keep=lambda key: True):
    """`outputs` of pixels of every size: the first by their names, the others as "other.NAME"."""
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        model.save_pretrained(home)
        tensors = load_file(home + "/model.safetensors")
        config = json.loads(pathlib.Path(home, "config.json").read_text())
    tensors = {key: value for key, value in tensors.items() if keep(key)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1) + "\n")
    io = {}
    for prefix, size in zip(["", "other."], sizes):
        pixels = normal(*size)
        with torch.no_grad():
            found = outputs(model.double(), pixels.double())
        if prefix:
            found = {key: x for key, x in found.items() if not key.startswith("hidden_states")}
        io[prefix + "pixel_values"] = pixels
        io |= {prefix + key: value.float().contiguous() for key, value in found.items()}
    save_file(io, folder / "io.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(name, {key: tuple(value.shape) for key, value in io.items()}, size // 1024, "KiB")


def picture(name, prepare, see=lambda pixels, size: {}):
    """What the class of transformers makes of a picture, and what is seen in it."""
    levels = torch.randint(0, 256, (37, 50, 3), generator=random, dtype=torch.uint8)
    prepared = prepare(levels.permute(2, 0, 1), return_tensors="pt")["pixel_values"]
    save_file({"levels": levels, "pixel_values": prepared, **see(prepared, levels.shape[:2])},
              OUT / name / "picture.safetensors")


def classes(model, pixels):
    out = model(pixels, output_hidden_states=True)
    states = {f"hidden_states.{i}": x for i, x in enumerate(out.hidden_states)}
    return {"logits": out.logits, **states}


def features(model, pixels, **options):
    out = model(pixels, **options)
    names = ["last_hidden_state", "pooler_output", "image_embeds"]
    return {name: out[name] for name in names if out.get(name) is not None}


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CONVNEXT = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 48},
            "crop_pct": 0.875, "resample": 3, **IMAGENET}


def convnext():
    sizes = {"num_stages": 3, "hidden_sizes": [8, 16, 24], "depths": [1, 2, 1], "num_labels": 6,
             "layer_norm_eps": 1e-12}
    model = randomise(hf.ConvNextForImageClassification(hf.ConvNextConfig(**sizes)))
    write("convnext", model, classes, [(1, 3, 48, 48)], CONVNEXT)
    model = randomise(hf.ConvNextV2ForImageClassification(hf.ConvNextV2Config(**sizes)))
    write("convnextv2", model, classes, [(1, 3, 48, 48), (1, 3, 40, 56)], CONVNEXT)
    model = randomise(hf.ConvNextModel(hf.ConvNextConfig(**sizes | {"depths": [1, 1, 1]})))
    write("convnext_headless", model, features, [(1, 3, 48, 48)], CONVNEXT)


def swin():
    """Windows of 4 in images of 14, 7 and 4 pixels: padded, odd, and one that is a window."""
    sizes = {"image_size": 56, "patch_size": 4, "embed_dim": 12, "depths": [2, 2, 1],
             "num_heads": [2, 3, 4], "window_size": 4, "mlp_ratio": 2.0}
    processor = {"image_processor_type": "ViTImageProcessor", "resample": 3,
                 "size": {"height": 56, "width": 56}, **IMAGENET}
    model = randomise(hf.SwinForImageClassification(hf.SwinConfig(num_labels=6, **sizes)))
    write("swin", model, classes, [(1, 3, 56, 56), (2, 3, 62, 70)], processor)
    sizes |= {"depths": [2, 2], "num_heads": [2, 2], "window_size": 7, "qkv_bias": False}
    model = randomise(hf.SwinModel(hf.SwinConfig(**sizes)))
    write("swin_headless", model, features, [(1, 3, 56, 56)], processor)


BIT = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 32}, "resample": 3,
       "do_center_crop": True, "crop_size": {"height": 24, "width": 24}, **IMAGENET}


def dinov2():
    sizes = {"image_size": 24, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 4}
    pictures = [(1, 3, 24, 24), (2, 3, 16, 32)]
    model = randomise(hf.Dinov2Model(hf.Dinov2Config(mlp_ratio=2, **sizes)))
    write("dinov2", model, features, pictures, BIT)
    config = hf.Dinov2Config(mlp_ratio=3, use_swiglu_ffn=True, num_labels=6, **sizes)
    model = randomise(hf.Dinov2ForImageClassification(config))
    write("dinov2_classifier", model, classes, pictures, BIT)
    config = hf.Dinov2WithRegistersConfig(mlp_ratio=2, num_register_tokens=3, num_labels=6, **sizes)
    model = randomise(hf.Dinov2WithRegistersForImageClassification(config))
    write("dinov2_registers", model, classes, pictures, BIT)


def clip():
    sizes = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 4, "intermediate_size": 48}
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 8, "vocab_size": 10, "max_position_embeddings": 8}
    processor = {"image_processor_type": "CLIPImageProcessor", "resample": 3,
                 "size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    pictures = [(1, 3, 32, 32)]
    model = randomise(hf.CLIPVisionModel(hf.CLIPVisionConfig(**sizes)))
    write("clip_vision", model, features, pictures, processor)
    model = randomise(hf.CLIPModel(hf.CLIPConfig(vision_config=sizes, text_config=text,
                                                 projection_dim=12)))

    def tower(model, pixels):
        out = model.vision_model(pixels)
        out["image_embeds"] = model.visual_projection(out.pooler_output)
        return {name: out[name] for name in ["last_hidden_state", "pooler_output", "image_embeds"]}

    write("clip", model, tower, pictures, processor)
    model = randomise(hf.CLIPForImageClassification(
        hf.CLIPConfig(vision_config=sizes, text_config=text, num_labels=6)))
    write("clip_classifier", model, lambda *of: {"logits": model(*of[1:]).logits}, pictures,
          processor)

    processor = {"image_processor_type": "SiglipImageProcessor", "resample": 3,
                 "size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    model = randomise(hf.SiglipVisionModel(hf.SiglipVisionConfig(**sizes)))
    write("siglip_vision", model, features, pictures, processor)
    both = {"vision_config": sizes, "text_config": text | {"projection_size": 32}}
    model = randomise(hf.SiglipModel(hf.SiglipConfig(**both)))
    write("siglip", model, lambda _, pixels: features(model.vision_model, pixels), pictures,
          processor)
    model = randomise(hf.SiglipForImageClassification(hf.SiglipConfig(num_labels=6, **both)))
    write("siglip_classifier", model, lambda *of: {"logits": model(*of[1:]).logits}, pictures,
          processor)


def segformer():
    sizes = {"num_encoder_blocks": 3, "depths": [1, 2, 1], "hidden_sizes": [12, 20, 32],
             "sr_ratios": [4, 2, 1], "patch_sizes": [7, 3, 3], "strides": [4, 2, 2],
             "num_attention_heads": [1, 2, 4], "mlp_ratios": [2, 3, 2], "decoder_hidden_size": 24}
    config = hf.SegformerConfig(num_labels=6, **sizes)
    model = randomise(hf.SegformerForSemanticSegmentation(config))
    processor = {"image_processor_type": "SegformerImageProcessor", "resample": 2,
                 "size": {"height": 64, "width": 64}, "do_reduce_labels": True, **IMAGENET}
    write("segformer", model, classes, [(1, 3, 64, 64), (1, 3, 50, 77)], processor)


def dinov3():
    sizes = {"image_size": 24, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 4, "intermediate_size": 48}
    processor = {"image_processor_type": "DINOv3ViTImageProcessor", "resample": 2,
                 "size": {"height": 24, "width": 32}, **IMAGENET}
    model = randomise(hf.DINOv3ViTModel(hf.DINOv3ViTConfig(num_register_tokens=3, **sizes)))
    prepare = hf.DINOv3ViTImageProcessor(**processor)
    write("dinov3", model, features, [(1, 3, 24, 24), (2, 3, 16, 40)], processor)
    picture("dinov3", prepare)
    config = hf.DINOv3ViTConfig(num_register_tokens=1, use_gated_mlp=True, hidden_act="silu",
                                key_bias=True, rope_theta=50.0, **sizes)
    write("dinov3_gated", randomise(hf.DINOv3ViTModel(config)), features, [(1, 3, 24, 24)],
          processor)


def depth(model, pixels):
    out = model(pixels, output_hidden_states=True)
    states = {f"hidden_states.{i}": x for i, x in enumerate(out.hidden_states)}
    return {"predicted_depth": out.predicted_depth, **states}


def depth_anything():
    """Grids of 5 x 5 and 3 x 7 patches: odd ones, which halve and double to other sizes."""
    backbone = {"model_type": "dinov2", "image_size": 40, "patch_size": 8, "hidden_size": 32,
                "num_hidden_layers": 4, "num_attention_heads": 4, "mlp_ratio": 2,
                "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False}
    sizes = {"patch_size": 8, "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 12, 16, 24],
             "fusion_hidden_size": 12, "head_hidden_size": 8}
    processor = {"image_processor_type": "DPTImageProcessor", "resample": 3, "do_pad": False,
                 "size": {"height": 40, "width": 40}, "ensure_multiple_of": 8,
                 "keep_aspect_ratio": True, "size_divisor": None, **IMAGENET}
    pictures = [(1, 3, 40, 40), (2, 3, 24, 56)]

    def made(**settings):
        config = hf.DepthAnythingConfig(backbone_config=backbone, **sizes, **settings)
        return randomise(hf.DepthAnythingForDepthEstimation(config))

    write("depth_anything", made(), depth, pictures, processor)
    # torchvision's weights have fewer bits than Pillow's: some levels differ by one.
    picture("depth_anything", hf.DPTImageProcessorPil(**processor))
    write("depth_anything_metric", made(depth_estimation_type="metric", max_depth=20), depth,
          pictures, processor)


def detected(model, pixels):
    out = model(pixels)
    states = {f"decoder_hidden_states.{i + 1}": x
              for i, x in enumerate(out.intermediate_hidden_states.unbind(1))}
    maps = {f"encoder_maps.{i}": x for i, x in enumerate(out.encoder_last_hidden_state)}
    return {"logits": out.logits, "pred_boxes": out.pred_boxes,
            "last_hidden_state": out.last_hidden_state, **states, **maps}


def rt_detr():
    """Images of 64 pixels have 84 cells, some of them too near the edge for a box."""
    backbone = {"model_type": "rt_detr_resnet", "embedding_size": 8, "depths": [1, 2, 1, 1],
                "hidden_sizes": [16, 24, 32, 40], "out_indices": [2, 3, 4]}
    sizes = {"encoder_in_channels": [24, 32, 40], "encoder_hidden_dim": 16, "encoder_ffn_dim": 24,
             "encoder_attention_heads": 2, "d_model": 24, "decoder_in_channels": [16] * 3,
             "num_queries": 9, "decoder_layers": 2, "decoder_attention_heads": 4,
             "decoder_ffn_dim": 32, "num_labels": 5}
    processor = {"image_processor_type": "RTDetrImageProcessor", "do_normalize": False,
                 "resample": 2, "size": {"height": 64, "width": 64}, **IMAGENET}
    pictures = [(1, 3, 64, 64), (2, 3, 32, 96)]
    model = randomise(hf.RTDetrForObjectDetection(hf.RTDetrConfig(backbone_config=backbone, **sizes)))
    write("rt_detr", model, detected, pictures, processor)
    prepare = hf.RTDetrImageProcessorPil(**processor)

    def objects(pixels, size):
        with torch.no_grad():
            found, = prepare.post_process_object_detection(
                model(pixels.double()), threshold=0.0, target_sizes=[tuple(size)])
        return {key: x.float() if x.is_floating_point() else x for key, x in found.items()}

    picture("rt_detr", prepare, objects)
    basic = backbone | {"layer_type": "basic", "hidden_sizes": [8, 12, 16, 20]}
    config = hf.RTDetrV2Config(
        backbone_config=basic, hidden_expansion=0.5, decoder_offset_scale=0.75, **sizes | {"encoder_in_channels": [12, 16, 20]})
    write("rt_detr_v2", randomise(hf.RTDetrV2ForObjectDetection(config)), detected, pictures,
          processor)


def sam():
    """Windows of 3 in a grid of 4 x 4: padded ones."""
    vision = {"hidden_size": 32, "output_channels": 12, "num_hidden_layers": 3, "image_size": 32,
              "num_attention_heads": 4, "patch_size": 8, "window_size": 3, "mlp_ratio": 2.0,
              "global_attn_indexes": [1]}
    processor = {"image_processor_type": "SamImageProcessor", "resample": 2, "do_pad": True,
                 "size": {"longest_edge": 32}, "pad_size": {"height": 32, "width": 32},
                 "mask_size": {"longest_edge": 8}, "mask_pad_size": {"height": 8, "width": 8},
                 **IMAGENET}

    def encoded(model, pixels):
        out = model.vision_encoder(pixels, output_hidden_states=True)
        states = {f"hidden_states.{i}": x for i, x in enumerate(out.hidden_states)}
        return {"last_hidden_state": out.last_hidden_state, **states}

    masks = {"hidden_size": 12, "image_size": 32, "patch_size": 8}
    config = hf.SamConfig(vision_config=vision, prompt_encoder_config=masks,
                          mask_decoder_config={"hidden_size": 12, "mlp_dim": 8,
                                               "num_attention_heads": 2})
    write("sam", randomise(hf.SamModel(config)), encoded, [(2, 3, 32, 32)], processor,
          keep=lambda key: not key.startswith("mask_decoder.") or "iou_token" in key)
    picture("sam", hf.SamImageProcessorPil(**processor))
    vision |= {"use_rel_pos": False, "use_abs_pos": False, "qkv_bias": False, "window_size": 2}
    model = randomise(hf.SamVisionModel(hf.SamVisionConfig(**vision)))
    write("sam_vision", model, encoded, [(1, 3, 32, 32)], processor)


makers = [convnext, swin, dinov2, clip, segformer, dinov3, depth_anything, rt_detr, sam]
wanted = sys.argv[2:]
for number, make in enumerate(makers):
    random.manual_seed(1000 + number)
    if not wanted or make.__name__ in wanted:
        make()
