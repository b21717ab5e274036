// Sizes within bounds, so that a folder's claims cost neither memory nor time.
#include "models/common/model_settings.h"

#include <algorithm>

#include "models/common/huggingface.h"

namespace models {

using tensor::Json;

namespace {

/// What transformers puts on top of a backbone, and so beside it.
constexpr std::string_view kHeads[] = {"classifier.", "visual_projection.", "decode_head."};

std::int64_t bounded(const Json& value, std::int64_t most) {
  const std::int64_t number = value.integer();
  if (number < 1 || number > most)
    tensor::fail(value.path(), "got ", number, ", need a whole number from 1 to ", most);
  return number;
}

}  // namespace

std::int64_t positive_setting(const Json& settings, std::string_view key, std::int64_t fallback,
                              std::int64_t most) {
  return settings.has(key) ? bounded(settings[key], most) : fallback;
}

std::vector<std::int64_t> positive_settings(const Json& settings, std::string_view key,
                                            const std::vector<std::int64_t>& fallback,
                                            std::size_t count, std::int64_t most) {
  std::vector<std::int64_t> numbers = fallback;
  std::string where = settings.path();
  if (settings.has(key)) {
    const Json value = settings[key];
    where = value.path();
    if (!value.is_array()) tensor::fail(where, "need a list of whole numbers");
    if (value.size() < 1 || value.size() > static_cast<std::size_t>(kMostStages))
      tensor::fail(where, "got ", value.size(), " numbers, need 1 to ", kMostStages);
    numbers.clear();
    for (std::size_t i = 0; i < value.size(); ++i) numbers.push_back(bounded(value[i], most));
  }
  if (count > 0 && numbers.size() != count)
    tensor::fail(where, "has ", numbers.size(), " numbers of \"", key, "\", need ", count,
                 ": one a stage");
  return numbers;
}

Size size_setting(const Json& value) {
  if (!value.is_array()) return {value.integer(), value.integer()};
  const tensor::Ints sizes = value.ints();
  if (sizes.size() != 2)
    tensor::fail(value.path(), "got ", sizes.size(), " numbers, need one or [height, width]");
  return {sizes[0], sizes[1]};
}

Size size_setting(const Json& settings, std::string_view key, Size fallback) {
  if (!settings.has(key)) return fallback;
  const Size size = size_setting(settings[key]);
  constexpr std::int64_t kMost = 1 << 20;
  if (std::min(size.height, size.width) < 1 || std::max(size.height, size.width) > kMost)
    tensor::fail(settings[key].path(), "got ", size.height, " x ", size.width,
                 ", need whole numbers from 1 to ", kMost);
  return size;
}

double ratio_setting(const Json& settings, std::string_view key, double fallback) {
  const double ratio = settings.number(key, fallback);
  constexpr double kMost = 64;
  if (!(ratio > 0 && ratio <= kMost))
    tensor::fail(settings[key].path(), "got ", ratio, ", need a number above 0 and at most ",
                 kMost);
  return ratio;
}

void check_heads(const Json& settings, std::int64_t heads, std::int64_t width) {
  if (heads < 1 || width % heads != 0)
    tensor::fail(settings.path(), "gives ", heads, " attention heads, need a divisor of the width ",
                 width);
}

std::int64_t classes_of(const Checkpoint& checkpoint) {
  const std::string name = "classifier.weight";
  if (!checkpoint.has(name)) return 0;
  const std::int64_t classes = checkpoint.at(name, 2).shape(0);
  checkpoint.agree(checkpoint.config, "num_labels", classes, "weights of the classifier");
  return classes;
}

void load_named(const std::vector<tensor::nn::Parameter>& parameters, const Checkpoint& checkpoint,
                const std::string& beginning, const Naming& naming) {
  const auto first = checkpoint.tensors.lower_bound(beginning);
  const bool has_it = first != checkpoint.tensors.end() && first->first.starts_with(beginning);
  const std::string prefix = has_it ? beginning : "";
  const auto source = [&](const std::string& path) {
    tensor::nn::Source found = naming.rename ? naming.rename(path) : tensor::nn::Source{path};
    const auto is_in = [&](std::string_view head) { return found.name.starts_with(head); };
    if (std::ranges::none_of(kHeads, is_in)) found.name = prefix + found.name;
    return found;
  };
  const auto unneeded = [&](const std::string& name) {
    return naming.ignore &&
           naming.ignore(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
  };
  tensor::nn::load(parameters, checkpoint.tensors,
                   {.file = checkpoint.folder, .rename = source, .ignore = unneeded});
}

void read_task(VisionModel& model, const Checkpoint& checkpoint, std::int64_t classes,
               std::string_view processor, bool any_size) {
  if (classes > 0) model.labels = read_labels(checkpoint.config, classes);
  model.scores = read_scores(checkpoint.config, classes);
  model.preparation =
      preparation(huggingface_preprocessing(checkpoint, model.image, processor, any_size));
}

}  // namespace models
