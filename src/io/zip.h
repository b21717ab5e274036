// Zip archives as far as npz files need them: stored and deflated entries, zip64, one disk, no
// encryption (PKWARE's APPNOTE 6.3). A small hostile file must not unpack to a large one, nor one
// part of it be read twice.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/atomic_file.h"
#include "src/io/byte_stream.h"

namespace tensor {

struct ZipEntry {
  std::string name;
  bool deflated = false;
  std::string foreign;  // why it cannot be unpacked, where it cannot
  std::uint32_t crc = 0;
  std::int64_t packed_size = 0;
  std::int64_t size = 0;          // unpacked
  std::int64_t header_begin = 0;  // in the file
  std::int64_t data_begin = 0;
};

/// The entries in the file's order. UserError when the archive is damaged, or its deflated entries
/// unpack to more than `max_bytes` in all. Those that are encrypted or packed otherwise are
/// foreign.
std::vector<ZipEntry> read_zip_directory(const Source& source, std::int64_t max_bytes);

/// The unpacked bytes of an entry; the last read checks the checksum.
std::unique_ptr<ByteStream> open_zip_entry(const Source& source, const ZipEntry& entry);

/// Writes an archive entry by entry.
class ZipWriter {
 public:
  /// `where` is how messages call the archive.
  ZipWriter(AtomicFile& file, std::string where) : file_(file), where_(std::move(where)) {}
  /// An entry whose content is `head` followed by `body`.
  void add(const std::string& name, std::string_view head, std::span<const std::byte> body,
           bool deflate);
  /// Writes the directory; nothing can be added afterwards.
  void finish();

 private:
  // UserError unless that many bytes more fit into the archive.
  void check_room(std::uint64_t bytes) const;
  [[noreturn]] void fail_too_large() const;
  AtomicFile& file_;
  std::string where_;
  std::uint64_t position_ = 0;
  std::string directory_;
  std::uint64_t count_ = 0;
};

}  // namespace tensor
