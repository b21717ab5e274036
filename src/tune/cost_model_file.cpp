#include "src/tune/cost_model_file.h"

#include <algorithm>
#include <cstdio>

#include "src/core/checksum.h"
#include "src/io/atomic_file.h"
#include "src/io/source.h"
#include "src/kernels/features.h"
#include "src/tune/cost_model.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// A file: "tensor cost model 3", the checksum of all that follows, how many features, their
// definition, the trees as XGBoost writes them; a line each, checksums as eight hexadecimal digits.
constexpr std::string_view kMagic = "tensor cost model 3\n";

// "version 1 list 0badcafe": the checksum is that of the features' names in their order. With other
// names, or names that mean something else, the same number says something else.
std::string features_definition() {
  std::string names;
  for (const std::string& name : feature_names()) names += name + '\n';
  return "version " + std::to_string(kFeaturesVersion) + " list " + crc32_digits(names);
}

// Up to the next newline, which is passed over.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::string with_header(std::string_view trees, std::size_t columns) {
  std::string rest = std::to_string(columns) + '\n' + features_definition() + '\n';
  rest += trees;
  return std::string(kMagic) + crc32_digits(rest) + '\n' + rest;
}

std::string_view without_header(std::string_view file, const std::string& name,
                                std::size_t columns) {
  if (!file.starts_with(kMagic))
    fail(name, "is not a cost model of this version, need a file that tune_model --save wrote");
  std::string_view rest = file.substr(kMagic.size());
  const std::string_view sum = take_line(rest);
  if (sum != crc32_digits(rest))
    fail(name, "is damaged: its checksum is not that of its content; train it again");
  const std::string_view count = take_line(rest), definition = take_line(rest);
  if (count != std::to_string(columns) || definition != features_definition())
    fail(name, "has learned from ", count, " features (", definition, "), need one of ", columns,
         " (", features_definition(),
         "): the features have changed, train it again with tune_model --save");
  return rest;
}

void CostModel::save(const std::string& path) const {
  const std::string bytes = to_bytes(path);
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

CostModel CostModel::load(const std::string& path, std::uint64_t seed, std::size_t columns) {
  const Source file = Source::open(path);
  return from_bytes(file.read_text(0, file.size()), path, seed, columns);
}

CostModel CostModel::shipped(const std::string& device, std::uint64_t seed) {
  std::string wanted;
  for (const char c : device) wanted += is_digit(c) || is_letter(c) ? lower_case(c) : '-';
  wanted += ".model";
  if (can_learn())
    for (const auto& [name, bytes] : shipped_models())
      if (name == wanted) return from_bytes(bytes, wanted, seed);
  return CostModel(seed);
}

std::size_t CostModel::feature_columns() { return feature_names().size() + 1; }

}  // namespace tensor
