// npz: a zip archive of npy files.
#include <algorithm>
#include <array>

#include "src/io/atomic_file.h"
#include "src/io/elements.h"
#include "src/io/foreign.h"
#include "src/io/json_reader.h"
#include "src/io/npy.h"
#include "src/io/npy_header.h"
#include "src/io/zip.h"
#include "tensor/error.h"
#include "tensor/io.h"

namespace tensor {
namespace {

constexpr std::string_view kSuffix = ".npy";

// Whether an array is damaged shows when all of it was read, also if no tensor can hold it.
void read_rest(ByteStream& stream) {
  std::array<std::byte, 4096> bytes;
  do {
    const auto count = std::min<std::int64_t>(stream.remaining(), std::ssize(bytes));
    stream.read(std::span(bytes).first(static_cast<std::size_t>(count)));
  } while (stream.remaining() > 0);
}

TensorMap load(const Source& source, std::int64_t max_bytes) {
  TensorMap result;
  for (const ZipEntry& entry : read_zip_directory(source, max_bytes)) {
    const std::string where = source.name() + ": entry " + in_quotes(entry.name);
    const bool is_array = entry.name.ends_with(kSuffix);
    const std::string name =
        entry.name.substr(0, entry.name.size() - (is_array ? kSuffix.size() : 0));
    if (!is_array || !entry.foreign.empty()) {
      result.foreign.emplace(name, is_array ? where + ": " + entry.foreign
                                            : where + ": is not called *.npy, so it is no array");
      continue;
    }
    const auto stream = open_zip_entry(source, entry);
    try {
      result.emplace(name, read_npy(*stream, where));
    } catch (const ForeignMember& error) {
      result.foreign.emplace(name, error.what());
      read_rest(*stream);
    }
  }
  return result;
}

}  // namespace

TensorMap load_npz(const std::string& path, std::int64_t max_bytes) {
  return load(Source::open(path), max_bytes);
}

TensorMap parse_npz(std::span<const std::byte> bytes, const std::string& name,
                    std::int64_t max_bytes) {
  return load(Source(bytes, name), max_bytes);
}

void save_npz(const std::string& path, const std::map<std::string, Tensor>& tensors,
              bool compressed) {
  AtomicFile file(path);
  ZipWriter zip(file, path);
  for (const auto& [name, x] : tensors) {
    const std::string where = path + ": tensor " + in_quotes(name);
    json_string(path, name);  // the archive says that its names are UTF-8
    const Tensor rows = rowed(x, where);
    zip.add(name + std::string(kSuffix), npy_prefix(rows.type(), where), element_bytes(rows),
            compressed);
  }
  zip.finish();
  file.commit();
}

}  // namespace tensor
