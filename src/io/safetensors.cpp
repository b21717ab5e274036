// Reading and writing safetensors: how the checked header becomes tensors, and tensors become a
// file.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "src/io/atomic_file.h"
#include "src/io/elements.h"
#include "src/io/foreign.h"
#include "src/io/json_reader.h"
#include "src/io/safetensors_dtype.h"
#include "src/io/safetensors_file.h"
#include "src/io/safetensors_header.h"
#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/io.h"

namespace tensor {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

std::string where_is(const Source& source, const SafetensorsEntry& entry) {
  return source.name() + ": tensor " + in_quotes(entry.name);
}

Tensor widened(const Source& source, const SafetensorsEntry& entry, std::int64_t data_start) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  source.read(data_start + entry.begin, bytes);
  return widened(*entry.narrow, bytes, entry.shape, where_is(source, entry));
}

Tensor copied(const Source& source, const SafetensorsEntry& entry, std::int64_t data_start) {
  if (entry.narrow) return widened(source, entry, data_start);
  Tensor result = empty(entry.shape, entry.dtype);
  source.read(data_start + entry.begin, element_bytes(result));
  if (entry.dtype == boolean) check_bools(element_bytes(result), where_is(source, entry));
  return result;
}

// A view of the file or memory where its alignment allows typed access, else a copy: only newer
// writers align.
Tensor mapped(const Source& source, const SafetensorsEntry& entry, std::int64_t data_start,
              const std::shared_ptr<const std::byte>& file) {
  if (entry.narrow) return widened(source, entry, data_start);
  const std::byte* first = file.get() + data_start + entry.begin;
  if (entry.dtype == boolean)
    check_bools({first, static_cast<std::size_t>(entry.end - entry.begin)},
                where_is(source, entry));
  const Tensor x = mapped_elements(file, first, {entry.shape, entry.dtype}, source.is_file());
  return x.defined() ? x : copied(source, entry, data_start);
}

Safetensors load(const Source& source, FileAccess access) {
  SafetensorsHeader header = read_safetensors_header(source);
  Safetensors result;
  result.metadata = std::move(header.metadata);
  std::shared_ptr<const std::byte> file;
  if (access == FileAccess::map) file = source.map();
  for (const SafetensorsEntry& entry : header.entries) {
    if (!entry.foreign.empty()) {
      result.tensors.foreign.emplace(entry.name, entry.foreign);
      continue;
    }
    try {
      result.tensors.emplace(entry.name, file ? mapped(source, entry, header.data_start, file)
                                              : copied(source, entry, header.data_start));
    } catch (const ForeignMember& error) {
      result.tensors.foreign.emplace(entry.name, error.what());
    }
  }
  return result;
}

// ---- Writing

struct Named {
  const std::string* name;
  Tensor x;  // elements in a row
};

// The format's own writer sorts by element size, largest first, so that every tensor is aligned.
std::vector<Named> sorted_for_file(const std::string& path,
                                   const std::map<std::string, Tensor>& tensors) {
  std::vector<Named> result;
  for (const auto& [name, x] : tensors) {
    if (name == "__metadata__")
      fail(path, "cannot be written: a tensor cannot be called __metadata__ in this format");
    result.push_back({&name, rowed(x, path + ": tensor " + in_quotes(name))});
  }
  std::stable_sort(result.begin(), result.end(), [](const Named& a, const Named& b) {
    return item_size(a.x.dtype()) > item_size(b.x.dtype());
  });
  return result;
}

std::string header_text(const std::string& path, const std::vector<Named>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&] { text += text.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += json_string(path, key) + ':' + json_string(path, value);
    }
    text += '}';
  }
  std::int64_t position = 0;
  for (const auto& [name, x] : tensors) {
    separate();
    text += json_string(path, *name) + ":{\"dtype\":\"" + std::string(safetensors_name(x.dtype())) +
            "\",\"shape\":[";
    for (int axis = 0; axis < x.rank(); ++axis)
      text += (axis > 0 ? "," : "") + std::to_string(x.shape()[axis]);
    text += "],\"data_offsets\":[" + std::to_string(position) + ',';
    position += x.nbytes();
    text += std::to_string(position) + "]}";
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begin at a multiple of 8
  if (static_cast<std::int64_t>(text.size()) > kMaxSafetensorsHeader)
    fail(path, "cannot be written: the names and metadata take ", text.size(),
         " bytes, the format allows ", kMaxSafetensorsHeader);
  if (tensors.size() + metadata.size() > most_safetensors_names(position))
    fail(path, "cannot be written: ", tensors.size() + metadata.size(),
         " tensors and metadata are more than the ", most_safetensors_names(position),
         " that this library reads back from ", position, " bytes of data");
  return text;
}

}  // namespace

Safetensors load_safetensors(const std::string& path, FileAccess access) {
  return load(Source::open(path), access);
}

Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                              FileAccess access) {
  return load(Source(bytes, name), access);
}

void write_safetensors(const std::string& name, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const Write& write) {
  const std::vector<Named> sorted = sorted_for_file(name, tensors);
  const std::string header = header_text(name, sorted, metadata);
  const std::uint64_t length = header.size();
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
  for (const Named& one : sorted) {
    write(element_bytes(one.x));
    forget_pages(one.x);
  }
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::optional<AtomicFile> file;  // once there is something to write
  write_safetensors(path, tensors, metadata, [&](std::span<const std::byte> bytes) {
    if (!file) file.emplace(path);
    file->write(bytes);
  });
  file->commit();
}

}  // namespace tensor
