// Source: bytes by position, from an open file or from memory. Every read is checked against the
// end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensor {

class Source {
 public:
  /// Opens a regular file. UserError when it is absent, unreadable, a folder or a device.
  static Source open(const std::string& path);
  /// Memory that outlives this object; `name` is how messages call it.
  Source(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  /// Fills `out` from `offset` on. UserError when the bytes end before.
  void read(std::int64_t offset, std::span<std::byte> out) const;
  /// `count` bytes from `offset` on, checked before memory is taken.
  std::vector<std::byte> read_bytes(std::int64_t offset, std::int64_t count) const;
  std::string read_text(std::int64_t offset, std::int64_t count) const;
  bool is_file() const { return file_ != nullptr; }
  /// All of it as read-only memory: a file's mapping, which ends with the last copy of the pointer,
  /// or the memory that it is, which outlives the pointer.
  std::shared_ptr<const std::byte> map() const;

 private:
  struct Handle;
  Source() = default;
  void check(std::int64_t offset, std::int64_t count) const;
  std::string name_;
  std::int64_t size_ = 0;
  const std::byte* memory_ = nullptr;
  std::shared_ptr<const Handle> file_;
};

/// `text` in quotes for a message: cut after 80 characters, bytes that are not printable ASCII as
/// \xNN.
std::string in_quotes(std::string_view text);

}  // namespace tensor
