// npz: a zip archive of npy files.
#include "src/io/atomic_file.h"
#include "src/io/elements.h"
#include "src/io/json_reader.h"
#include "src/io/npy.h"
#include "src/io/npy_header.h"
#include "src/io/zip.h"
#include "tensor/error.h"
#include "tensor/io.h"

namespace tensor {
namespace {

constexpr std::string_view kSuffix = ".npy";

std::map<std::string, Tensor> load(const Source& source, std::int64_t max_bytes) {
  std::map<std::string, Tensor> result;
  for (const ZipEntry& entry : read_zip_directory(source, max_bytes)) {
    const std::string where = source.name() + ": entry " + in_quotes(entry.name);
    if (!entry.name.ends_with(kSuffix)) fail(where, "is not called *.npy, so it is no array");
    const auto stream = open_zip_entry(source, entry);
    result.emplace(entry.name.substr(0, entry.name.size() - kSuffix.size()),
                   read_npy(*stream, where));
  }
  return result;
}

}  // namespace

std::map<std::string, Tensor> load_npz(const std::string& path, std::int64_t max_bytes) {
  return load(Source::open(path), max_bytes);
}

std::map<std::string, Tensor> parse_npz(std::span<const std::byte> bytes, const std::string& name,
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
