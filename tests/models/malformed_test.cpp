// Spoiled ViT folders: each is refused with exactly this message. "DIR" stands for the folder.
#include <gtest/gtest.h>

#include <cstring>

#include "models/vit/vit_checkpoint.h"
#include "tensor/ops.h"
#include "tests/error_of.h"
#include "tests/models/folder.h"
#include "tests/temporary_folder.h"

namespace {

using folder::Checkpoint;
using tensor::Tensor;

struct Spoiled {
  const char* name;
  std::function<void(Checkpoint&)> spoil;
  std::string message;
};

/// Names the case in the test's output instead of its bytes.
void PrintTo(const Spoiled& spoiled, std::ostream* out) { *out << spoiled.name; }

std::string all_replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// Writes the folder, opens it and gives the message with its path all_replaced.
std::string refusal(const Checkpoint& checkpoint) {
  const tensor::check::TemporaryFolder home;
  checkpoint.write(home);
  const std::string message =
      tensor::check::error_of([&] { models::vit::load_vit(models::open_checkpoint(home.path())); });
  return all_replaced(message, home.path(), "DIR");
}

std::function<void(Checkpoint&)> config(const std::string& key, const std::string& value) {
  return [=](Checkpoint& c) { c.config[key] = value; };
}
std::function<void(Checkpoint&)> preprocessor(const std::string& key, const std::string& value) {
  return [=](Checkpoint& c) { c.preprocessor[key] = value; };
}
std::function<void(Checkpoint&)> file(const std::string& name, const std::string& text) {
  return [=](Checkpoint& c) { c.files[name] = text; };
}
std::function<void(Checkpoint&)> tensor_is(const std::string& name, const Tensor& value) {
  return [=](Checkpoint& c) { c.tensors[name] = value; };
}

/// A safetensors file with this header and so many bytes of data.
std::string safetensors(const std::string& header, std::size_t bytes) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(bytes, '\0');
}
std::function<void(Checkpoint&)> model(const std::string& header, std::size_t bytes) {
  return file("model.safetensors", safetensors(header, bytes));
}

class MalformedFolder : public testing::TestWithParam<Spoiled> {};

TEST_P(MalformedFolder, IsRefused) {
  Checkpoint checkpoint = folder::small_vit();
  GetParam().spoil(checkpoint);
  EXPECT_EQ(refusal(checkpoint), GetParam().message);
}

const std::string kQuery = "vit.encoder.layer.0.attention.attention.query.weight";
const std::string kPatch = "vit.embeddings.patch_embeddings.projection.weight";

