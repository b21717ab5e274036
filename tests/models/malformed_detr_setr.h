// Folders of a DETR and a SETR that say what the models cannot do, or contradict themselves.
#pragma once

#include "tests/models/malformed.h"

namespace malformed {

inline Cases detr_cases() {
  const std::string base = "detr_hf_no_timm";
  const auto value = [](const char* key, const char* good, const std::string& bad) {
    const std::string start = std::string("\"") + key + "\": ";
    return config(start + good, start + bad);
  };
  const auto padded = [](const std::string& bad) {
    return added("preprocessor_config.json", "\"pad_size\": " + bad);
  };
  return {
      {"no config", base, [](const Folder& f) { f.remove("config.json"); },
       "DIR: has no config.json, as no original DETR checkpoint has: write one beside it, {} for a "
       "published model; those with DC5 need {\"dilation\": true}"},
      {"auxiliary loss", base, value("auxiliary_loss", "false", "true"),
       "DIR/config.json: auxiliary_loss is true: transformers then normalises the state after "
       "every decoder layer, which this DETR does not; set it to false if the model was trained "
       "with the original code"},
      {"activation", base, value("activation_function", "\"relu\"", "\"gelu\""),
       "DIR/config.json: activation_function is \"gelu\", need \"relu\": DETR's feed-forward "
       "layers are built with ReLU"},
      {"learned positions", base, value("position_embedding_type", "\"sine\"", "\"learned\""),
       "DIR/config.json: position_embedding_type is \"learned\", need \"sine\": learned positions "
       "are not supported"},
      {"backbone's activation", base, value("hidden_act", "\"relu\"", "\"gelu\""),
       "DIR/config.json: backbone_config: hidden_act is \"gelu\", need \"relu\": ResNet is built "
       "with ReLU"},
      {"a ResNet v1", base, value("downsample_in_bottleneck", "false", "true"),
       "DIR/config.json: backbone_config: downsample_in_bottleneck is true: that is ResNet v1, "
       "need v1.5"},
      {"depths", base, config("\"depths\": [\n   2", "\"depths\": [\n   3"),
       "DIR/config.json: backbone_config.depths: does not agree with the tensors, which say (2, 1, "
       "2, 1)"},
      {"depths a number", base,
       config("\"depths\": [\n   2,\n   1,\n   2,\n   1\n  ]", "\"depths\": 6"),
       "DIR/config.json: backbone_config.depths: got 6, need an array of whole numbers"},
      {"stage widths", base, config("   64,", "   65,"),
       "DIR/config.json: backbone_config.hidden_sizes: does not agree with the tensors, which say "
       "(32, 64, 96, 128)"},
      {"stem", base, value("embedding_size", "16", "64"),
       "DIR/config.json: backbone_config.embedding_size: does not agree with the tensors, which "
       "say 16"},
      {"a stage before the last", base,
       config("\"out_features\": [\n   \"stage4\"", "\"out_features\": [\n   \"stage3\""),
       "DIR/config.json: backbone_config.out_features: need \"stage4\" at its end: DETR reads the "
       "last stage"},
      {"a stride of 8", base, config("\"layer_type\"", "\"output_stride\": 8, \"layer_type\""),
       "DIR/config.json: backbone_config.output_stride: got 8, need 32, or 16 for DC5"},
      {"backbone a list", base, file("config.json", "{\"backbone_config\": []}"),
       "DIR/config.json: backbone_config: got an array of 0, need an object"},
      {"dilation a text", base, value("dilation", "false", "\"no\""),
       "DIR/config.json: dilation: got \"no\", need true or false"},
      {"encoder heads do not divide", base, value("encoder_attention_heads", "4", "5"),
       "DIR/config.json: encoder_attention_heads is 5, need a divisor of the width 64"},
      {"decoder heads zero", base, value("decoder_attention_heads", "4", "0"),
       "DIR/config.json: decoder_attention_heads is 0, need a divisor of the width 64"},
      {"width", base, value("d_model", "64", "256"),
       "DIR/config.json: d_model: is 256, but the tensors \"model.input_projection.weight\" in DIR "
       "give 64"},
      {"width negative", base, value("d_model", "64", "-64"),
       "DIR/config.json: d_model: is -64, but the tensors \"model.input_projection.weight\" in DIR "
       "give 64"},
      {"queries", base, value("num_queries", "9", "100"),
       "DIR/config.json: num_queries: is 100, but the tensors "
       "\"model.query_position_embeddings.weight\" in DIR give 9"},
      {"encoder layers", base, value("encoder_layers", "2", "6"),
       "DIR/config.json: encoder_layers: is 6, but the tensors "
       "\"model.encoder.layers.0.fc1.weight\" in DIR give 2"},
      {"decoder layers a fraction", base, value("decoder_layers", "2", "2.5"),
       "DIR/config.json: decoder_layers: got 2.5, need a whole number"},
      {"inner width", base, value("decoder_ffn_dim", "96", "2048"),
       "DIR/config.json: decoder_ffn_dim: is 2048, but the tensors "
       "\"model.decoder.layers.0.fc1.weight\" in DIR give 96"},
      {"channels", base,
       config("\"num_channels\": 3,\n \"num_queries\"", "\"num_channels\": 4,\n \"num_queries\""),
       "DIR/config.json: num_channels: is 4, but the tensors "
       "\"model.backbone.conv_encoder.model.embedder.embedder.convolution.weight\" in DIR give 3"},
      {"a hole in the classes", base, config("\"5\": \"LABEL_5\"", "\"6\": \"LABEL_5\""),
       "DIR/config.json: id2label: got the key \"6\", need a class number from \"0\" to \"5\""},
      {"padding that overflows", base, padded("{\"height\": 4294967296, \"width\": 4294967296}"),
       "DIR/preprocessor_config.json: pad_size.height: got 4294967296, need a whole number from 1 "
       "to 65536"},
      {"padding to gigabytes", base, padded("{\"height\": 60000, \"width\": 60000}"),
       "DIR/preprocessor_config.json: pad_size: got 60000 x 60000 pixels, need at most 67108864 in "
       "all"},
      {"padding without a width", base, padded("{\"height\": 96}"),
       "DIR/preprocessor_config.json: pad_size: the key \"width\" is missing"},
      {"edges zero", base, preprocessor("\"shortest_edge\": 96", "\"shortest_edge\": 0"),
       "DIR/preprocessor_config.json: size.shortest_edge: got 0, need a whole number from 1 to "
       "65536"},
      {"edges huge", base,
       preprocessor("\"longest_edge\": 160", "\"longest_edge\": 4611686018427387904"),
       "DIR/preprocessor_config.json: size.longest_edge: got 4611686018427387904, need a whole "
       "number from 1 to 65536"},
      {"a longest edge alone", base, preprocessor("\"shortest_edge\": 96,\n", ""),
       "DIR/preprocessor_config.json: size: need a number, {\"height\", \"width\"}, "
       "{\"shortest_edge\"} with or without \"longest_edge\", or {\"max_height\", \"max_width\"}"},
      {"not a DETR", base, tensors([](Tensors& t) { t.erase("model.input_projection.weight"); }),
       "DIR: does not hold a DETR: there is neither a tensor \"model.input_projection.weight\" "
       "(Hugging Face) nor \"input_proj.weight\" (the original repository)"},
      {"two tensors for one", base,
       tensors([](Tensors& t) { t["detr.class_labels_classifier.bias"] = tensor::zeros({7}); }),
       "DIR: \"detr.class_labels_classifier.bias\" and another tensor both stand for "
       "\"class_labels_classifier.bias\""},
      {"several do not fit", base, tensors([](Tensors& t) {
         t["class_labels_classifier.bais"] = t.extract("class_labels_classifier.bias").mapped();
         t["model.decoder.layers.0.fc1.bias"] = tensor::zeros({95});
         t["model.query_position_embeddings.weight"] = tensor::zeros({9, 64}, tensor::i32);
       }),
       "load: DIR does not fit the model: 4 problems:\n  missing: "
       "\"class_labels_classifier.bias\"; did you mean \"class_labels_classifier.bais\"?\n  "
       "unexpected: \"class_labels_classifier.bais\"; did you mean "
       "\"class_labels_classifier.bias\"?\n  wrong type: "
       "\"model.query_position_embeddings.weight\" is i32, need a floating type\n  wrong shape: "
       "\"model.decoder.layers.0.fc1.bias\" is (95,), need (96,)"},
      {"no decoder", base, tensors([](Tensors& t) {
         std::erase_if(t,
                       [](const auto& x) { return x.first.starts_with("model.decoder.layers."); });
       }),
       "DIR/config.json: got a width of 64, 6 classes, 9 queries and 0 decoder layers, need a "
       "width that 4 "
       "divides and at least one of the others"},
      {"no classes but \"no object\"", base, tensors([](Tensors& t) {
         t["class_labels_classifier.weight"] = tensor::ones({1, 64});
         t["class_labels_classifier.bias"] = tensor::ones({1});
       }),
       "DIR/config.json: got a width of 64, 0 classes, 9 queries and 2 decoder layers, need a "
       "width that 4 "
       "divides and at least one of the others"},
  };
}

inline Cases rt_detr_cases() {
  const std::string base = "rt_detr", computed = ": nothing else is computed";
  const auto value = [](const char* key, const char* good, const std::string& bad) {
    const std::string start = std::string("\"") + key + "\": ";
    return config(start + good, start + bad);
  };
  return {
      {"another backbone", base, value("model_type", "\"rt_detr_resnet\"", "\"hgnet_v2\""),
       "DIR/config.json: backbone_config.model_type: is \"hgnet_v2\", need \"rt_detr_resnet\"" +
           computed},
      {"another activation", base, value("hidden_act", "\"relu\"", "\"gelu\""),
       "DIR/config.json: backbone_config.hidden_act: is \"gelu\", need \"relu\"" + computed},
      {"a ResNet v1", base, value("downsample_in_bottleneck", "false", "true"),
       "DIR/config.json: backbone_config.downsample_in_bottleneck: is true, need false" + computed},
      {"a gap", base, config("   2,\n   3,\n   4", "   1,\n   3,\n   4"),
       "DIR/config.json: backbone_config.out_indices: need numbers from 1 to 4, each one more than "
       "the one before it: every map is half of another"},
      {"an odd width", base, value("encoder_hidden_dim", "16", "18"),
       "DIR/config.json: encoder_hidden_dim: got 18, need a multiple of 4"},
      {"heads that do not divide", base, value("decoder_attention_heads", "4", "5"),
       "DIR/config.json: gives 5 attention heads, need a divisor of the width 24"},
      {"no such map", base,
       config("\"encode_proj_layers\": [\n  2", "\"encode_proj_layers\": [\n  3"),
       "DIR/config.json: encode_proj_layers: need numbers of the 3 maps, from 0"},
      {"more levels", base, value("num_feature_levels", "3", "4"),
       "DIR/config.json: num_feature_levels: is 4, but the settings of the backbone in DIR give 3"},
      {"minus one layer", base, value("encoder_layers", "1", "-1"),
       "DIR/config.json: encoder_layers: got -1, need a whole number from 0 to 256"},
      {"no feature", base, value("hidden_expansion", "1.0", "0.01"),
       "DIR/config.json: hidden_expansion: leaves no feature"},
      {"no wave", base, value("positional_encoding_temperature", "10000", "0"),
       "DIR/config.json: positional_encoding_temperature: got 0, need a number from 1 to 1e9"},
      {"norms before", base, value("normalize_before", "false", "true"),
       "DIR/config.json: normalize_before: is true, need false" + computed},
      {"a size of its own", base, value("eval_size", "null", "[640, 640]"),
       "DIR/config.json: eval_size: is a list, need null" + computed},
      {"padded images", base,
       added("preprocessor_config.json", "\"pad_size\": {\"height\": 64, \"width\": 64}"),
       "DIR/preprocessor_config.json: pad_size: this model's images are not padded: leave it out"},
      {"no classes", base, tensors([](Tensors& all) { all.erase("model.enc_score_head.weight"); }),
       "DIR: has no tensor \"enc_score_head.weight\""}};
}

inline Cases setr_cases() {
  const std::string base = "setr_mmseg_naive", mla = "setr_fudan_mla";
  const char* name = "preprocessor_config.json";
  const auto value = [](const char* key, const char* good, const std::string& bad) {
    const std::string start = std::string("\"") + key + "\": ";
    return config(start + good, start + bad);
  };
  const auto taps = [](const std::string& bad) {
    return config("\"tap_layers\": [\n  1,\n  2,\n  4,\n  5\n ]", "\"tap_layers\": " + bad);
  };
  return {
      {"no config", base, [](const Folder& f) { f.remove("config.json"); },
       "DIR: has no config.json, as no public SETR checkpoint has: write one beside it, {} for a "
       "published model; others need \"num_attention_heads\", and with an MLA head \"tap_layers\""},
      {"flavour not to be told", base,
       tensors([](Tensors& t) { t.erase("backbone.layers.0.attn.attn.in_proj_weight"); }),
       "DIR: does not hold a SETR: there is neither a tensor \"backbone.blocks.0.attn.qkv.weight\" "
       "(fudan) nor \"backbone.layers.0.attn.attn.in_proj_weight\" (mmseg)"},
      {"flavour of the other kind", base, value("flavour", "\"mmseg\"", "\"fudan\""),
       "DIR/config.json: flavour: is \"fudan\", but the tensors are \"mmseg\""},
      {"flavour a number", base, value("flavour", "\"mmseg\"", "2"),
       "DIR/config.json: flavour: got 2, need a string"},
      {"head of another kind", base, value("head", "\"naive\"", "\"pup\""),
       "DIR/config.json: head: is \"pup\", but the tensors are \"naive\""},
      {"heads not told", base, config(" \"num_attention_heads\": 2,\n", ""),
       "DIR/config.json: has no \"num_attention_heads\", which the tensors cannot tell: need it "
       "for an encoder of width 32"},
      {"heads do not divide", base, value("num_attention_heads", "2", "3"),
       "DIR/config.json: num_attention_heads is 3, need a divisor of the width 32"},
      {"heads negative", base, value("num_attention_heads", "2", "-2"),
       "DIR/config.json: num_attention_heads is -2, need a divisor of the width 32"},
      {"width", base, value("hidden_size", "32", "1024"),
       "DIR/config.json: hidden_size: is 1024, but the tensors "
       "\"backbone.patch_embed.projection.weight\" in DIR give 32"},
      {"layers", base, value("num_hidden_layers", "6", "24"),
       "DIR/config.json: num_hidden_layers: is 24, but the tensors "
       "\"backbone.layers.0.ffn.layers.0.0.weight\" in DIR give 6"},
      {"image", base, value("image_size", "96", "768"),
       "DIR/config.json: image_size: is 768, but the tensors \"backbone.pos_embed\" in DIR give "
       "96"},
      {"patch", base, value("patch_size", "16", "0"),
       "DIR/config.json: patch_size: is 0, but the tensors "
       "\"backbone.patch_embed.projection.weight\" in DIR give 16"},
      {"classes", base, value("num_labels", "5", "19"),
       "DIR/config.json: num_labels: is 19, but the tensors \"decode_head.conv_seg.weight\" in DIR "
       "give 5"},
      {"head's channels", base, value("decoder_channels", "32", "256"),
       "DIR/config.json: decoder_channels: is 256, but the tensors "
       "\"decode_head.up_convs.0.0.conv.weight\" in DIR give 32"},
      {"epsilon", base, value("layer_norm_eps", "1e-06", "-1"),
       "DIR/config.json: layer_norm_eps: got -1, need a number above 0 and at most 1"},
      {"tap beyond the last layer", mla, taps("[1, 2, 4, 6]"),
       "DIR/config.json: tap_layers: need 4 ascending layer numbers from 0 to 5"},
      {"tap before the first layer", mla, taps("[-1, 2, 4, 5]"),
       "DIR/config.json: tap_layers: need 4 ascending layer numbers from 0 to 5"},
      {"taps not in order", mla, taps("[1, 4, 2, 5]"),
       "DIR/config.json: tap_layers: need 4 ascending layer numbers from 0 to 5"},
      {"taps too few", mla, taps("[1, 2, 5]"),
       "DIR/config.json: tap_layers: need 4 ascending layer numbers from 0 to 5"},
      {"taps of texts", mla, taps("[\"1\", \"2\", \"4\", \"5\"]"),
       "DIR/config.json: tap_layers[0]: got \"1\", need a whole number"},
      {"taps not told", mla, taps("null"),
       "DIR/config.json: has no \"tap_layers\", which the tensors cannot tell: need the four "
       "encoder layers (from 0) that feed the MLA head"},
      {"positions not a square", base, tensors([](Tensors& t) {
         t["backbone.pos_embed"] = tensor::ones({1, 36, 32});
       }),
       "DIR: backbone.pos_embed has 36 rows, need a class token and a square number of cells"},
      {"a patch that is not square", base, tensors([](Tensors& t) {
         t["backbone.patch_embed.projection.weight"] = tensor::ones({32, 3, 16, 8});
       }),
       "load: DIR does not fit the model: 1 problem:\n  wrong shape: "
       "\"backbone.patch_embed.projection.weight\" is (32, 3, 16, 8), need (32, 3, 16, 16)"},
      {"patches of nothing", base, tensors([](Tensors& t) {
         t["backbone.patch_embed.projection.weight"] = tensor::ones({32, 3, 0, 0});
       }),
       "DIR: the tensor \"backbone.patch_embed.projection.weight\" has the shape (32, 3, 0, 0), "
       "need at least one element"},
      {"palette too short", base,
       file("config.json", "{\"num_attention_heads\": 2, \"palette\": [[0, 0, 0]]}"),
       "DIR/config.json: palette: need a list of 5 colours [red, green, blue]"},
      {"palette of large numbers", base, config("   0,\n   255,", "   0,\n   256,"),
       "DIR/config.json: palette[0]: need [red, green, blue], each from 0 to 255"},
      {"palette a text", base,
       file("config.json", "{\"num_attention_heads\": 2, \"palette\": \"ade20k\"}"),
       "DIR/config.json: palette: need a list of 5 colours [red, green, blue]"},
      {"class names too few", base, config(",\n  \"4\": \"class 4\"", ""),
       "DIR/config.json: id2label: names 4 classes, but the model has 5"},
      {"another filter", base, file(name, "{\"resample\": 3}"),
       "DIR/preprocessor_config.json: resample: got 3, only 2 (bilinear, as OpenCV computes it) is "
       "supported"},
      {"a crop", base, file(name, "{\"do_center_crop\": true, \"crop_size\": 96}"),
       "DIR/preprocessor_config.json: asks for a crop, but SETR takes the whole image"},
      {"a size that keeps the aspect", base,
       file(name, "{\"size\": {\"max_height\": 96, \"max_width\": 96}}"),
       "DIR/preprocessor_config.json: size has max_height and max_width, need shortest_edge and "
       "longest_edge, or height and width"},
      {"edges huge", base, file(name, "{\"size\": {\"shortest_edge\": 4294967296}}"),
       "DIR/preprocessor_config.json: size.shortest_edge: got 4294967296, need a whole number from "
       "1 to 65536"},
      {"several do not fit", base, tensors([](Tensors& t) {
         t["decode_head.conv_seg.bais"] = t.extract("decode_head.conv_seg.bias").mapped();
         t["backbone.layers.3.ln1.weight"] = tensor::zeros({31});
       }),
       "load: DIR does not fit the model: 3 problems:\n  missing: \"decode_head.conv_seg.bias\"; "
       "did you mean \"decode_head.conv_seg.bais\"?\n  unexpected: \"decode_head.conv_seg.bais\"; "
       "did you mean \"decode_head.conv_seg.bias\"?\n  wrong shape: "
       "\"backbone.layers.3.ln1.weight\" is (31,), need (32,)"},
  };
}

}  // namespace malformed
