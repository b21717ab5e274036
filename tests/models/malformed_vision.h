// Spoiled folders of the models of models/registry beside ViT, DETR and SETR.
#pragma once

#include "tests/models/malformed.h"

namespace malformed {

inline Cases vision_size_cases() {
  return {
      {"a width of nothing", "convnext",
       config("\"hidden_sizes\": [\n  8,", "\"hidden_sizes\": [\n  0,"),
       "DIR/config.json: hidden_sizes[0]: got 0, need a whole number from 1 to 131072"},
      {"a width too many", "convnext", config("  24\n", "  24, 50\n"),
       "DIR/config.json: hidden_sizes: has 4 numbers of \"hidden_sizes\", need 3: one a stage"},
      {"no list", "swin", config("\"depths\": [\n  2,\n  2,\n  1\n ]", "\"depths\": 3"),
       "DIR/config.json: depths: need a list of whole numbers"},
      {"no stages", "swin", config("\"depths\": [\n  2,\n  2,\n  1\n ]", "\"depths\": []"),
       "DIR/config.json: depths: got 0 numbers, need 1 to 8"},
      {"a deep stage", "swin", config("\"depths\": [\n  2,", "\"depths\": [\n  257,"),
       "DIR/config.json: depths[0]: got 257, need a whole number from 1 to 256"},
      {"more stages than agree", "convnext", added("config.json", "\"num_labels\": 7"),
       "DIR/config.json: num_labels: is 7, but the weights of the classifier in DIR give 6"},
      {"heads that do not divide", "swin",
       config("\"num_heads\": [\n  2,", "\"num_heads\": [\n  5,"),
       "DIR/config.json: gives 5 attention heads, need a divisor of the width 12"},
      {"a wide window", "swin", config("\"window_size\": 4", "\"window_size\": 65"),
       "DIR/config.json: window_size: got 65, need a whole number from 1 to 64"},
      {"a ratio of nothing", "swin", config("\"mlp_ratio\": 2.0", "\"mlp_ratio\": 0"),
       "DIR/config.json: mlp_ratio: got 0, need a number above 0 and at most 64"},
      {"no size", "swin", config("\"patch_size\": 4", "\"patch_size\": [4, 0]"),
       "DIR/config.json: patch_size: got 4 x 0, need whole numbers from 1 to 1048576"},
      {"a patch larger than the image", "dinov2", config("\"image_size\": 24", "\"image_size\": 7"),
       "DIR/config.json: image_size: is smaller than a patch of 8 x 8"},
      {"a tower's patch larger than the image", "clip_vision",
       config("\"image_size\": 32", "\"image_size\": 7"),
       "DIR/config.json: image_size: is smaller than a patch of 8 x 8"},
      {"heads that cannot be turned", "dinov3",
       config("\"num_attention_heads\": 4", "\"num_attention_heads\": 16"),
       "DIR/config.json: gives heads of 2 features, need a multiple of 4 to turn them by height "
       "and "
       "width"},
      {"no period", "dinov3", config("\"rope_theta\": 100.0", "\"rope_theta\": 0"),
       "DIR/config.json: rope_theta: got 0, need a number from 1 to 1e9"},
      {"a crop", "dinov3",
       added("preprocessor_config.json", "\"do_center_crop\": true, \"crop_size\": 16"),
       "DIR/preprocessor_config.json: need a size of {\"height\", \"width\"} and \"resample\" 2 "
       "(bilinear), without a crop and padding"},
      {"another projection", "clip", config("\"projection_dim\": 12", "\"projection_dim\": 13"),
       "DIR/config.json: projection_dim: is 13, but the weights of the projection in DIR give 12"},
      {"even patches", "segformer", config("\"patch_sizes\": [\n  7,", "\"patch_sizes\": [\n  6,"),
       "DIR/config.json: patch_sizes: has the even number 6, need odd ones: the map of classes "
       "would "
       "not fit the image"},
      {"layers that are not there", "depth_anything",
       config("\"out_indices\": [\n   1,\n   2,\n   3,\n   4",
              "\"out_indices\": [\n   1,\n   2,\n   3,\n   5"),
       "DIR/config.json: backbone_config.out_indices: need 1 to 8 ascending numbers from 0, the "
       "embeddings, to 4, the last layer"},
      {"fewer factors", "depth_anything", config("  2,\n  1,\n  0.5", "  1,\n  0.5"),
       "DIR/config.json: reassemble_factors: need 4 numbers, one a layer that is read: whole ones "
       "up to 32 or one divided by such"},
      {"a factor between", "depth_anything", config("  0.5", "  0.4"),
       "DIR/config.json: reassemble_factors: need 4 numbers, one a layer that is read: whole ones "
       "up to 32 or one divided by such"},
      {"patches of another size", "depth_anything",
       config(" \"patch_size\": 8,\n \"reass", " \"patch_size\": 7,\n \"reass"),
       "DIR/config.json: patch_size: is 7, but the settings of the backbone in DIR give 8"},
      {"cut patches", "sam",
       config("\"image_size\": 32,\n  \"init", "\"image_size\": 36,\n  \"init"),
       "DIR/config.json: vision_config: gives images of 36 x 36, need a multiple of patches of 8 x "
       "8"},
      {"a window of less than nothing", "sam", config("\"window_size\": 3", "\"window_size\": -1"),
       "DIR/config.json: vision_config.window_size: got -1, need a whole number of patches, 0 for "
       "none, to 32"},
      {"more than the image", "sam", preprocessor("\"longest_edge\": 32", "\"longest_edge\": 33"),
       "DIR/preprocessor_config.json: need a size of {\"longest_edge\"} up to 32, and padding to a "
       "pad_size of 32 x 32, the image that the model takes"},
      {"one feature", "depth_anything",
       config("\"fusion_hidden_size\": 12", "\"fusion_hidden_size\": 1"),
       "DIR/config.json: fusion_hidden_size: got 1, need at least 2"},
      {"no depth", "depth_anything", config("\"max_depth\": 1", "\"max_depth\": 0"),
       "DIR/config.json: max_depth: got 0, need a number above 0 and at most 1e6"}};
}

inline Cases vision_setting_cases() {
  return {
      {"absolute positions", "swin",
       config("\"use_absolute_embeddings\": false", "\"use_absolute_embeddings\": true"),
       "DIR/config.json: use_absolute_embeddings: is true, need false: nothing else is computed"},
      {"another activation", "convnextv2", config("\"gelu\"", "\"sine\""),
       "DIR/config.json: hidden_act: got \"sine\", need gelu, gelu_new, gelu_tanh, "
       "gelu_pytorch_tanh, quick_gelu, relu, silu or swish"},
      {"another tower", "siglip", config("\"siglip_vision_model\"", "\"siglip2_vision_model\""),
       "DIR/config.json: vision_config.model_type: is \"siglip2_vision_model\", need "
       "\"clip_vision_model\" or \"siglip_vision_model\": nothing else is computed"},
      {"two towers that differ", "clip",
       added("config.json", "\"vision_config_dict\": {\"num_attention_heads\": 8}"),
       "DIR/config.json: vision_config_dict.num_attention_heads: is 8, but "
       "DIR/config.json: vision_config.num_attention_heads is 4: remove one of them"},
      {"another encoder", "sam", config("\"sam_vision_model\"", "\"sam_hq_vision_model\""),
       "DIR/config.json: vision_config.model_type: is \"sam_hq_vision_model\", need "
       "\"sam_vision_model\": nothing else is computed"},
      {"another backbone", "depth_anything",
       config("\"model_type\": \"dinov2\"", "\"model_type\": \"swin\""),
       "DIR/config.json: backbone_config.model_type: is \"swin\", need \"dinov2\": nothing else is "
       "computed"},
      {"another depth", "depth_anything", config("\"relative\"", "\"absolute\""),
       "DIR/config.json: depth_estimation_type: is \"absolute\", need \"relative\" or "
       "\"metric\": nothing else is computed"},
      {"a class of other pictures", "depth_anything",
       preprocessor("DPTImageProcessor", "ViTImageProcessor"),
       "DIR/preprocessor_config.json: image_processor_type: got \"ViTImageProcessor\", which "
       "prepares images in a way that is not computed here: need DPTImageProcessor"},
      {"images of another size", "siglip_vision", preprocessor("\"height\": 32", "\"height\": 40"),
       "DIR/preprocessor_config.json: makes images of 40 x 32, but the model takes 32 x 32"},
      {"padded images", "dinov2",
       added("preprocessor_config.json",
             "\"do_pad\": true, \"pad_size\": {\"height\": 64, \"width\": 64}"),
       "DIR/preprocessor_config.json: pad_size: this model's images are not padded: leave it out"}};
}

inline Cases vision_tensor_cases() {
  const auto moved = [](std::string from, std::string to) {
    return tensors([=](Tensors& all) {
      all.emplace(to, all.at(from));
      all.erase(from);
    });
  };
  return {
      {"a name", "convnext", moved("convnext.layernorm.bias", "convnext.layernorm.biases"),
       "load: DIR does not fit the model: 2 problems:\n"
       "  missing: \"convnext.layernorm.bias\"; did you mean \"convnext.layernorm.biases\"?\n"
       "  unexpected: \"convnext.layernorm.biases\"; did you mean \"convnext.layernorm.bias\"?"},
      {"a shape", "swin",
       tensors([](Tensors& all) { all.at("swin.layernorm.weight") = tensor::ones({49}); }),
       "load: DIR does not fit the model: 1 problem:\n"
       "  wrong shape: \"swin.layernorm.weight\" is (49,), need (48,)"},
      {"no queries", "sam",
       tensors([](Tensors& all) { all.erase("vision_encoder.layers.0.attn.qkv.bias"); }),
       "load: DIR does not fit the model: 1 problem:\n"
       "  missing: \"vision_encoder.layers.0.attn.qkv.bias\""},
      {"no head", "segformer",
       tensors([](Tensors& all) { all.erase("decode_head.classifier.weight"); }),
       "DIR: has no tensor \"decode_head.classifier.weight\""}};
}

}  // namespace malformed