const Spoiled kConfigs[] = {
    {"NotJson", file("config.json", "hello"),
     "DIR/config.json: not valid JSON: line 1, column 1: syntax error while parsing value - "
     "invalid literal; last read: 'h'"},
    {"Empty", file("config.json", ""),
     "DIR/config.json: not valid JSON: line 1, column 1: syntax error while parsing value - "
     "unexpected end of input; expected '[', '{', or a literal"},
    {"CutShort", file("config.json", "{\"hidden_size\": 8"),
     "DIR/config.json: not valid JSON: line 1, column 18: syntax error while parsing object - "
     "unexpected end of input; expected '}'"},
    {"ArrayAtTheTop", file("config.json", "[1, 2]"), "DIR/config.json: need an object { ... }"},
    {"DuplicateKey", file("config.json", "{\"hidden_size\": 8, \"hidden_size\": 9}"),
     "DIR/config.json: line 1: the key \"hidden_size\" appears twice in one object"},
    {"NotUtf8", file("config.json", "{\"a\": \"\xff\xfe\"}"),
     "DIR/config.json: not valid JSON: line 1, column 8: syntax error while parsing value - "
     "invalid string: ill-formed UTF-8 byte; last read: '\"?'"},
    {"TooDeep", file("config.json", std::string(100000, '[')),
     "DIR/config.json: line 1: nested deeper than 64 levels"},
    {"TrailingText", file("config.json", "{} x"),
     "DIR/config.json: not valid JSON: line 1, column 4: syntax error while parsing value - "
     "invalid literal; last read: '{} x'; expected end of input"},
    {"WrongWidth", config("hidden_size", "16"),
     "DIR/config.json: hidden_size: is 16, but the patch embeddings in DIR give 8"},
    {"WidthOfText", config("hidden_size", "\"8\""),
     "DIR/config.json: hidden_size: got \"8\", need a whole number"},
    {"WidthWithFraction", config("hidden_size", "8.5"),
     "DIR/config.json: hidden_size: got 8.5, need a whole number"},
    {"HugeWidth", config("hidden_size", "1e30"),
     "DIR/config.json: hidden_size: got 1e+30, need a whole number"},
    {"WrongLayers", config("num_hidden_layers", "3"),
     "DIR/config.json: num_hidden_layers: is 3, but the layers in DIR give 2"},
    {"HugeLayers", config("num_hidden_layers", "9000000000000000000"),
     "DIR/config.json: num_hidden_layers: is 9000000000000000000, but the layers in DIR give 2"},
    {"WrongMlp", config("intermediate_size", "32"),
     "DIR/config.json: intermediate_size: is 32, but the weights of the MLP in DIR give 12"},
    {"WrongChannels", config("num_channels", "1"),
     "DIR/config.json: num_channels: is 1, but the patch embeddings in DIR give 3"},
    {"HeadsDoNotDivide", config("num_attention_heads", "3"),
     "DIR/config.json: gives 3 attention heads, need a divisor of the width 8"},
    {"NoHeads", config("num_attention_heads", "0"),
     "DIR/config.json: gives 0 attention heads, need a divisor of the width 8"},
    {"NegativeHeads", config("num_attention_heads", "-2"),
     "DIR/config.json: gives -2 attention heads, need a divisor of the width 8"},
    {"HeadsByDefault", [](Checkpoint& c) { c.config.erase("num_attention_heads"); },
     "DIR/config.json: gives 12 attention heads, need a divisor of the width 8"},
    {"WrongPatch", config("patch_size", "2"),
     "DIR/config.json: patch_size: does not fit the patch embeddings in DIR, which are for 4 x 4"},
    {"PatchOfThreeNumbers", config("patch_size", "[4, 4, 4]"),
     "DIR/config.json: patch_size: got 3 numbers, need one or [height, width]"},
    {"WrongImage", config("image_size", "16"),
     "DIR/config.json: image_size: an image of 16 x 16 in patches of 4 x 4 does not give the 4 "
     "positions of \"vit.embeddings.position_embeddings\""},
    {"HugeImage", config("image_size", "4611686018427387904"),
     "DIR/config.json: image_size: an image of 4611686018427387904 x 4611686018427387904 in "
     "patches of 4 x 4 does not give the 4 positions of \"vit.embeddings.position_embeddings\""},
    {"NegativeImage", config("image_size", "-8"),
     "DIR/config.json: image_size: an image of -8 x -8 in patches of 4 x 4 does not give the 4 "
     "positions of \"vit.embeddings.position_embeddings\""},
    {"ImageByDefault", [](Checkpoint& c) { c.config["image_size"] = "224"; },
     "DIR/config.json: image_size: an image of 224 x 224 in patches of 4 x 4 does not give the 4 "
     "positions of \"vit.embeddings.position_embeddings\""},
    {"NoQkvBias", config("qkv_bias", "false"),
     "DIR/config.json: qkv_bias: is false, but the layers in DIR have biases"},
    {"QkvBiasOfText", config("qkv_bias", "\"yes\""),
     "DIR/config.json: qkv_bias: got \"yes\", need true or false"},
    {"UnknownActivation", config("hidden_act", "\"sine\""),
     "DIR/config.json: hidden_act: got \"sine\", need gelu, gelu_new, gelu_tanh, "
     "gelu_pytorch_tanh, quick_gelu, relu, silu or swish"},
    {"ActivationOfNumber", config("hidden_act", "3"),
     "DIR/config.json: hidden_act: got 3, need a string"},
    {"EpsOfText", config("layer_norm_eps", "\"1e-12\""),
     "DIR/config.json: layer_norm_eps: got \"1e-12\", need a number"},
    {"TooFewLabels", config("id2label", "{\"0\": \"cat\", \"1\": \"dog\"}"),
     "DIR/config.json: id2label: names 2 classes, but the model has 3"},
    {"LabelOutOfRange", config("id2label", "{\"0\": \"a\", \"1\": \"b\", \"3\": \"c\"}"),
     "DIR/config.json: id2label: got the key \"3\", need a class number from \"0\" to \"2\""},
    {"LabelKeyNoNumber", config("id2label", "{\"0\": \"a\", \"1\": \"b\", \"x\": \"c\"}"),
     "DIR/config.json: id2label: got the key \"x\", need a class number from \"0\" to \"2\""},
    {"LabelKeyWithZeros", config("id2label", "{\"0\": \"a\", \"1\": \"b\", \"02\": \"c\"}"),
     "DIR/config.json: id2label: got the key \"02\", need a class number from \"0\" to \"2\""},
    {"LabelNoText", config("id2label", "{\"0\": \"a\", \"1\": \"b\", \"2\": 7}"),
     "DIR/config.json: id2label.2: got 7, need a string"},
    {"LabelsAsList", config("id2label", "[\"a\", \"b\", \"c\"]"),
     "DIR/config.json: id2label: need an object of class numbers and names {\"0\": \"cat\"}"},
};

