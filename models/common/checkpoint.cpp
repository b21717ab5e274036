// Opening a checkpoint folder. The names in model.safetensors.index.json come from whoever made the
// folder, so they may only point at files inside it.
#include "models/common/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "models/common/text.h"
#include "tensor/io.h"
#include "tensor/text.h"

namespace models {

namespace fs = std::filesystem;
using tensor::Json;
using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
// A layer costs kilobytes, its name in a hostile file a few bytes.
constexpr std::int64_t kMostParts = 1000;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// A shard's path, if the name is that of a file in this very folder. The file may be a link, as
/// all are in Hugging Face's cache: a downloaded text cannot make one, only who set up the folder.
fs::path shard_path(const fs::path& folder, const Json& entry) {
  const std::string name = entry.text();
  const bool plain = !name.empty() && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
  if (!plain || !name.ends_with(".safetensors"))
    tensor::fail(entry.path(), "got ", json_text(name),
                 ", need the name of a .safetensors file in the same folder");
  const fs::path path = folder / name;
  if (!is_there(path)) tensor::fail(entry.path(), "there is no file ", path.string());
  return path;
}

/// All shards, each of which must hold exactly the tensors that the index says it holds.
StateDict load_shards(const fs::path& folder) {
  const Json index = Json::load((folder / kIndex).string());
  const Json map = index["weight_map"];
  std::map<std::string, std::set<std::string>> promised;  // by shard
  std::map<std::string, fs::path> paths;
  for (const std::string& name : map.keys()) {
    const std::string shard = map[name].text();
    if (!paths.contains(shard)) paths[shard] = shard_path(folder, map[name]);
    promised[shard].insert(name);
  }
  if (paths.empty()) tensor::fail(map.path(), "lists no tensors");
  StateDict tensors;
  for (const auto& [shard, path] : paths) {
    tensor::Safetensors file = tensor::load_safetensors(path.string());
    for (const std::string& name : promised[shard])
      if (!file.tensors.contains(name) && !file.tensors.foreign.contains(name))
        tensor::fail(map[name].path(), path.string(), " holds no tensor of this name");
    for (const auto& [name, value] : file.tensors)
      if (!promised[shard].contains(name))
        tensor::fail(path.string(), "holds the tensor \"", name, "\", which ", kIndex,
                     " does not place there");
    tensors.merge(file.tensors);
  }
  return tensors;
}

/// Why there is nothing to load: perhaps only PyTorch's own format.
[[noreturn]] void no_weights(const fs::path& folder) {
  constexpr const char* kShards = "pytorch_model.bin.index.json";
  std::set<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pth" || extension == ".pt")
      found.insert(entry.path().filename().string());
  }
  if (is_there(folder / kShards)) found = {kShards};
  if (found.empty()) tensor::fail(folder.string(), "has neither ", kSingle, " nor ", kIndex);
  // Beside it there may be an optimizer's state and the options of a training program.
  const bool has_model = found.contains("pytorch_model.bin");
  tensor::fail(folder.string(), "has no ", kSingle, " but ",
               has_model ? "pytorch_model.bin" : *found.begin(),
               ": convert it with scripts/convert_pth.py");
}

StateDict load_tensors(const fs::path& folder) {
  if (is_there(folder / kSingle))
    return tensor::load_safetensors((folder / kSingle).string()).tensors;
  if (is_there(folder / kIndex)) return load_shards(folder);
  no_weights(folder);
}

/// An extent beside a zero takes no bytes in the file and may be anything: sizes read from shapes
/// are only as large as the file where every tensor has elements.
void refuse_empty(const fs::path& folder, const StateDict& tensors) {
  for (const auto& [name, value] : tensors)
    if (value.size() == 0)
      tensor::fail(folder.string(), "the tensor \"", name, "\" has the shape ", value.shape(),
                   ", need at least one element");
}

/// What training programs put before all names. A name is one level of what wraps a model.
constexpr std::string_view kWrappers[] = {"state_dict.", "model.",   "module.",    "_orig_mod.",
                                          "net.",        "network.", "model_ema.", "ema_model.",
                                          "teacher.",    "student.", "encoder.",   "timm_model."};

/// A count of averaged steps, which torch.optim.swa_utils keeps beside "module.".
constexpr const char* kAveraged = "n_averaged";

/// The tensors without the beginning that all their names have, or none if one has it not.
std::optional<StateDict> without(std::string_view beginning, const StateDict& tensors) {
  StateDict bare;
  for (const auto& [name, value] : tensors) {
    if (name == kAveraged) continue;
    if (!name.starts_with(beginning)) return std::nullopt;
    bare.emplace(name.substr(beginning.size()), value);
  }
  if (bare.empty()) return std::nullopt;
  for (const auto& [name, why] : tensors.foreign)
    bare.foreign.emplace(name.starts_with(beginning) ? name.substr(beginning.size()) : name, why);
  return bare;
}

