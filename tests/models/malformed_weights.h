// Folders with malformed weights: absent and unfitting tensors, spoiled safetensors files, and
// shards that lie or leave the folder.
#pragma once

#include "tests/models/malformed.h"

namespace malformed {

/// Good files with tensors that do not fit.
inline Cases tensor_cases() {
  const std::string first = "vit.encoder.layer.0.",
                    query = first + "attention.attention.query.weight";
  return {
      {"a tensor is missing", "vit_hf", tensors([](Tensors& t) { t.erase("vit.layernorm.bias"); }),
       "load: DIR does not fit the model: 1 problem:\n  missing: \"vit.layernorm.bias\""},
      {"a tensor too many", "vit_hf",
       tensors([](Tensors& t) { t["vit.scale"] = tensor::ones({2}); }),
       "load: DIR does not fit the model: 1 problem:\n  unexpected: \"vit.scale\""},
      {"several do not fit", "vit_hf", tensors([=](Tensors& t) {
         t["vit.layernrom.bias"] = t.extract("vit.layernorm.bias").mapped();
         t["classifier.wieght"] = t["classifier.weight"];
         t[query] = tensor::zeros({64, 63});
         t.erase(first + "output.dense.bias");
       }),
       "load: DIR does not fit the model: 5 problems:\n  missing: "
       "\"vit.encoder.layer.0.output.dense.bias\"\n  missing: \"vit.layernorm.bias\"; did you mean "
       "\"vit.layernrom.bias\"?\n  unexpected: \"classifier.wieght\"\n  unexpected: "
       "\"vit.layernrom.bias\"; did you mean \"vit.layernorm.bias\"?\n  wrong shape: "
       "\"vit.encoder.layer.0.attention.attention.query.weight\" is (64, 63), need (64, 64)"},
      {"a misshapen position", "vit_hf", tensors([](Tensors& t) {
         t["vit.embeddings.position_embeddings"] = tensor::ones({1, 12, 64});
       }),
       "DIR/config.json: image_size: an image of 32 x 32 in patches of 8 x 8 does not give the 11 "
       "positions of \"vit.embeddings.position_embeddings\""},
      {"a position of two axes", "vit_hf", tensors([](Tensors& t) {
         t["vit.embeddings.position_embeddings"] = tensor::ones({17, 64});
       }),
       "DIR: the tensor \"vit.embeddings.position_embeddings\" has the shape (17, 64), need 3 "
       "axes"},
      {"a patch embedding of one axis", "vit_hf", tensors([](Tensors& t) {
         t["vit.embeddings.patch_embeddings.projection.weight"] = tensor::ones({64});
       }),
       "DIR: the tensor \"vit.embeddings.patch_embeddings.projection.weight\" has the shape (64,), "
       "need 4 axes"},
      {"a classifier of one axis", "vit_hf",
       tensors([](Tensors& t) { t["classifier.weight"] = tensor::ones({11}); }),
       "DIR: the tensor \"classifier.weight\" has the shape (11,), need 2 axes"},
      {"a layer is missing", "vit_hf", tensors([](Tensors& t) {
         std::erase_if(t,
                       [](const auto& x) { return x.first.starts_with("vit.encoder.layer.1."); });
       }),
       "DIR/config.json: num_hidden_layers: is 3, but the layers in DIR give 1"},
      {"no layers", "vit_hf", tensors([](Tensors& t) {
         std::erase_if(t, [](const auto& x) { return x.first.starts_with("vit.encoder."); });
       }),
       "DIR: has \"vit.embeddings.patch_embeddings.projection.weight\" but no layers under "
       "\"vit.encoder.layer.0.\" or \"vit.layers.0.\""},
      {"whole numbers", "vit_hf",
       tensors([=](Tensors& t) { t[query] = t[query].astype(tensor::i64); }),
       "load: DIR does not fit the model: 1 problem:\n  wrong type: "
       "\"vit.encoder.layer.0.attention.attention.query.weight\" is i64, need a floating type"},
      {"truth values", "vit_hf",
       tensors([](Tensors& t) { t["vit.layernorm.bias"] = tensor::zeros({64}, tensor::boolean); }),
       "load: DIR does not fit the model: 1 problem:\n  wrong type: \"vit.layernorm.bias\" is "
       "bool, need a floating type"},
      {"without elements", "vit_hf", tensors([](Tensors& t) {
         t["classifier.weight"] = tensor::zeros({11, 0});
       }),
       "DIR: the tensor \"classifier.weight\" has the shape (11, 0), need at least one element"},
      {"a million million classes of nothing", "vit_hf",
       weights(R"({"classifier.weight":{"dtype":"F32","shape":[1000000000000,0],)"
               R"("data_offsets":[0,0]}})"),
       "DIR: the tensor \"classifier.weight\" has the shape (1000000000000, 0), need at least one "
       "element"},
      {"more layers than any model has", "vit_hf", tensors([](Tensors& t) {
         for (int i = 3; i < 1100; ++i)
           t["vit.encoder.layer." + std::to_string(i) + ".x"] = tensor::ones({1});
       }),
       "DIR: has more than 1000 parts \"vit.encoder.layer.N\": no model of this kind is so deep"},
      {"a name of a megabyte", "vit_hf",
       tensors([](Tensors& t) { t[std::string(1 << 20, 'x')] = tensor::ones({1}); }),
       std::string("load: DIR does not fit the model: 1 problem:\n  unexpected: \"") +
           std::string(387, 'x') + "..."},
      {"no tensors", "vit_hf", weights("{}"),
       "DIR: does not hold a ViT: there is neither a tensor "
       "\"...embeddings.patch_embeddings.projection.weight\" (Hugging Face) nor "
       "\"patch_embed.proj.weight\" (timm)"},
      {"another model", "vit_hf", tensors([](Tensors& t) {
         t = {{"conv1.weight", tensor::ones({8, 3, 7, 7})}};
       }),
       "DIR: does not hold a ViT: there is neither a tensor "
       "\"...embeddings.patch_embeddings.projection.weight\" (Hugging Face) nor "
       "\"patch_embed.proj.weight\" (timm)"},
  };
}

/// Files that break the rules of the format.
inline Cases safetensors_cases() {
  const auto cut = [](std::size_t bytes) {
    return [=](const Folder& f) { f.cut("model.safetensors", bytes); };
  };
  const auto bytes = [](const std::string& text) { return file("model.safetensors", text); };
  const auto entry = [](const std::string& body, std::size_t data) {
    return weights("{\"a\":{" + body + "}}", data);
  };
  const std::string whole = R"("shape":[4],"data_offsets":[0,16])", f32 = R"("dtype":"F32",)";
  const std::string x = R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)";
  return {
      {"weights of no bytes", "vit_hf", bytes(""),
       "DIR/model.safetensors: not a safetensors file: it has 0 bytes, need 8 at least"},
      {"weights of seven bytes", "vit_hf", cut(7),
       "DIR/model.safetensors: not a safetensors file: it has 7 bytes, need 8 at least"},
      {"header cut short", "vit_hf", cut(100),
       "DIR/model.safetensors: is cut short: the header takes 6016 bytes, the file has 92 after "
       "the first 8"},
      {"data cut short", "vit_hf", cut(421000),
       "DIR/model.safetensors: is cut short: tensor \"vit.encoder.layer.2.output.dense.weight\" "
       "ends at byte 415196 of the data, of which the file has 414976"},
      {"a byte too many", "vit_hf",
       [](const Folder& f) { f.write("model.safetensors", f.read("model.safetensors") + "x"); },
       "DIR/model.safetensors: has 1 bytes after the last tensor, need none"},
      {"a header of 2^64 - 1 bytes", "vit_hf", bytes(std::string(8, '\xff') + "{}"),
       "DIR/model.safetensors: not a safetensors file: it claims a header of 18446744073709551615 "
       "bytes, the format allows 100000000"},
      {"a header over the format's limit", "vit_hf",
       bytes(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
       "DIR/model.safetensors: not a safetensors file: it claims a header of 100000001 bytes, the "
       "format allows 100000000"},
      {"a header of nothing", "vit_hf", bytes(std::string(8, '\0')),
       "DIR/model.safetensors: not a safetensors file: the header does not begin with {"},
      {"a pickle", "vit_hf",
       bytes(std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15)),
       "DIR/model.safetensors: not a safetensors file: it claims a header of 5088219219985302144 "
       "bytes, the format allows 100000000"},
      {"header not JSON", "vit_hf", weights("{\"a\": nonsense}"),
       "DIR/model.safetensors: header: not valid JSON: line 1, column 8: syntax error while "
       "parsing value - invalid literal; last read: '\"a\": no'"},
      {"header begins with a space", "vit_hf", weights(" {}"),
       "DIR/model.safetensors: not a safetensors file: the header does not begin with {"},
      {"a tensor twice", "vit_hf", weights(x + x.substr(1) + "\"b\":0}", 16),
       "DIR/model.safetensors: header: line 1: the key \"a\" appears twice in one object"},
      {"a key twice", "vit_hf", entry(f32 + R"("dtype":"U8",)" + whole, 16),
       "DIR/model.safetensors: header: line 1: the key \"dtype\" appears twice in one object"},
      {"an unknown key", "vit_hf", entry(f32 + R"("strides":[1],)" + whole, 16),
       "DIR/model.safetensors: tensor \"a\": got the key \"strides\", need exactly dtype, shape "
       "and data_offsets"},
      {"no dtype", "vit_hf", entry(whole, 16),
       "DIR/model.safetensors: tensor \"a\": the key dtype is missing"},
      {"a size that a dtype that is not held has not", "vit_hf",
       entry(R"("dtype":"F8_E4M3",)" + whole, 16),
       "DIR/model.safetensors: tensor \"a\": the shape (4,) of F8_E4M3 takes 4 bytes, but "
       "data_offsets are 0 and 16"},
      {"an unknown dtype", "vit_hf", entry(R"("dtype":"F33",)" + whole, 16),
       "DIR/model.safetensors: tensor \"a\": has the unknown dtype \"F33\", need one of BOOL U8 I8 "
       "I16 I32 I64 F16 BF16 F32 F64"},
      {"a negative shape", "vit_hf", entry(f32 + R"("shape":[-4],"data_offsets":[0,16])", 16),
       "DIR/model.safetensors: tensor \"a\": shape holds something other than whole numbers from 0 "
       "to 2^63 - 1"},
      {"a fractional shape", "vit_hf", entry(f32 + R"("shape":[4.5],"data_offsets":[0,16])", 16),
       "DIR/model.safetensors: tensor \"a\": shape holds something other than whole numbers from 0 "
       "to 2^63 - 1"},
      {"more axes than are held", "vit_hf",
       entry(f32 + R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4],"data_offsets":[0,16])", 16),
       "DIR: does not hold a ViT: there is neither a tensor "
       "\"...embeddings.patch_embeddings.projection.weight\" (Hugging Face) nor "
       "\"patch_embed.proj.weight\" (timm)"},
      {"a product that wraps to 0", "vit_hf",
       entry(f32 + R"("shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
       "DIR/model.safetensors: tensor \"a\": the shape (4294967296, 4294967296) takes more than "
       "2^63 bytes"},
      {"bytes that wrap to 16", "vit_hf",
       entry(f32 + R"("shape":[4611686018427387908],"data_offsets":[0,16])", 16),
       "DIR/model.safetensors: tensor \"a\": the shape (4611686018427387908,) takes more than 2^63 "
       "bytes"},
      {"offsets of another size", "vit_hf", entry(f32 + R"("shape":[4],"data_offsets":[0,12])", 12),
       "DIR/model.safetensors: tensor \"a\": the shape (4,) of F32 takes 16 bytes, but "
       "data_offsets are 0 and 12"},
      {"offsets backwards", "vit_hf", entry(f32 + R"("shape":[4],"data_offsets":[16,0])", 16),
       "DIR/model.safetensors: tensor \"a\": the shape (4,) of F32 takes 16 bytes, but "
       "data_offsets are 16 and 0"},
      {"offsets beyond the file", "vit_hf", entry(f32 + whole, 8),
       "DIR/model.safetensors: is cut short: tensor \"a\" ends at byte 16 of the data, of which "
       "the file has 8"},
      {"a huge claim", "vit_hf",
       entry(f32 + R"("shape":[1099511627776],"data_offsets":[0,4398046511104])", 16),
       "DIR/model.safetensors: is cut short: tensor \"a\" ends at byte 4398046511104 of the data, "
       "of which the file has 16"},
      {"overlapping tensors", "vit_hf",
       weights(x + R"("b":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})", 24),
       "DIR/model.safetensors: tensor \"b\" begins at byte 8 of the data, inside tensor \"a\", "
       "which ends at 16"},
      {"a gap between tensors", "vit_hf",
       weights(x + R"("b":{"dtype":"F32","shape":[4],"data_offsets":[24,40]}})", 40),
       "DIR/model.safetensors: tensor \"b\" begins at byte 24 of the data, but 16 is expected: no "
       "bytes may lie between tensors"},
      {"a gap before the first tensor", "vit_hf",
       entry(f32 + R"("shape":[4],"data_offsets":[8,24])", 24),
       "DIR/model.safetensors: tensor \"a\" begins at byte 8 of the data, but 0 is expected: no "
       "bytes may lie between tensors"},
      {"metadata of numbers", "vit_hf", weights(R"({"__metadata__":{"format":1}})"),
       "DIR/model.safetensors: __metadata__: the value of \"format\" is not a string"},
      {"a truth value of 2", "vit_hf",
       bytes(safetensors_text(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})") +
             "\x02"),
       "DIR/model.safetensors: tensor \"a\": element 0 of bool is 2, need 0 or 1"},
  };
}