const Spoiled kPreprocessors[] = {
    {"Empty", file("preprocessor_config.json", ""),
     "DIR/preprocessor_config.json: not valid JSON: line 1, column 1: syntax error while parsing "
     "value - unexpected end of input; expected '[', '{', or a literal"},
    {"Array", file("preprocessor_config.json", "[]"),
     "DIR/preprocessor_config.json: need an object { ... }"},
    {"OtherSize", preprocessor("size", "16"),
     "DIR/preprocessor_config.json: makes images of 16 x 16, but the model takes 8 x 8"},
    {"HugeSize", preprocessor("size", "1000000000"),
     "DIR/preprocessor_config.json: size: got 1000000000, need a whole number from 1 to 65536"},
    {"SizeOfNothing", preprocessor("size", "{}"),
     "DIR/preprocessor_config.json: size: need a number, {\"height\", \"width\"}, "
     "{\"shortest_edge\"} with or without \"longest_edge\", or {\"max_height\", \"max_width\"}"},
    {"ZeroHeight", preprocessor("size", "{\"height\": 0, \"width\": 8}"),
     "DIR/preprocessor_config.json: size.height: got 0, need a whole number from 1 to 65536"},
    {"WidthMissing", preprocessor("size", "{\"height\": 8}"),
     "DIR/preprocessor_config.json: size: the key \"width\" is missing"},
    {"UnknownFilter", preprocessor("resample", "9"),
     "DIR/preprocessor_config.json: resample: got 9, need one of Pillow's filters: 0 nearest, 1 "
     "lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming"},
    {"TwoMeans", preprocessor("image_mean", "[0.5, 0.5]"),
     "DIR/preprocessor_config.json: image_mean: got 2 numbers, need 3 (red, green, blue)"},
    {"MeanOfText", preprocessor("image_mean", "[0.5, 0.5, \"x\"]"),
     "DIR/preprocessor_config.json: image_mean[2]: got \"x\", need a number"},
    {"DeviationOfZero", preprocessor("image_std", "[0.5, 0.5, 0]"),
     "DIR/preprocessor_config.json: image_std: got 0, need numbers above 0"},
    {"ResizeOfNumber", preprocessor("do_resize", "1"),
     "DIR/preprocessor_config.json: do_resize: got 1, need true or false"},
    {"CropWithoutSize", preprocessor("do_center_crop", "true"),
     "DIR/preprocessor_config.json: do_center_crop: is true, but there is no crop_size"},
};

