// Malformed model folders: a good one, copied from tests/data/golden and spoiled in one place, and
// what the program that opens it must say.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"
#include "tests/models/golden.h"

namespace malformed {

using Tensors = std::map<std::string, tensor::Tensor>;

/// A length and a header as safetensors files begin, and `data` zero bytes.
inline std::string safetensors_text(const std::string& header, std::size_t data = 0) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data, '\0');
}

/// One folder that a case spoils.
class Folder {
 public:
  Folder(const std::string& path, const std::string& base) : path_(path) {
    std::filesystem::create_directories(path);
    for (const char* file : {"config.json", "preprocessor_config.json", "model.safetensors"})
      if (const std::string from = golden::folder(base) + "/" + file; std::filesystem::exists(from))
        std::filesystem::copy_file(from, at(file));
  }

  const std::string& path() const { return path_; }
  std::string at(const std::string& file) const { return path_ + "/" + file; }
  std::string read(const std::string& file) const { return tensor::testing::read_bytes(at(file)); }
  void write(const std::string& file, const std::string& text) const {
    tensor::testing::write_bytes(at(file), text);
  }
  void remove(const std::string& file) const {
    ASSERT_TRUE(std::filesystem::remove(at(file))) << file;
  }
  /// Keeps the first bytes.
  void cut(const std::string& file, std::size_t bytes) const {
    const std::string text = read(file);
    ASSERT_GT(text.size(), bytes) << file;
    write(file, text.substr(0, bytes));
  }
  /// A text that the file holds exactly once, so that no case can spoil nothing.
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read(file);
    const std::size_t found = text.find(from);
    ASSERT_NE(found, std::string::npos) << file << " lacks " << from;
    ASSERT_EQ(text.find(from, found + 1), std::string::npos) << file << " has two of " << from;
    write(file, text.replace(found, from.size(), to));
  }
  void config(const std::string& from, const std::string& to) const {
    replace("config.json", from, to);
  }
  /// Puts members at the front of the object in a file.
  void add(const std::string& file, const std::string& members) const {
    const std::string text = read(file);
    ASSERT_TRUE(text.starts_with('{')) << file;
    write(file, "{" + members + "," + text.substr(1));
  }
  void change(const std::function<void(Tensors&)>& edit) const {
    Tensors tensors = load();
    edit(tensors);
    tensor::save_safetensors(at("model.safetensors"), tensors);
  }
  /// Puts a hand-made file in place of the weights.
  void weights(const std::string& header, std::size_t data = 0) const {
    write("model.safetensors", safetensors_text(header, data));
  }
  /// Splits the weights into a.safetensors, the first half of the names, and b.safetensors; "MAP"
  /// in `index` stands for the entries of weight_map that belong to them.
  void shard(std::string index = "{\"weight_map\": {MAP}}") const {
    Tensors tensors = load(), first;
    std::string map;
    const std::size_t half = tensors.size() / 2;
    while (first.size() < half) first.insert(tensors.extract(tensors.begin()));
    for (const auto& [name, x] : first) map += "\"" + name + "\": \"a.safetensors\", ";
    for (const auto& [name, x] : tensors) map += "\"" + name + "\": \"b.safetensors\", ";
    map.resize(map.size() - 2);
    tensor::save_safetensors(at("a.safetensors"), first);
    tensor::save_safetensors(at("b.safetensors"), tensors);
    remove("model.safetensors");
    if (const std::size_t place = index.find("MAP"); place != std::string::npos)
      index.replace(place, 3, map);
    write("model.safetensors.index.json", index);
  }

 private:
  Tensors load() const {
    return tensor::load_safetensors(at("model.safetensors"), tensor::FileAccess::read).tensors;
  }

  std::string path_;
};

struct Case {
  std::string name;
  std::string base;  // of tests/data/golden; its first word names the program
  std::function<void(const Folder&)> spoil;
  std::string message;  // DIR stands for the folder
};
using Cases = std::vector<Case>;

/// Replaces a text of a file by each of these.
inline std::function<void(const Folder&)> replaced(std::string file, std::string from,
                                                   std::string to) {
  return [=](const Folder& f) { f.replace(file, from, to); };
}
inline std::function<void(const Folder&)> config(std::string from, std::string to) {
  return replaced("config.json", std::move(from), std::move(to));
}
inline std::function<void(const Folder&)> preprocessor(std::string from, std::string to) {
  return replaced("preprocessor_config.json", std::move(from), std::move(to));
}
/// A whole file.
inline std::function<void(const Folder&)> file(std::string name, std::string text) {
  return [=](const Folder& f) { f.write(name, text); };
}
inline std::function<void(const Folder&)> added(std::string name, std::string members) {
  return [=](const Folder& f) { f.add(name, members); };
}
inline std::function<void(const Folder&)> weights(std::string header, std::size_t data = 0) {
  return [=](const Folder& f) { f.weights(header, data); };
}
inline std::function<void(const Folder&)> tensors(std::function<void(Tensors&)> edit) {
  return [=](const Folder& f) { f.change(edit); };
}
inline std::function<void(const Folder&)> shards(std::string index) {
  return [=](const Folder& f) { f.shard(index); };
}

}  // namespace malformed