/// Weights that are not there, or in other files.
inline Cases file_cases() {
  const auto only = [](const char* name) {
    return [=](const Folder& f) { std::filesystem::rename(f.at("model.safetensors"), f.at(name)); };
  };
  return {
      {"no weights", "vit_hf", [](const Folder& f) { f.remove("model.safetensors"); },
       "DIR: has neither model.safetensors nor model.safetensors.index.json"},
      {"PyTorch's weights", "vit_hf", only("pytorch_model.bin"),
       "DIR: has no model.safetensors but pytorch_model.bin: convert it with "
       "scripts/convert_pth.py"},
      {"PyTorch's weights among a training program's files", "vit_hf",
       [=](const Folder& f) {
         only("pytorch_model.bin")(f);
         f.write("optimizer.pt", "");
       },
       "DIR: has no model.safetensors but pytorch_model.bin: convert it with "
       "scripts/convert_pth.py"},
      {"PyTorch's shards", "vit_hf",
       [=](const Folder& f) {
         only("pytorch_model-00001-of-00002.bin")(f);
         f.write("pytorch_model.bin.index.json", "{}");
       },
       "DIR: has no model.safetensors but pytorch_model.bin.index.json: convert it with "
       "scripts/convert_pth.py"},
      {"a checkpoint of training", "vit_hf", only("epoch-3.pth"),
       "DIR: has no model.safetensors but epoch-3.pth: convert it with scripts/convert_pth.py"},
      {"weights of another name", "vit_hf", only("weights.safetensors"),
       "DIR: has neither model.safetensors nor model.safetensors.index.json"},
      {"weights in a folder", "vit_hf",
       [](const Folder& f) {
         f.remove("model.safetensors");
         std::filesystem::create_directory(f.at("model.safetensors"));
       },
       "DIR/model.safetensors: is a folder, need a file"},
  };
}

