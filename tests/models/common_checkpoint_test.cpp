// Checkpoint folders: single files, shards and wrappers; what is refused is in malformed_test.cpp.
#include "models/common/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "models/common/labels.h"
#include "models/vit/vit_checkpoint.h"
#include "tensor/ops.h"
#include "tests/error_of.h"
#include "tests/models/folder.h"
#include "tests/temporary_folder.h"

namespace {

using models::open_checkpoint;
using tensor::Json;
using tensor::check::error_of;
using tensor::check::TemporaryFolder;

TEST(Checkpoint, OpensAFolder) {
  const TemporaryFolder home;
  folder::small_vit().write(home);
  const models::Checkpoint checkpoint = open_checkpoint(home.path());
  EXPECT_EQ(checkpoint.config["hidden_size"].integer(), 8);
  ASSERT_TRUE(checkpoint.preprocessor);
  EXPECT_EQ(checkpoint.preprocessor->integer("size", 0), 8);
  EXPECT_EQ(checkpoint.tensors.size(), folder::small_vit().tensors.size());
  EXPECT_TRUE(checkpoint.has("classifier.bias"));
  EXPECT_EQ(checkpoint.count("vit.encoder.layer."), 2);
  EXPECT_EQ(checkpoint.count("vit.decoder.layer."), 0);
  EXPECT_EQ(checkpoint.at("classifier.weight", 2).shape(), (tensor::Shape{3, 8}));
}

TEST(Checkpoint, PutsShardsTogether) {
  const TemporaryFolder home;
  folder::Checkpoint whole = folder::small_vit();
  std::map<std::string, tensor::Tensor> shards[2];
  std::string map;
  for (const auto& [name, value] : whole.tensors) {
    const int shard = name.starts_with("vit.encoder") ? 1 : 0;
    shards[shard][name] = value;
    map += (map.empty() ? "" : ", ") +
           ("\"" + name + "\": \"part-" + std::to_string(shard) + ".safetensors\"");
  }
  home.write("config.json", folder::Checkpoint::json(whole.config));
  home.write("model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  tensor::save_safetensors(home / "part-0.safetensors", shards[0]);
  tensor::save_safetensors(home / "part-1.safetensors", shards[1]);
  const models::Checkpoint checkpoint = open_checkpoint(home.path());
  ASSERT_EQ(checkpoint.tensors.size(), whole.tensors.size());
  for (const auto& [name, value] : whole.tensors)
    EXPECT_TRUE(tensor::all(checkpoint.tensors.at(name) == value).item<bool>()) << name;
  EXPECT_FALSE(checkpoint.preprocessor);
}

// A tensor of a type that the library lacks is an error by its name where it is needed, and none
// where it is not.
TEST(Checkpoint, NamesAForeignTensorThatIsNeeded) {
  const TemporaryFolder home;
  folder::Checkpoint c = folder::small_vit();
  c.write(home);
  const std::string path = home / "model.safetensors";
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (const std::string name : {"classifier.weight", "vit.encoder.layer.1.output.dense.bias"}) {
    std::string changed = bytes;
    const std::size_t entry = changed.find('"' + name + '"'), at = changed.find("\"F32\"", entry);
    ASSERT_NE(at, std::string::npos) << name;
    changed.replace(at, 5, "\"C64\"");
    // Half as many elements of twice the size.
    const std::size_t end = changed.find(']', changed.find("\"shape\"", entry)),
                      begin = changed.find_last_of("[,", end) + 1;
    const std::string extent = changed.substr(begin, end - begin);
    ASSERT_EQ(std::stoll(extent) % 2, 0) << extent;
    std::string half = std::to_string(std::stoll(extent) / 2);
    half.resize(extent.size(), ' ');
    changed.replace(begin, extent.size(), half);
    std::ofstream(path, std::ios::binary) << changed;
    const models::Checkpoint checkpoint = open_checkpoint(home.path());
    EXPECT_TRUE(checkpoint.has(name));
    EXPECT_NE(error_of([&] {
                models::vit::load_vit(checkpoint);
              }).find("tensor \"" + name + "\": has the dtype C64, which this library does not"),
              std::string::npos)
        << name << ": " << error_of([&] { models::vit::load_vit(checkpoint); });
  }
}

TEST(Checkpoint, StripsWrappersThatAllNamesHave) {
  const TemporaryFolder home;
  folder::Checkpoint c;
  c.tensors = {{"state_dict.module.model.a", tensor::zeros({1})},
               {"state_dict.module.b", tensor::zeros({1})}};
  c.write(home);
  const models::Checkpoint checkpoint = open_checkpoint(home.path());
  EXPECT_TRUE(checkpoint.has("model.a"));  // "b" has no "model.", so it is part of the name
  EXPECT_TRUE(checkpoint.has("b"));
}

TEST(Checkpoint, StripsWhatTrainingProgramsPutBeforeNames) {
  for (const std::string beginning : {"module.", "model.", "_orig_mod.", "net.",
                                      "module._orig_mod.model.", "model_ema.module."}) {
    const TemporaryFolder home;
    const folder::Checkpoint plain = folder::small_vit();
    folder::Checkpoint c = plain;
    c.tensors.clear();
    for (const auto& [name, value] : plain.tensors) c.tensors[beginning + name] = value;
    c.tensors["n_averaged"] = tensor::zeros({}, tensor::i64);  // of averaged weights
    c.write(home);
    const models::Checkpoint checkpoint = open_checkpoint(home.path());
    EXPECT_EQ(checkpoint.tensors.size(), plain.tensors.size()) << beginning;
    for (const auto& [name, value] : plain.tensors) EXPECT_TRUE(checkpoint.has(name)) << name;
  }
}

TEST(Checkpoint, StripsABeginningThatAllNamesHave) {
  models::Checkpoint c{"DIR", Json::parse("{}", "config.json"), {}, {}};
  c.tensors = {{"backbone.a", tensor::zeros({1})}, {"backbone.b", tensor::zeros({1})}};
  EXPECT_TRUE(c.stripped("backbone.").has("a"));
  c.tensors["head"] = tensor::zeros({1});
  EXPECT_TRUE(c.stripped("backbone.").has("backbone.a"));
}

TEST(Checkpoint, ShardsMayBeLinksAsInTheHubsCache) {
  const TemporaryFolder home;
  const folder::Checkpoint whole = folder::small_vit();
  const std::string snapshot = home / "snapshots/1";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(home / "blobs");
  std::map<std::string, tensor::Tensor> shards[2];
  std::string map;
  for (const auto& [name, value] : whole.tensors) {
    const std::size_t shard = name.starts_with("vit.encoder") ? 1 : 0;
    shards[shard][name] = value;
    map += (map.empty() ? "" : ", ") +
           ("\"" + name + "\": \"part-" + std::to_string(shard) + ".safetensors\"");
  }
  tensor::save_safetensors(home / "blobs/a0", shards[0]);
  tensor::save_safetensors(home / "blobs/a1", shards[1]);
  home.write("blobs/a2", folder::Checkpoint::json(whole.config));
  home.write("blobs/a3", "{\"weight_map\": {" + map + "}}");
  for (const auto& [name, blob] : {std::pair("part-0.safetensors", "a0"),
                                   {"part-1.safetensors", "a1"},
                                   {"config.json", "a2"},
                                   {"model.safetensors.index.json", "a3"}})
    std::filesystem::create_symlink(std::string("../../blobs/") + blob, snapshot + "/" + name);
  EXPECT_EQ(open_checkpoint(snapshot).tensors.size(), whole.tensors.size());
  EXPECT_EQ(error_of([&] { open_checkpoint(home.path()); }),
            home.path() + ": has no config.json, but snapshots of Hugging Face's cache: give " +
                snapshot);
}

TEST(Checkpoint, TellsHowToDownloadWhatTheHubHas) {
  EXPECT_EQ(error_of([] { open_checkpoint("google/vit-base-patch16-224"); }),
            "google/vit-base-patch16-224: there is no such folder; if it is a model on Hugging "
            "Face's hub, download it with \"hf download google/vit-base-patch16-224 --local-dir "
            "vit-base-patch16-224\" and give the folder vit-base-patch16-224");
  for (const char* path : {"nowhere", "a/b/c", "./x", "../x", "a b/c", "x/"})
    EXPECT_EQ(error_of([&] { open_checkpoint(path); }),
              std::string(path) + ": there is no such folder");
}

TEST(Checkpoint, SaysWhatATensorShouldBe) {
  const TemporaryFolder home;
  folder::small_vit().write(home);
  const models::Checkpoint checkpoint = open_checkpoint(home.path());
  EXPECT_EQ(error_of([&] { checkpoint.at("x", 1); }), home.path() + ": has no tensor \"x\"");
  EXPECT_EQ(error_of([&] { checkpoint.at("classifier.bias", 2); }),
            home.path() + ": the tensor \"classifier.bias\" has the shape (3,), need 2 axes");
  checkpoint.agree(checkpoint.config, "hidden_size", 8, "tensors");
  checkpoint.agree(checkpoint.config, "no_such_key", 8, "tensors");
  EXPECT_EQ(
      error_of([&] { checkpoint.agree(checkpoint.config, "hidden_size", 9, "tensors"); }),
      home / "config.json" + ": hidden_size: is 8, but the tensors in " + home.path() + " give 9");
}

TEST(Checkpoint, NeedsAFolderWithAConfig) {
  const TemporaryFolder home;
  home.write("file", "text");
  const std::string absent = home / "absent", file = home / "file";
  EXPECT_EQ(error_of([&] { open_checkpoint(absent); }), absent + ": there is no such folder");
  EXPECT_EQ(error_of([&] { open_checkpoint(file); }),
            file + ": is a file: need the folder that holds config.json and model.safetensors");
  EXPECT_EQ(error_of([&] { open_checkpoint(home.path()); }),
            home.path() +
                ": has no config.json: a checkpoint folder has config.json and model.safetensors");
}

TEST(Labels, ComeFromTheConfig) {
  using models::read_labels;
  using Names = std::vector<std::string>;
  const auto parse = [](const char* text) { return Json::parse(text, "config.json"); };
  EXPECT_EQ(read_labels(parse("{}"), 2), (Names{"class 0", "class 1"}));
  EXPECT_EQ(read_labels(parse(R"({"id2label": {"1": "b", "0": "a"}})"), 2), (Names{"a", "b"}));
  EXPECT_EQ(read_labels(parse(R"({"label_names": ["a", "b"]})"), 2), (Names{"a", "b"}));
}

}  // namespace
