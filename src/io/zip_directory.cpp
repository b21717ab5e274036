// The directory of a zip archive: where its entries are, all of it checked before anything is
// unpacked.
#include <algorithm>
#include <optional>
#include <set>

#include "src/io/bytes.h"
#include "src/io/zip.h"
#include "tensor/error.h"

namespace tensor {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr std::int64_t kLocalHeaderSize = 30, kDirectoryEntrySize = 46, kEndSize = 22;
constexpr std::int64_t kEnd64Size = 56, kEnd64LocatorSize = 20, kLongestComment = 0xffff;
constexpr std::uint64_t kIn64 = 0xffffffff;  // "see the zip64 field"

// Little-endian numbers out of a part of the file.
class Fields {
 public:
  Fields(const Source& source, std::int64_t begin, std::int64_t size)
      : bytes_(source.read_bytes(begin, size)) {}

  std::uint64_t u64(std::size_t at) const { return little_endian(bytes_, at, 8); }
  std::uint32_t u32(std::size_t at) const {
    return static_cast<std::uint32_t>(little_endian(bytes_, at, 4));
  }
  std::uint32_t u16(std::size_t at) const {
    return static_cast<std::uint32_t>(little_endian(bytes_, at, 2));
  }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

struct Directory {
  std::uint64_t entries = 0, size = 0, begin = 0;
  std::int64_t limit = 0;  // where the records behind the directory begin
};

// The record at the end of the file; only a comment of the stated length may follow it.
std::int64_t find_end(const Source& source) {
  const std::int64_t length = std::min(source.size(), kEndSize + kLongestComment);
  const std::int64_t first = source.size() - length;
  const Fields tail(source, first, length);
  for (std::int64_t at = length - kEndSize; at >= 0; --at) {
    const auto i = static_cast<std::size_t>(at);
    if (tail.u32(i) == kEnd && at + kEndSize + tail.u16(i + 20) == length) return first + at;
  }
  fail(source.name(), "not an npz file: it does not end as a zip archive does");
}

std::optional<Directory> find_directory64(const Source& source, std::int64_t end) {
  if (end < kEnd64LocatorSize + kEnd64Size) return std::nullopt;
  const Fields locator(source, end - kEnd64LocatorSize, kEnd64LocatorSize);
  if (locator.u32(0) != kEnd64Locator) return std::nullopt;
  const std::int64_t at = end - kEnd64LocatorSize - kEnd64Size;
  const Fields record(source, at, kEnd64Size);
  if (locator.u64(8) != static_cast<std::uint64_t>(at) || record.u32(0) != kEnd64)
    fail(source.name(), "the zip64 record at the end is damaged");
  return Directory{record.u64(32), record.u64(40), record.u64(48), at};
}

Directory find_directory(const Source& source) {
  const std::int64_t end = find_end(source);
  const Fields record(source, end, kEndSize);
  if (record.u16(4) != record.u16(6) || record.u16(8) != record.u16(10))
    fail(source.name(), "is one part of an archive in several parts");
  Directory directory{record.u16(10), record.u32(12), record.u32(16), end};
  if (const auto wide = find_directory64(source, end)) directory = *wide;
  const auto limit = static_cast<std::uint64_t>(directory.limit);
  if (directory.begin > limit || directory.size != limit - directory.begin)
    fail(source.name(), "the archive's directory is damaged: it claims ", directory.size,
         " bytes from byte ", directory.begin, " on, but ends at byte ", directory.limit);
  if (directory.entries > directory.size / kDirectoryEntrySize)
    fail(source.name(), "the archive's directory is damaged: it claims ", directory.entries,
         " entries in ", directory.size, " bytes");
  return directory;
}

// Replaces the numbers that did not fit 32 bits by those in the zip64 extra field.
void read_extra64(const std::string& where, const Fields& extra,
                  std::initializer_list<std::uint64_t*> numbers) {
  std::size_t at = 0;
  while (at + 4 <= extra.size()) {
    const std::size_t id = extra.u16(at), size = extra.u16(at + 2);
    at += 4;
    if (size > extra.size() - at) fail(where, "has a damaged extra field");
    if (id != 1) {
      at += size;
      continue;
    }
    const std::size_t end = at + size;
    for (std::uint64_t* number : numbers) {
      if (*number != kIn64) continue;
      if (end - at < 8) fail(where, "has a damaged zip64 field");
      *number = extra.u64(at);
      at += 8;
    }
    return;
  }
  for (const std::uint64_t* number : numbers)
    if (*number == kIn64) fail(where, "has no zip64 field, which its sizes need");
}

std::string name_of(const Source& source, const std::string& entry) {
  return source.name() + ": entry " + in_quotes(entry);
}

// Finds where the content begins: the local header has an extra field of its own.
void locate(const Source& source, ZipEntry& entry, std::uint32_t method, std::int64_t limit) {
  const std::string where = name_of(source, entry.name);
  if (entry.header_begin > limit - kLocalHeaderSize)
    fail(where, "begins behind the archive's directory");
  const Fields local(source, entry.header_begin, kLocalHeaderSize);
  const auto name_size = static_cast<std::int64_t>(local.u16(26));
  entry.data_begin = entry.header_begin + kLocalHeaderSize + name_size + local.u16(28);
  if (local.u32(0) != kLocalHeader || entry.data_begin > limit ||
      source.read_text(entry.header_begin + kLocalHeaderSize, name_size) != entry.name ||
      local.u16(8) != method)
    fail(where, "its header differs from the archive's directory");
  if (entry.packed_size > limit - entry.data_begin)
    fail(where, "reaches into the archive's directory");
}

ZipEntry read_entry(const Source& source, std::int64_t& at, const Directory& directory,
                    std::int64_t max_bytes) {
  const std::int64_t room = directory.limit - at;
  if (room < kDirectoryEntrySize) fail(source.name(), "the archive's directory is cut short");
  const Fields record(source, at, kDirectoryEntrySize);
  const std::int64_t name_size = record.u16(28), extra_size = record.u16(30),
                     comment_size = record.u16(32);
  if (record.u32(0) != kDirectoryEntry ||
      name_size + extra_size + comment_size > room - kDirectoryEntrySize)
    fail(source.name(), "the archive's directory is damaged at byte ", at);
  ZipEntry entry;
  entry.name = source.read_text(at + kDirectoryEntrySize, name_size);
  const std::string where = name_of(source, entry.name);
  const std::uint32_t method = record.u16(10);
  if (method != 0 && method != 8)
    entry.foreign =
        "is packed by the method " + std::to_string(method) + ", need 0 (stored) or 8 (deflated)";
  if (record.u16(8) & 1) entry.foreign = "is encrypted, which this library does not read";
  const bool is_foreign = !entry.foreign.empty();
  entry.deflated = method == 8 && !is_foreign;
  entry.crc = record.u32(16);
  std::uint64_t packed = record.u32(20), size = record.u32(24), begin = record.u32(42);
  read_extra64(where, Fields(source, at + kDirectoryEntrySize + name_size, extra_size),
               {&size, &packed, &begin});
  const auto limit = static_cast<std::uint64_t>(directory.begin);
  if (packed > limit || begin > limit ||
      (!is_foreign && (size / kMaxDeflateRatio > packed || (!entry.deflated && size != packed))))
    fail(where, "claims to unpack ", packed, " bytes from byte ", begin, " on to ", size,
         ", which cannot be");
  if (entry.deflated && size > static_cast<std::uint64_t>(max_bytes))
    fail(where, "unpacks to ", size, " bytes, more than the ", max_bytes,
         " that are left to unpack");
  entry.packed_size = static_cast<std::int64_t>(packed);
  entry.size = is_foreign ? 0 : static_cast<std::int64_t>(size);
  entry.header_begin = static_cast<std::int64_t>(begin);
  locate(source, entry, method, static_cast<std::int64_t>(limit));
  at += kDirectoryEntrySize + name_size + extra_size + comment_size;
  return entry;
}

// Entries that share bytes are how a small archive unpacks to a huge one (D. Fifield, "A better zip
// bomb", 2019).
void check_disjoint(const Source& source, std::vector<ZipEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.header_begin < b.header_begin; });
  for (std::size_t i = 1; i < entries.size(); ++i)
    if (entries[i].header_begin < entries[i - 1].data_begin + entries[i - 1].packed_size)
      fail(name_of(source, entries[i].name), "shares bytes with the entry ",
           in_quotes(entries[i - 1].name));
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(const Source& source, std::int64_t max_bytes) {
  if (source.size() < kEndSize)
    fail(source.name(), "not an npz file: it has ", source.size(), " bytes, need ", kEndSize,
         " at least");
  const Directory directory = find_directory(source);
  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  std::int64_t at = static_cast<std::int64_t>(directory.begin), left = max_bytes;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    entries.push_back(read_entry(source, at, directory, left));
    if (!names.insert(entries.back().name).second)
      fail(name_of(source, entries.back().name), "appears twice");
    if (entries.back().deflated) left -= entries.back().size;
  }
  if (at != directory.limit)
    fail(source.name(), "the archive's directory holds more than its entries");
  check_disjoint(source, entries);
  return entries;
}

}  // namespace tensor