inline Cases shard_cases() {
  const auto named = [](const std::string& name) {
    return shards(R"({"weight_map": {"vit.scale": ")" + name + "\", MAP}}");
  };
  return {
      {"a shard above the folder", "vit_hf", named("../a.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"../a.safetensors\", need "
       "the name of a .safetensors file in the same folder"},
      {"a shard below the folder", "vit_hf", named("more/a.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"more/a.safetensors\", "
       "need the name of a .safetensors file in the same folder"},
      {"an absolute shard", "vit_hf", named("/etc/a.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"/etc/a.safetensors\", "
       "need the name of a .safetensors file in the same folder"},
      {"a shard of another system", "vit_hf", named("C:\\\\a.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"C:\\\\a.safetensors\", "
       "need the name of a .safetensors file in the same folder"},
      {"the folder above", "vit_hf", named(".."),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"..\", need the name of a "
       ".safetensors file in the same folder"},
      {"a shard without a name", "vit_hf", named(""),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"\", need the name of a "
       ".safetensors file in the same folder"},
      {"a shard with a zero byte", "vit_hf", named("a.safetensors\\u0000.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got "
       "\"a.safetensors\\u0000.safetensors\", need the name of a .safetensors file in the same "
       "folder"},
      {"a shard of another format", "vit_hf", named("pytorch_model.bin"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got \"pytorch_model.bin\", "
       "need the name of a .safetensors file in the same folder"},
      {"a shard that is not there", "vit_hf", named("c.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": there is no file "
       "DIR/c.safetensors"},
      {"a link to a shard of another model", "vit_hf",
       [=](const Folder& f) {
         named("c.safetensors")(f);
         std::filesystem::create_symlink(golden::folder("vit_hf") + "/model.safetensors",
                                         f.at("c.safetensors"));
       },
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": DIR/c.safetensors holds no "
       "tensor of this name"},
      {"a shard that is a broken link", "vit_hf",
       [=](const Folder& f) {
         named("c.safetensors")(f);
         std::filesystem::create_symlink(f.at("nowhere"), f.at("c.safetensors"));
       },
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": there is no file "
       "DIR/c.safetensors"},
      {"a shard that is a folder", "vit_hf",
       [=](const Folder& f) {
         named("c.safetensors")(f);
         std::filesystem::create_directory(f.at("c.safetensors"));
       },
       "DIR/c.safetensors: is a folder, need a file"},
      {"a tensor that its shard lacks", "vit_hf", named("a.safetensors"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": DIR/a.safetensors holds no "
       "tensor of this name"},
      {"a tensor in two shards", "vit_hf",
       [](const Folder& f) {
         f.shard();
         tensor::save_safetensors(f.at("a.safetensors"), [&] {
           Tensors t =
               tensor::load_safetensors(f.at("a.safetensors"), tensor::FileAccess::read).tensors;
           t["vit.layernorm.bias"] = tensor::zeros({64});
           return t;
         }());
       },
       "DIR/a.safetensors: holds the tensor \"vit.layernorm.bias\", which "
       "model.safetensors.index.json does not place there"},
      {"a tensor that the index forgets", "vit_hf",
       [](const Folder& f) {
         f.shard();
         f.replace("model.safetensors.index.json", "\"classifier.bias\": \"a.safetensors\", ", "");
       },
       "DIR/a.safetensors: holds the tensor \"classifier.bias\", which "
       "model.safetensors.index.json does not place there"},
      {"a shard cut short", "vit_hf",
       [](const Folder& f) { f.shard(), f.cut("b.safetensors", 3000); },
       "DIR/b.safetensors: is cut short: tensor "
       "\"vit.encoder.layer.1.attention.output.dense.bias\" ends at byte 256 of the data, of which "
       "the file has 32"},
      {"index empty", "vit_hf", shards(""),
       "DIR/model.safetensors.index.json: not valid JSON: line 1, column 1: syntax error while "
       "parsing value - unexpected end of input; expected '[', '{', or a literal"},
      {"index without a map", "vit_hf", shards("{\"weight_mpa\": {MAP}}"),
       "DIR/model.safetensors.index.json: the key \"weight_map\" is missing; did you mean "
       "\"weight_mpa\"?"},
      {"map a list", "vit_hf", shards("{\"weight_map\": [{MAP}]}"),
       "DIR/model.safetensors.index.json: weight_map: got an array of 1, need an object"},
      {"map empty", "vit_hf", shards("{\"weight_map\": {}}"),
       "DIR/model.safetensors.index.json: weight_map: lists no tensors"},
      {"map of numbers", "vit_hf", shards("{\"weight_map\": {\"vit.scale\": 1}}"),
       "DIR/model.safetensors.index.json: weight_map.\"vit.scale\": got 1, need a string"},
      {"a tensor placed twice", "vit_hf",
       shards("{\"weight_map\": {MAP, \"classifier.bias\": \"b.safetensors\"}}"),
       "DIR/model.safetensors.index.json: line 1: the key \"classifier.bias\" appears twice in one "
       "object"},
  };
}

}  // namespace malformed