const Spoiled kTensors[] = {
    {"NoFile", [](Checkpoint& c) { c.tensors.clear(); },
     "DIR: does not hold a ViT: there is neither a tensor "
     "\"...embeddings.patch_embeddings.projection.weight\" (Hugging Face) nor "
     "\"patch_embed.proj.weight\" (timm)"},
    {"EmptyFile", file("model.safetensors", ""),
     "DIR/model.safetensors: not a safetensors file: it has 0 bytes, need 8 at least"},
    {"SevenBytes", file("model.safetensors", "1234567"),
     "DIR/model.safetensors: not a safetensors file: it has 7 bytes, need 8 at least"},
    {"HugeHeader", file("model.safetensors", std::string(8, '\x7f') + "{}"),
     "DIR/model.safetensors: not a safetensors file: it claims a header of 9187201950435737471 "
     "bytes, the format allows 100000000"},
    {"HeaderBeyondTheFile", file("model.safetensors", std::string("\x40\0\0\0\0\0\0\0{}", 10)),
     "DIR/model.safetensors: is cut short: the header takes 64 bytes, the file has 2 after the "
     "first 8"},
    {"HeaderNoJson", model("{hello}", 0),
     "DIR/model.safetensors: header: not valid JSON: line 1, column 2: syntax error while parsing "
     "object key - invalid literal; last read: '{h'; expected string literal"},
    {"HeaderNoObject", model("[]", 0),
     "DIR/model.safetensors: not a safetensors file: the header does not begin with {"},
    {"DataCutShort", model(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 12),
     "DIR/model.safetensors: is cut short: tensor \"a\" ends at byte 16 of the data, of which the "
     "file has 12"},
    {"DataLeftOver", model(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 20),
     "DIR/model.safetensors: has 4 bytes after the last tensor, need none"},
    {"Gap", model(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
     "DIR/model.safetensors: tensor \"a\" begins at byte 4 of the data, but 0 is expected: no "
     "bytes may lie between tensors"},
    {"Overlap",
     model(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
           12),
     "DIR/model.safetensors: tensor \"b\" begins at byte 4 of the data, inside tensor \"a\", which "
     "ends at 8"},
    {"ProductOverflows",
     model(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
     "DIR/model.safetensors: tensor \"a\": the shape (4294967296, 4294967296) takes more than 2^63 "
     "bytes"},
    {"ShapeDoesNotFit", model(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})", 16),
     "DIR/model.safetensors: tensor \"a\": the shape (3,) of F32 takes 12 bytes, but data_offsets "
     "are 0 and 16"},
    {"NegativeExtent", model(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
     "DIR/model.safetensors: tensor \"a\": shape holds something other than whole numbers from 0 "
     "to 2^63 - 1"},
    {"UnknownType", model(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4),
     "DIR/model.safetensors: tensor \"a\": has the unknown dtype \"F33\", need one of BOOL U8 I8 "
     "I16 I32 I64 F16 BF16 F32 F64"},
    {"DuplicateTensor",
     model(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           1),
     "DIR/model.safetensors: header: line 1: the key \"a\" appears twice in one object"},
    {"NoWeights", [](Checkpoint& c) { c.with_tensors = false; },
     "DIR: has neither model.safetensors nor model.safetensors.index.json"},
    {"OnlyPyTorch",
     [](Checkpoint& c) {
       c.with_tensors = false;
       c.files["pytorch_model.bin"] = "x";
     },
     "DIR: has no model.safetensors but pytorch_model.bin: convert it with scripts/convert_pth.py"},
    {"IsAFolder",
     [](Checkpoint& c) {
       c.with_tensors = false;
       c.links["model.safetensors"] = "/tmp";
     },
     "DIR/model.safetensors: is a folder, need a file"},
    {"OtherModel",
     [](Checkpoint& c) {
       c.tensors = {{"weight", tensor::zeros({2})}};
     },
     "DIR: does not hold a ViT: there is neither a tensor "
     "\"...embeddings.patch_embeddings.projection.weight\" (Hugging Face) nor "
     "\"patch_embed.proj.weight\" (timm)"},
    {"NoLayers",
     [](Checkpoint& c) {
       std::erase_if(c.tensors, [](const auto& entry) {
         return entry.first.find(".layer.") != std::string::npos;
       });
     },
     "DIR: has \"vit.embeddings.patch_embeddings.projection.weight\" but no layers under "
     "\"vit.encoder.layer.0.\" or \"vit.layers.0.\""},
    {"LayerMissing",
     [](Checkpoint& c) {
       std::erase_if(c.tensors, [](const auto& entry) {
         return entry.first.find(".layer.0.") != std::string::npos;
       });
     },
     "DIR: has \"vit.embeddings.patch_embeddings.projection.weight\" but no layers under "
     "\"vit.encoder.layer.0.\" or \"vit.layers.0.\""},
    {"TensorMissing", [](Checkpoint& c) { c.tensors.erase(kQuery); },
     "load: DIR does not fit the model: 1 problem:\n  missing: "
     "\"vit.encoder.layer.0.attention.attention.query.weight\""},
    {"TensorMisspelt",
     [](Checkpoint& c) {
       c.tensors["vit.layernorm.wieght"] = c.tensors.at("vit.layernorm.weight");
       c.tensors.erase("vit.layernorm.weight");
     },
     "load: DIR does not fit the model: 2 problems:\n  missing: \"vit.layernorm.weight\"; did you "
     "mean \"vit.layernorm.wieght\"?\n  unexpected: \"vit.layernorm.wieght\"; did you mean "
     "\"vit.layernorm.weight\"?"},
    {"TensorUnknown", tensor_is("vit.extra", tensor::zeros({1})),
     "load: DIR does not fit the model: 1 problem:\n  unexpected: \"vit.extra\""},
    {"QueryTransposed", tensor_is(kQuery, tensor::zeros({8, 9})),
     "load: DIR does not fit the model: 1 problem:\n  wrong shape: "
     "\"vit.encoder.layer.0.attention.attention.query.weight\" is (8, 9), need (8, 8)"},
    {"PatchNotSquare", tensor_is(kPatch, tensor::zeros({8, 3, 4, 2})),
     "DIR/config.json: patch_size: does not fit the patch embeddings in DIR, which are for 4 x 2"},
    {"PatchOfTwoAxes", tensor_is(kPatch, tensor::zeros({8, 47})),
     "DIR: the tensor \"vit.embeddings.patch_embeddings.projection.weight\" has the shape (8, 47), "
     "need [width, 3 * patch * patch] or 4 axes"},
    {"PatchOfNothing", tensor_is(kPatch, tensor::zeros({8, 3, 0, 4})),
     "DIR: the tensor \"vit.embeddings.patch_embeddings.projection.weight\" has the shape "
     "(8, 3, 0, 4), need at least one element"},
    {"PositionsTooFew", tensor_is("vit.embeddings.position_embeddings", tensor::zeros({1, 4, 8})),
     "DIR/config.json: image_size: an image of 8 x 8 in patches of 4 x 4 does not give the 3 "
     "positions of \"vit.embeddings.position_embeddings\""},
    {"NoPositions", tensor_is("vit.embeddings.position_embeddings", tensor::zeros({1, 0, 8})),
     "DIR: the tensor \"vit.embeddings.position_embeddings\" has the shape (1, 0, 8), need at "
     "least "
     "one element"},
    {"IntegerWeights", tensor_is(kQuery, tensor::zeros({8, 8}, tensor::i32)),
     "load: DIR does not fit the model: 1 problem:\n  wrong type: "
     "\"vit.encoder.layer.0.attention.attention.query.weight\" is i32, need a floating type"},
    {"ClassifierOfOneAxis", tensor_is("classifier.weight", tensor::zeros({24})),
     "DIR: the tensor \"classifier.weight\" has the shape (24,), need 2 axes"},
    {"ClassifierTooNarrow", tensor_is("classifier.weight", tensor::zeros({3, 7})),
     "load: DIR does not fit the model: 1 problem:\n  wrong shape: \"classifier.weight\" is (3, "
     "7), need (3, 8)"},
};

/// A folder with shards: part.safetensors holds the tensors "a" and "b".
std::function<void(Checkpoint&)> index(const std::string& text) {
  return [=](Checkpoint& c) {
    c.with_tensors = false;
    c.files["model.safetensors.index.json"] = text;
    c.files["part.safetensors"] =
        safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                    2);
    c.links["out.safetensors"] = "../outside.safetensors";
  };
}
std::function<void(Checkpoint&)> shard(const std::string& name) {
  return index("{\"weight_map\": {\"a\": \"" + name + "\"}}");
}

const Spoiled kShards[] = {
    {"NoWeightMap", index("{}"),
     "DIR/model.safetensors.index.json: the key \"weight_map\" is missing"},
    {"EmptyWeightMap", index("{\"weight_map\": {}}"),
     "DIR/model.safetensors.index.json: weight_map: lists no tensors"},
    {"WeightMapNoObject", index("{\"weight_map\": [\"part.safetensors\"]}"),
     "DIR/model.safetensors.index.json: weight_map: got an array of 1, need an object"},
    {"ShardNoText", index("{\"weight_map\": {\"a\": 1}}"),
     "DIR/model.safetensors.index.json: weight_map.a: got 1, need a string"},
    {"DuplicateName",
     index("{\"weight_map\": {\"a\": \"part.safetensors\", \"a\": \"part.safetensors\"}}"),
     "DIR/model.safetensors.index.json: line 1: the key \"a\" appears twice in one object"},
    {"AboveTheFolder", shard("../part.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: got \"../part.safetensors\", need the name "
     "of a .safetensors file in the same folder"},
    {"Absolute", shard("/etc/part.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: got \"/etc/part.safetensors\", need the name "
     "of a .safetensors file in the same folder"},
    {"BelowTheFolder", shard("sub/part.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: got \"sub/part.safetensors\", need the name "
     "of a .safetensors file in the same folder"},
    {"Backslash", shard("..\\\\part.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: got \"..\\\\part.safetensors\", need the "
     "name of a .safetensors file in the same folder"},
    {"EmptyName", shard(""),
     "DIR/model.safetensors.index.json: weight_map.a: got \"\", need the name of a .safetensors "
     "file in the same folder"},
    {"NulInName", shard("part.safetensors\\u0000.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: got \"part.safetensors\\u0000.safetensors\", "
     "need the name of a .safetensors file in the same folder"},
    {"OtherExtension", shard("config.json"),
     "DIR/model.safetensors.index.json: weight_map.a: got \"config.json\", need the name of a "
     ".safetensors file in the same folder"},
    {"Absent", shard("part-2.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: there is no file DIR/part-2.safetensors"},
    {"LinkToNothing", shard("out.safetensors"),
     "DIR/model.safetensors.index.json: weight_map.a: there is no file DIR/out.safetensors"},
    {"TensorNotInShard",
     index("{\"weight_map\": {\"a\": \"part.safetensors\", \"c\": \"part.safetensors\"}}"),
     "DIR/model.safetensors.index.json: weight_map.c: DIR/part.safetensors holds no tensor of this "
     "name"},
    {"TensorNotInIndex", shard("part.safetensors"),
     "DIR/part.safetensors: holds the tensor \"b\", which model.safetensors.index.json does not "
     "place there"},
};

std::function<void(Checkpoint&)> timm(const std::function<void(Checkpoint&)>& spoil) {
  return [=](Checkpoint& c) {
    c = folder::small_timm_vit();
    spoil(c);
  };
}
std::function<void(Checkpoint&)> timm_has(const std::string& name) {
  return timm(tensor_is(name, tensor::zeros({8})));
}

const Spoiled kTimm[] = {
    {"LayerScale", timm_has("blocks.0.ls1.gamma"),
     "DIR: is a timm model with layer scale (\"blocks.0.ls1.gamma\"), which is not supported: need "
     "a plain ViT"},
    {"QueryNorm", timm_has("blocks.1.attn.q_norm.weight"),
     "DIR: is a timm model with query/key norms (\"blocks.1.attn.q_norm.weight\"), which is not "
     "supported: need a plain ViT"},
    {"NormBefore", timm_has("norm_pre.weight"),
     "DIR: is a timm model with a norm before (\"norm_pre.weight\"), which is not supported: need "
     "a plain ViT"},
    {"Registers", timm_has("reg_token"),
     "DIR: is a timm model with register tokens (\"reg_token\"), which is not supported: need a "
     "plain ViT"},
    {"AttentionPooling", timm_has("attn_pool.latent"),
     "DIR: is a timm model with attention pooling (\"attn_pool.latent\"), which is not supported: "
     "need a plain ViT"},
    {"Distilled", timm_has("head_dist.weight"),
     "DIR: is a timm model with distillation (\"head_dist.weight\"), which is not supported: need "
     "a plain ViT"},
    {"FcNorm", timm_has("fc_norm.weight"),
     "DIR: is a timm model with average pooling (fc_norm) (\"fc_norm.weight\"), which is not "
     "supported: need a plain ViT"},
    {"AveragePooling", timm(config("global_pool", "\"avg\"")),
     "DIR/config.json: global_pool: got \"avg\", only \"token\" is supported"},
    {"UnknownHeads", timm(config("model_args", "{\"img_size\": 8}")),
     "DIR/config.json: does not tell the number of attention heads: neither is there "
     "model_args.num_heads, nor is the architecture \"vit_base_patch16_224\" one of timm's "
     "plain ViTs of width 8"},
    {"HeadsDoNotDivide", timm(config("model_args", "{\"img_size\": 8, \"num_heads\": 3}")),
     "DIR/config.json: gives 3 attention heads, need a divisor of the width 8"},
    {"WrongDepth", timm(config("model_args", "{\"num_heads\": 2, \"depth\": 12}")),
     "DIR/config.json: model_args.depth: is 12, but the blocks in DIR give 2"},
    {"WrongClasses", timm(config("num_classes", "1000")),
     "DIR/config.json: num_classes: is 1000, but the weights of the head in DIR give 3"},
    {"WrongImage", timm(config("model_args", "{\"num_heads\": 2, \"img_size\": 16}")),
     "DIR/config.json: model_args.img_size: an image of 16 x 16 in patches of 4 x 4 does not give "
     "the 4 positions of \"pos_embed\""},
    {"WrongPatch", timm(config("model_args", "{\"num_heads\": 2, \"patch_size\": 16}")),
     "DIR/config.json: model_args.patch_size: does not fit the patch embeddings in DIR, which are "
     "for 4 x 4"},
    {"ModelArgsNoObject", timm(config("model_args", "3")),
     "DIR/config.json: model_args: got 3, need an object"},
    {"UnknownActivation", timm(config("model_args", "{\"num_heads\": 2, \"act_layer\": \"sine\"}")),
     "DIR/config.json: model_args.act_layer: got \"sine\", need gelu, gelu_new, gelu_tanh, "
     "gelu_pytorch_tanh, quick_gelu, relu, silu or swish"},
    {"OtherInput", timm(config("pretrained_cfg", "{\"input_size\": [3, 16, 16]}")),
     "DIR/config.json: pretrained_cfg.input_size: need [3, 8, 8], the image that the model takes"},
    {"BorderCrop", timm(config("pretrained_cfg", "{\"crop_mode\": \"border\"}")),
     "DIR/config.json: pretrained_cfg: got the crop_mode \"border\" for an image of 8 x 8, need "
     "\"center\" for a square or \"squash\""},
    {"QkvTooNarrow", timm(tensor_is("blocks.0.attn.qkv.weight", tensor::zeros({16, 8}))),
     "load: DIR does not fit the model: 1 problem:\n  wrong shape: \"blocks.0.attn.qkv.weight\" is "
     "(16, 8), need (24, 8)"},
    {"PositionsNotSquare", timm([](Checkpoint& c) {
       c.config["model_args"] = "{\"num_heads\": 2}";
       c.tensors["pos_embed"] = tensor::zeros({1, 7, 8});
     }),
     "DIR: an image of 8 x 8 in patches of 4 x 4 does not give the 6 positions of \"pos_embed\""},
};

std::string name_of(const testing::TestParamInfo<Spoiled>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Config, MalformedFolder, testing::ValuesIn(kConfigs), name_of);
INSTANTIATE_TEST_SUITE_P(Preprocessor, MalformedFolder, testing::ValuesIn(kPreprocessors), name_of);
INSTANTIATE_TEST_SUITE_P(Shards, MalformedFolder, testing::ValuesIn(kShards), name_of);
INSTANTIATE_TEST_SUITE_P(Timm, MalformedFolder, testing::ValuesIn(kTimm), name_of);
INSTANTIATE_TEST_SUITE_P(Tensors, MalformedFolder, testing::ValuesIn(kTensors), name_of);

}  // namespace
