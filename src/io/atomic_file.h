// AtomicFile: a file that appears whole or not at all. It is written beside its place and renamed
// into it, so that no reader, and no mapping of the file it replaces, ever sees half of it. A file
// that is replaced keeps its mode and the symbolic links to it. What is no file (a pipe, /dev/null)
// or open already (/dev/stdout) is written straight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tensor {

class AtomicFile {
 public:
  /// UserError when the folder does not exist or cannot be written.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Removes what was written unless `commit` succeeded.
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Makes the file durable and visible. UserError when that fails.
  void commit();

 private:
  void open_temporary(std::optional<unsigned> mode);
  [[noreturn]] void fail_with(int error) const;
  std::string path_;
  std::string target_;     // where links of the path lead
  std::string temporary_;  // empty when what is written goes straight to its place
  int descriptor_ = -1;
};

}  // namespace tensor