/// Takes off what all names begin with, as often as it is one of these.
StateDict strip_wrappers(StateDict tensors) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : kWrappers) {
      if (std::optional<StateDict> bare = without(wrapper, tensors)) {
        tensors = std::move(*bare);
        again = true;
      }
    }
  }
  return tensors;
}

/// Where the files are if the folder is one of the hub's cache.
std::string snapshot_hint(const fs::path& folder) {
  std::set<std::string> snapshots;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "snapshots", error))
    snapshots.insert(entry.path().string());
  return snapshots.empty() ? ""
                           : ", but snapshots of Hugging Face's cache: give " + *snapshots.begin();
}

/// What a missing folder may be: the name of a repository on Hugging Face's hub.
std::string download_hint(const std::string& folder) {
  const auto is_letter = [](char c) {
    return tensor::is_letter(c) || tensor::is_digit(c) || c == '-' || c == '_' || c == '.';
  };
  const std::size_t slash = folder.find('/');
  const std::string_view owner = std::string_view(folder).substr(0, slash);
  const std::string_view name =
      slash == folder.npos ? "" : std::string_view(folder).substr(slash + 1);
  if (owner.empty() || name.empty() || owner[0] == '.' || !std::ranges::all_of(owner, is_letter) ||
      !std::ranges::all_of(name, is_letter))
    return "";
  return "; if it is a model on Hugging Face's hub, download it with \"hf download " + folder +
         " --local-dir " + std::string(name) + "\" and give the folder " + std::string(name);
}

}  // namespace

const Tensor& Checkpoint::at(const std::string& name, int rank) const {
  const auto found = tensors.find(name);
  if (tensors.foreign.contains(name)) tensors.at(name);  // says why it is no tensor
  if (found == tensors.end()) tensor::fail(folder, "has no tensor \"", name, "\"");
  if (found->second.rank() != rank)
    tensor::fail(folder, "the tensor \"", name, "\" has the shape ", found->second.shape(),
                 ", need ", rank, " axes");
  return found->second;
}

std::int64_t Checkpoint::count(const std::string& prefix) const {
  for (std::int64_t i = 0;; ++i) {
    const std::string start = prefix + std::to_string(i) + ".";
    const auto first = tensors.lower_bound(start);
    if (first == tensors.end() || !first->first.starts_with(start)) return i;
    if (i == kMostParts)
      tensor::fail(folder, "has more than ", kMostParts, " parts \"", prefix,
                   "N\": no model of this kind is so deep");
  }
}

void Checkpoint::agree(const Json& settings, std::string_view key, std::int64_t value,
                       std::string_view proof) const {
  if (!settings.has(key) || settings[key].integer() == value) return;
  tensor::fail(settings[key].path(), "is ", settings[key].integer(), ", but the ", proof, " in ",
               folder, " give ", value);
}

Checkpoint Checkpoint::stripped(std::string_view beginning) const {
  Checkpoint result = *this;
  if (std::optional<StateDict> bare = without(beginning, tensors)) result.tensors = *bare;
  return result;
}

double Checkpoint::epsilon(std::string_view key, double fallback) const {
  const double value = config.number(key, fallback);
  if (!(value > 0 && value <= 1))
    tensor::fail(config[key].path(), "got ", value, ", need a number above 0 and at most 1");
  return value;
}

Checkpoint open_checkpoint(const std::string& folder, std::string_view config_hint, Takes takes) {
  const fs::path path = folder;
  std::error_code error;
  if (!is_there(path)) tensor::fail(folder, "there is no such folder", download_hint(folder));
  if (!fs::is_directory(path, error))
    tensor::fail(folder, "is a file: need the folder that holds config.json and ", kSingle);
  if (!is_there(path / "config.json")) {
    const std::string snapshot = snapshot_hint(path);
    tensor::fail(folder, "has no config.json", snapshot.empty() ? config_hint : snapshot);
  }
  const Json config = Json::load((path / "config.json").string());
  if (!config.is_object()) tensor::fail(config.path(), "need an object { ... }");
  std::optional<Json> preprocessor;
  if (takes == Takes::images && is_there(path / "preprocessor_config.json")) {
    preprocessor = Json::load((path / "preprocessor_config.json").string());
    if (!preprocessor->is_object()) tensor::fail(preprocessor->path(), "need an object { ... }");
  }
  StateDict tensors = load_tensors(path);
  refuse_empty(path, tensors);
  return {folder, config, preprocessor, strip_wrappers(std::move(tensors)), takes};
}

}  // namespace models
