// Folders of a ViT with a malformed config.json or preprocessor_config.json.
#pragma once

#include "tests/models/malformed.h"

namespace malformed {

/// config.json as a file.
inline Cases config_file_cases() {
  const std::string file_name = "config.json";
  std::string deep, wide = "{\"a\": [";
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  for (int i = 0; i < 300'000; ++i) wide += "1,";
  return {
      {"no config", "vit_hf", [](const Folder& f) { f.remove("config.json"); },
       "DIR: has no config.json: a checkpoint folder has config.json and model.safetensors"},
      {"empty config", "vit_hf", file(file_name, ""),
       "DIR/config.json: not valid JSON: line 1, column 1: syntax error while parsing value - "
       "unexpected end of input; expected '[', '{', or a literal"},
      {"truncated config", "vit_hf", [](const Folder& f) { f.cut("config.json", 300); },
       "DIR/config.json: not valid JSON: line 16, column 4: syntax error while parsing object key "
       "- invalid string: missing closing quote; last read: '\"'; expected string literal"},
      {"not JSON", "vit_hf", file(file_name, "hidden_size = 64\n"),
       "DIR/config.json: not valid JSON: line 1, column 1: syntax error while parsing value - "
       "invalid literal; last read: 'h'"},
      {"binary", "vit_hf", file(file_name, std::string("\x00\x01\xff", 3)),
       "DIR/config.json: not valid JSON: line 1: a zero byte"},
      {"text after a zero byte", "vit_hf", file(file_name, std::string("{}\0{", 4)),
       "DIR/config.json: not valid JSON: line 1: a zero byte"},
      {"two values", "vit_hf", file(file_name, "{} {}"),
       "DIR/config.json: not valid JSON: line 1, column 4: syntax error while parsing value - "
       "unexpected '{'; expected end of input"},
      {"key twice", "vit_hf", added(file_name, "\"hidden_size\": 65"),
       "DIR/config.json: line 10: the key \"hidden_size\" appears twice in one object"},
      {"too deep", "vit_hf", file(file_name, deep),
       "DIR/config.json: line 1: nested deeper than 64 levels"},
      {"too many values", "vit_hf", file(file_name, wide + "1]}"),
       "DIR/config.json: holds more than 262144 values, too many for what it is read as"},
      {"not UTF-8", "vit_hf", config("LABEL_7\",\n  \"8", "LABEL_\xc3\x28\",\n  \"8"),
       "DIR/config.json: not valid JSON: line 19, column 16: syntax error while parsing value - "
       "invalid string: ill-formed UTF-8 byte; last read: '\"LABEL_?('"},
      {"a number too large", "vit_hf", config("\"hidden_size\": 64", "\"hidden_size\": 1e999"),
       "DIR/config.json: not valid JSON: line 10: number overflow parsing '1e999'"},
      {"a list", "vit_hf", file(file_name, "[{\"hidden_size\": 64}]"),
       "DIR/config.json: need an object { ... }"},
      {"null", "vit_hf", file(file_name, "null"), "DIR/config.json: need an object { ... }"},
      {"a folder", "vit_hf",
       [](const Folder& f) {
         f.remove("config.json");
         std::filesystem::create_directory(f.at("config.json"));
       },
       "DIR/config.json: is a folder, need a file"},
      {"a pipe", "vit_hf",
       [](const Folder& f) {
         f.remove("config.json");
         ASSERT_EQ(::mkfifo(f.at("config.json").c_str(), 0600), 0);
       },
       "DIR/config.json: is not a regular file"},
  };
}

/// One setting of config.json.
inline Cases config_value_cases() {
  const auto value = [](const char* key, const char* good, const std::string& bad) {
    const std::string start = std::string("\"") + key + "\": ";
    return config(start + good, start + bad);
  };
  return {
      {"width a text", "vit_hf", value("hidden_size", "64", "\"64\""),
       "DIR/config.json: hidden_size: got \"64\", need a whole number"},
      {"width a fraction", "vit_hf", value("hidden_size", "64", "64.5"),
       "DIR/config.json: hidden_size: got 64.5, need a whole number"},
      {"width negative", "vit_hf", value("hidden_size", "64", "-64"),
       "DIR/config.json: hidden_size: is -64, but the patch embeddings in DIR give 64"},
      {"width zero", "vit_hf", value("hidden_size", "64", "0"),
       "DIR/config.json: hidden_size: is 0, but the patch embeddings in DIR give 64"},
      {"width huge", "vit_hf", value("hidden_size", "64", "1e30"),
       "DIR/config.json: hidden_size: got 1e+30, need a whole number"},
      {"width of 63 bits", "vit_hf", value("hidden_size", "64", "9223372036854775807"),
       "DIR/config.json: hidden_size: is 9223372036854775807, but the patch embeddings in DIR give "
       "64"},
      {"width of 64 bits", "vit_hf", value("hidden_size", "64", "18446744073709551615"),
       "DIR/config.json: hidden_size: got 1.84467e+19, need a whole number"},
      {"width of another model", "vit_hf", value("hidden_size", "64", "768"),
       "DIR/config.json: hidden_size: is 768, but the patch embeddings in DIR give 64"},
      {"layers too many", "vit_hf", value("num_hidden_layers", "3", "12"),
       "DIR/config.json: num_hidden_layers: is 12, but the layers in DIR give 3"},
      {"layers a list", "vit_hf", value("num_hidden_layers", "3", "[3]"),
       "DIR/config.json: num_hidden_layers: got an array of 1, need a whole number"},
      {"inner width", "vit_hf", value("intermediate_size", "100", "101"),
       "DIR/config.json: intermediate_size: is 101, but the weights of the MLP in DIR give "
       "100"},
      {"channels", "vit_hf", value("num_channels", "3", "1"),
       "DIR/config.json: num_channels: is 1, but the patch embeddings in DIR give 3"},
      {"classes", "vit_hf", added("config.json", "\"num_labels\": 1000"),
       "DIR/config.json: num_labels: is 1000, but the weights of the classifier in DIR give 11"},
      {"heads do not divide", "vit_hf", value("num_attention_heads", "4", "5"),
       "DIR/config.json: gives 5 attention heads, need a divisor of the width 64"},
      {"heads zero", "vit_hf", value("num_attention_heads", "4", "0"),
       "DIR/config.json: gives 0 attention heads, need a divisor of the width 64"},
      {"heads negative", "vit_hf", value("num_attention_heads", "4", "-4"),
       "DIR/config.json: gives -4 attention heads, need a divisor of the width 64"},
      {"heads true", "vit_hf", value("num_attention_heads", "4", "true"),
       "DIR/config.json: num_attention_heads: got true, need a whole number"},
      {"patch zero", "vit_hf", value("patch_size", "8", "0"),
       "DIR/config.json: patch_size: does not fit the patch embeddings in DIR, which are for 8 x "
       "8"},
      {"patch of three", "vit_hf", value("patch_size", "8", "[8, 8, 8]"),
       "DIR/config.json: patch_size: got 3 numbers, need one or [height, width]"},
      {"patch larger", "vit_hf", value("patch_size", "8", "16"),
       "DIR/config.json: patch_size: does not fit the patch embeddings in DIR, which are for 8 x "
       "8"},
      {"image negative", "vit_hf", value("image_size", "32", "-32"),
       "DIR/config.json: image_size: an image of -32 x -32 in patches of 8 x 8 does not give the "
       "16 positions of \"vit.embeddings.position_embeddings\""},
      {"image zero", "vit_hf", value("image_size", "32", "0"),
       "DIR/config.json: image_size: an image of 0 x 0 in patches of 8 x 8 does not give the 16 "
       "positions of \"vit.embeddings.position_embeddings\""},
      {"image larger", "vit_hf", value("image_size", "32", "40"),
       "DIR/config.json: image_size: an image of 40 x 40 in patches of 8 x 8 does not give the 16 "
       "positions of \"vit.embeddings.position_embeddings\""},
      {"image that overflows", "vit_hf", value("image_size", "32", "4611686018427387904"),
       "DIR/config.json: image_size: an image of 4611686018427387904 x 4611686018427387904 in "
       "patches of 8 x 8 does not give the 16 positions of \"vit.embeddings.position_embeddings\""},
      {"image oblong", "vit_hf", value("image_size", "32", "[16, 32]"),
       "DIR/config.json: image_size: an image of 16 x 32 in patches of 8 x 8 does not give the 16 "
       "positions of \"vit.embeddings.position_embeddings\""},
      {"biases not said to be there", "vit_hf", value("qkv_bias", "true", "false"),
       "DIR/config.json: qkv_bias: is false, but the layers in DIR have biases"},
      {"biases a text", "vit_hf", value("qkv_bias", "true", "\"yes\""),
       "DIR/config.json: qkv_bias: got \"yes\", need true or false"},
      {"activation unknown", "vit_hf", value("hidden_act", "\"gelu\"", "\"mish\""),
       "DIR/config.json: hidden_act: got \"mish\", need gelu, gelu_new, gelu_tanh, "
       "gelu_pytorch_tanh, quick_gelu, relu, silu or swish"},
      {"activation a number", "vit_hf", value("hidden_act", "\"gelu\"", "7"),
       "DIR/config.json: hidden_act: got 7, need a string"},
      {"epsilon negative", "vit_hf", value("layer_norm_eps", "1e-12", "-1e-12"),
       "DIR/config.json: layer_norm_eps: got -1e-12, need a number above 0 and at most 1"},
      {"epsilon zero", "vit_hf", value("layer_norm_eps", "1e-12", "0"),
       "DIR/config.json: layer_norm_eps: got 0, need a number above 0 and at most 1"},
      {"epsilon huge", "vit_hf", value("layer_norm_eps", "1e-12", "1e300"),
       "DIR/config.json: layer_norm_eps: got 1e+300, need a number above 0 and at most 1"},
      {"epsilon a text", "vit_hf", value("layer_norm_eps", "1e-12", "\"1e-12\""),
       "DIR/config.json: layer_norm_eps: got \"1e-12\", need a number"},
      {"problem type a number", "vit_hf", added("config.json", "\"problem_type\": 5"),
       "DIR/config.json: problem_type: got 5, need a string"},
      {"pooler of another width", "vit_hf_headless",
       config("\"pooler_output_size\": 160", "\"pooler_output_size\": 64"),
       "DIR/config.json: pooler_output_size: is 64, but the weights of the pooler in DIR give 160"},
      {"pooler's activation", "vit_hf_headless", config("\"tanh\"", "\"gelu\""),
       "DIR/config.json: pooler_act: got \"gelu\", only \"tanh\" is supported"},
      {"a class left out", "vit_hf", config("  \"4\": \"LABEL_4\",\n", ""),
       "DIR/config.json: id2label: names 10 classes, but the model has 11"},
      {"a hole in the classes", "vit_hf", config("\"10\": \"LABEL_10\"", "\"11\": \"LABEL_10\""),
       "DIR/config.json: id2label: got the key \"11\", need a class number from \"0\" to \"10\""},
      {"a class called 04", "vit_hf", config("\"4\": \"LABEL_4\"", "\"04\": \"LABEL_4\""),
       "DIR/config.json: id2label: got the key \"04\", need a class number from \"0\" to \"10\""},
      {"a class called four", "vit_hf", config("\"4\": \"LABEL_4\"", "\"four\": \"LABEL_4\""),
       "DIR/config.json: id2label: got the key \"four\", need a class number from \"0\" to \"10\""},
      {"a class's name a number", "vit_hf", config("\"4\": \"LABEL_4\"", "\"4\": 4"),
       "DIR/config.json: id2label.4: got 4, need a string"},
      {"classes a list", "vit_hf",
       file("config.json", "{\"num_attention_heads\": 4, \"id2label\": [\"a\"]}"),
       "DIR/config.json: id2label: need an object of class numbers and names {\"0\": \"cat\"}"},
      {"too few class names", "vit_hf",
       file("config.json", "{\"num_attention_heads\": 4, \"label_names\": [\"a\"]}"),
       "DIR/config.json: label_names: names 1 classes, but the model has 11"},
  };
}

inline Cases preprocessor_cases() {
  const char* name = "preprocessor_config.json";
  const auto size = [](const std::string& bad) {
    return preprocessor("\"size\": 32", "\"size\": " + bad);
  };
  const auto levels = [](const std::string& key, const std::string& bad) {
    return [=](const Folder& f) {
      f.write("preprocessor_config.json", "{\"size\": 32, \"" + key + "\": " + bad + "}");
    };
  };
  return {
      {"preprocessing empty", "vit_hf", file(name, ""),
       "DIR/preprocessor_config.json: not valid JSON: line 1, column 1: syntax error while parsing "
       "value - unexpected end of input; expected '[', '{', or a literal"},
      {"preprocessing a list", "vit_hf", file(name, "[]"),
       "DIR/preprocessor_config.json: need an object { ... }"},
      {"preprocessing cut short", "vit_hf",
       [](const Folder& f) { f.cut("preprocessor_config.json", 60); },
       "DIR/preprocessor_config.json: not valid JSON: line 4, column 16: syntax error while "
       "parsing value - unexpected end of input; expected '[', '{', or a literal"},
      {"size zero", "vit_hf", size("0"),
       "DIR/preprocessor_config.json: size: got 0, need a whole number from 1 to 65536"},
      {"size negative", "vit_hf", size("-32"),
       "DIR/preprocessor_config.json: size: got -32, need a whole number from 1 to 65536"},
      {"size a fraction", "vit_hf", size("32.5"),
       "DIR/preprocessor_config.json: size: need a number, {\"height\", \"width\"}, "
       "{\"shortest_edge\"} with or without \"longest_edge\", or {\"max_height\", \"max_width\"}"},
      {"size a text", "vit_hf", size("\"32\""),
       "DIR/preprocessor_config.json: size: need a number, {\"height\", \"width\"}, "
       "{\"shortest_edge\"} with or without \"longest_edge\", or {\"max_height\", \"max_width\"}"},
      {"size a list", "vit_hf", size("[32, 32, 3]"),
       "DIR/preprocessor_config.json: size: got 3 numbers, need [height, width]"},
      {"size huge", "vit_hf", size("1000000000000"),
       "DIR/preprocessor_config.json: size: got 1000000000000, need a whole number from 1 to "
       "65536"},
      {"size of too many pixels", "vit_hf", size("{\"height\": 65536, \"width\": 65536}"),
       "DIR/preprocessor_config.json: size: got 65536 x 65536 pixels, need at most 67108864 in "
       "all"},
      {"size without height", "vit_hf", size("{\"width\": 32}"),
       "DIR/preprocessor_config.json: size: need a number, {\"height\", \"width\"}, "
       "{\"shortest_edge\"} with or without \"longest_edge\", or {\"max_height\", \"max_width\"}"},
      {"size without width", "vit_hf", size("{\"height\": 32}"),
       "DIR/preprocessor_config.json: size: the key \"width\" is missing"},
      {"size of another model", "vit_hf", size("224"),
       "DIR/preprocessor_config.json: makes images of 224 x 224, but the model takes 32 x 32"},
      {"resample unknown", "vit_hf", added(name, "\"resample\": 9"),
       "DIR/preprocessor_config.json: resample: got 9, need one of Pillow's filters: 0 nearest, 1 "
       "lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming"},
      {"resample negative", "vit_hf", added(name, "\"resample\": -1"),
       "DIR/preprocessor_config.json: resample: got -1, need one of Pillow's filters: 0 nearest, 1 "
       "lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming"},
      {"resample a text", "vit_hf", added(name, "\"resample\": \"bilinear\""),
       "DIR/preprocessor_config.json: resample: got \"bilinear\", need a whole number"},
      {"crop without a size", "vit_hf", added(name, "\"do_center_crop\": true"),
       "DIR/preprocessor_config.json: do_center_crop: is true, but there is no crop_size"},
      {"crop to another size", "vit_hf", added(name, "\"do_center_crop\": true, \"crop_size\": 16"),
       "DIR/preprocessor_config.json: makes images of 16 x 16, but the model takes 32 x 32"},
      {"resize a number", "vit_hf", preprocessor("\"do_resize\": true", "\"do_resize\": 1"),
       "DIR/preprocessor_config.json: do_resize: got 1, need true or false"},
      {"factor zero", "vit_hf", added(name, "\"rescale_factor\": 0"),
       "DIR/preprocessor_config.json: rescale_factor: got 0, need a number above 0 and at most 1"},
      {"factor negative", "vit_hf", added(name, "\"rescale_factor\": -0.5"),
       "DIR/preprocessor_config.json: rescale_factor: got -0.5, need a number above 0 and at most "
       "1"},
      {"factor a text", "vit_hf", added(name, "\"rescale_factor\": \"1/255\""),
       "DIR/preprocessor_config.json: rescale_factor: got \"1/255\", need a number"},
      {"mean of two", "vit_hf", levels("image_mean", "[0.5, 0.5]"),
       "DIR/preprocessor_config.json: image_mean: got 2 numbers, need 3 (red, green, blue)"},
      {"mean a text", "vit_hf", levels("image_mean", "\"imagenet\""),
       "DIR/preprocessor_config.json: image_mean: got \"imagenet\", need an array of numbers"},
      {"mean beyond f32", "vit_hf", levels("image_mean", "[0.5, 1e300, 0.5]"),
       "DIR/preprocessor_config.json: image_mean: got 1e+300, need numbers that fit into f32"},
      {"deviation zero", "vit_hf", levels("image_std", "[0.5, 0, 0.5]"),
       "DIR/preprocessor_config.json: image_std: got 0, need numbers above 0"},
      {"deviation negative", "vit_hf", levels("image_std", "-0.5"),
       "DIR/preprocessor_config.json: image_std: got -0.5, need numbers above 0"},
      {"deviation lost in f32", "vit_hf", levels("image_std", "[0.5, 0.5, 1e-300]"),
       "DIR/preprocessor_config.json: image_std: got 0, need numbers above 0"},
  };
}

/// timm's variants that are not a plain ViT, and its settings.
inline Cases timm_cases() {
  const auto feature = [](const char* name) {
    return tensors([=](Tensors& t) { t[name] = tensor::zeros({48}); });
  };
  return {
      {"layer scale", "vit_timm", feature("blocks.0.ls1.gamma"),
       "DIR: is a timm model with layer scale (\"blocks.0.ls1.gamma\"), which is not supported: "
       "need a plain ViT"},
      {"query and key norms", "vit_timm", feature("blocks.1.attn.q_norm.weight"),
       "DIR: is a timm model with query/key norms (\"blocks.1.attn.q_norm.weight\"), which is not "
       "supported: need a plain ViT"},
      {"register tokens", "vit_timm", feature("reg_token"),
       "DIR: is a timm model with register tokens (\"reg_token\"), which is not supported: need a "
       "plain ViT"},
      {"distillation", "vit_timm", feature("dist_token"),
       "DIR: is a timm model with distillation (\"dist_token\"), which is not supported: need a "
       "plain ViT"},
      {"average pooling", "vit_timm", feature("fc_norm.weight"),
       "DIR: is a timm model with average pooling (fc_norm) (\"fc_norm.weight\"), which is not "
       "supported: need a plain ViT"},
      {"attention pooling", "vit_timm", feature("attn_pool.latent"),
       "DIR: is a timm model with attention pooling (\"attn_pool.latent\"), which is not "
       "supported: need a plain ViT"},
      {"a norm before", "vit_timm", feature("norm_pre.bias"),
       "DIR: is a timm model with a norm before (\"norm_pre.bias\"), which is not supported: need "
       "a plain ViT"},
      {"a gated MLP", "vit_timm", feature("blocks.0.mlp.w12.weight"),
       "DIR: is a timm model with a gated MLP (\"blocks.0.mlp.w12.weight\"), which is not "
       "supported: need a plain ViT"},
      {"pooling by average", "vit_timm",
       config("\"global_pool\": \"token\"", "\"global_pool\": \"avg\""),
       "DIR/config.json: global_pool: got \"avg\", only \"token\" is supported"},
      {"heads not told", "vit_timm", config("\"num_heads\": 4,", ""),
       "DIR/config.json: does not tell the number of attention heads: neither is there "
       "model_args.num_heads, nor is the architecture \"vit_base_patch16_224\" one of timm's "
       "plain ViTs of width 48"},
      {"heads do not divide", "vit_timm", config("\"num_heads\": 4", "\"num_heads\": 7"),
       "DIR/config.json: gives 7 attention heads, need a divisor of the width 48"},
      {"width", "vit_timm", config("\"embed_dim\": 48", "\"embed_dim\": 96"),
       "DIR/config.json: model_args.embed_dim: is 96, but the patch embeddings in DIR give 48"},
      {"classes", "vit_timm",
       config("\"num_classes\": 7,\n \"num_features\"", "\"num_classes\": 8,\n \"num_features\""),
       "DIR/config.json: num_classes: is 8, but the weights of the head in DIR give 7"},
      {"activation", "vit_timm", config("\"img_size\": 32", "\"act_layer\": \"hard_mish\""),
       "DIR/config.json: model_args.act_layer: got \"hard_mish\", need gelu, gelu_new, gelu_tanh, "
       "gelu_pytorch_tanh, quick_gelu, relu, silu or swish"},
      {"crop share zero", "vit_timm", config("\"crop_pct\": 0.9", "\"crop_pct\": 0"),
       "DIR/config.json: pretrained_cfg.crop_pct: got 0, need a number from 0.01 to 1"},
      {"crop mode", "vit_timm", config("\"crop_pct\": 0.9", "\"crop_mode\": \"border\""),
       "DIR/config.json: pretrained_cfg: got the crop_mode \"border\" for an image of 32 x 32, "
       "need \"center\" for a square or \"squash\""},
      {"filter", "vit_timm",
       config("\"interpolation\": \"bicubic\"", "\"interpolation\": \"random\""),
       "DIR/config.json: pretrained_cfg.interpolation: got \"random\", need nearest, bilinear, "
       "bicubic or lanczos"},
      {"input of another size", "vit_timm",
       config("\"input_size\": [\n   3,\n   32", "\"input_size\": [\n   3,\n   64"),
       "DIR/config.json: pretrained_cfg.input_size: need [3, 32, 32], the image that the model "
       "takes"},
      {"fused attention of a wrong shape", "vit_timm", tensors([](Tensors& t) {
         t["blocks.2.attn.qkv.weight"] = tensor::zeros({96, 48});
       }),
       "load: DIR does not fit the model: 1 problem:\n  wrong shape: \"blocks.2.attn.qkv.weight\" "
       "is (96, 48), need (144, 48)"},
      {"no class token", "vit_timm", tensors([](Tensors& t) { t.erase("cls_token"); }),
       "load: DIR does not fit the model: 1 problem:\n  missing: \"cls_token\""},
  };
}

}  // namespace malformed
