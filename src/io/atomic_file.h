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
  /// The same where there is no file yet. False where there is one by now, which stays.
  bool commit_as_new();

 private:
  void open_temporary(std::optional<unsigned> mode);
  void end_commit();
  [[noreturn]] void fail_with(int error) const;
  std::string path_;
  std::string target_;     // where links of the path lead
  std::string temporary_;  // empty when what is written goes straight to its place
  int descriptor_ = -1;
};

/// The turn to replace a file: one process, or thread, at a time has it. For those who write what a
/// file holds and more. Killed processes give it back.
class Turn {
 public:
  /// Waits for it. UserError where the file system has no locks.
  explicit Turn(const std::string& path);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn();
  /// Whether there is a file. Where there is none, there is no turn: who is first to make one
  /// (AtomicFile::commit_as_new) has made it, the others take their turn then.
  bool has_file() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace tensor
