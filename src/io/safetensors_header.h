// The header of a safetensors file, with every rule of the format checked
// (https://github.com/huggingface/safetensors, section "Format").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/io/source.h"
#include "src/io/widened.h"
#include "tensor/shape.h"

namespace tensor {

inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

/// How many tensors and metadata a file may hold. Each takes about a kilobyte of memory here, but
/// only some 50 bytes of the header: 128 MB are for nothing, the others must have as much data.
/// (Published checkpoints have fewer than 100,000 tensors, in many files.)
constexpr std::uint64_t most_safetensors_names(std::int64_t data_bytes) {
  constexpr std::uint64_t kEach = 1024, kFree = std::uint64_t{128} << 20;
  return (kFree + static_cast<std::uint64_t>(data_bytes)) / kEach;
}

struct SafetensorsEntry {
  std::string name;
  DType dtype = f32;             // of the tensor
  std::optional<Narrow> narrow;  // of the file, if it is another
  std::string foreign;  // why it is no tensor, if it is none; type and shape mean nothing then
  Shape shape;
  std::int64_t begin = 0;  // from the start of the data
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset; together they cover the data without gaps
  std::map<std::string, std::string> metadata;
  std::int64_t data_start = 0;  // in the file
};

SafetensorsHeader read_safetensors_header(const Source& source);

}  // namespace tensor
