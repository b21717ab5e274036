// Class names from config.json, and what the outputs stand for.
#include "models/common/labels.h"

#include <charconv>

#include "models/common/text.h"
#include "tensor/error.h"

namespace models {

using tensor::Json;

namespace {

/// The class number that a key of id2label stands for.
std::int64_t class_number(const std::string& key, std::int64_t classes, const std::string& where) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (error != std::errc() || end != key.data() + key.size() || number < 0 || number >= classes ||
      std::to_string(number) != key)
    tensor::fail(where, "got the key \"", key, "\", need a class number from \"0\" to \"",
                 classes - 1, "\"");
  return number;
}

void require_count(const Json& names, std::int64_t classes) {
  if (static_cast<std::int64_t>(names.size()) != classes)
    tensor::fail(names.path(), "names ", names.size(), " classes, but the model has ", classes);
}

}  // namespace

std::vector<std::string> read_labels(const Json& config, std::int64_t classes) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < classes; ++i) labels.push_back("class " + std::to_string(i));
  if (config.has("id2label")) {
    const Json names = config["id2label"];
    if (!names.is_object())
      tensor::fail(names.path(), "need an object of class numbers and names {\"0\": \"cat\"}");
    require_count(names, classes);
    for (const std::string& key : names.keys())
      labels[static_cast<std::size_t>(class_number(key, classes, names.path()))] =
          names[key].text();
  } else if (config.has("label_names")) {
    const Json names = config["label_names"];
    if (!names.is_array()) tensor::fail(names.path(), "need a list of names");
    require_count(names, classes);
    for (std::size_t i = 0; i < names.size(); ++i) labels[i] = names[i].text();
  }
  return labels;
}

Scores read_scores(const Json& config, std::int64_t classes) {
  const std::string type = config.text("problem_type", "");
  if (type == "regression") return Scores::numbers;
  if (type == "multi_label_classification") return Scores::sigmoid;
  if (type != "" && type != "single_label_classification")
    tensor::fail(config["problem_type"].path(), "got ", json_text(type),
                 ", need single_label_classification, multi_label_classification or regression");
  return classes == 1 ? Scores::sigmoid : Scores::softmax;
}

}  // namespace models
