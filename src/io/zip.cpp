// The content of zip entries: unpacking through zlib (Debian's zlib1g; deflate is not worth writing
// again), packing, and the records around it.
#include "src/io/zip.h"

#include <zlib.h>

#include <array>
#include <limits>

#include "tensor/error.h"

namespace tensor {
namespace {

std::uint32_t checksum(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // zlib takes a null pointer for "the initial value, please"
  const auto* first = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<std::uint32_t>(crc32_z(crc, first, bytes.size()));
}

// Checks length and checksum; what the bytes come from is the derived class's.
class EntryStream : public ByteStream {
 public:
  EntryStream(const Source& source, const ZipEntry& entry)
      : packed_(source, entry.data_begin, entry.packed_size),
        remaining_(entry.size),
        expected_crc_(entry.crc),
        where_(source.name() + ": entry " + in_quotes(entry.name)) {}

  std::int64_t remaining() const override { return remaining_; }

  void read(std::span<std::byte> out) override {
    const auto count = static_cast<std::int64_t>(out.size());
    if (count > remaining_) fail(where_, "ends ", count - remaining_, " bytes too early");
    unpack(out);
    crc_ = checksum(crc_, out);
    remaining_ -= count;
    if (remaining_ > 0) return;
    check_end();
    if (crc_ != expected_crc_) fail(where_, "is damaged: its checksum does not agree");
  }

 protected:
  virtual void unpack(std::span<std::byte> out) = 0;
  virtual void check_end() {}

  SourceStream packed_;
  std::int64_t remaining_;
  std::uint32_t crc_ = 0;
  std::uint32_t expected_crc_;
  std::string where_;
};

class StoredStream final : public EntryStream {
 public:
  using EntryStream::EntryStream;

 private:
  void unpack(std::span<std::byte> out) override { packed_.read(out); }
};

class InflatedStream final : public EntryStream {
 public:
  InflatedStream(const Source& source, const ZipEntry& entry) : EntryStream(source, entry) {
    // Negative window bits: no zlib header.
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK)
      fail(where_, "cannot be unpacked: out of memory");
  }
  InflatedStream(const InflatedStream&) = delete;
  InflatedStream& operator=(const InflatedStream&) = delete;
  ~InflatedStream() override { inflateEnd(&stream_); }

 private:
  void unpack(std::span<std::byte> out) override {
    while (!out.empty()) {
      const std::size_t room = std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max());
      const std::size_t got = inflate_some(out.first(room));
      if (got == 0 && ended_) fail(where_, "is damaged: it unpacks to fewer bytes than it claims");
      out = out.subspan(got);
    }
  }

  void check_end() override {
    std::byte extra{};
    while (!ended_)
      if (inflate_some(std::span(&extra, 1)) > 0)
        fail(where_, "is damaged: it unpacks to more bytes than it claims");
    if (stream_.avail_in > 0 || packed_.remaining() > 0)
      fail(where_, "is damaged: bytes follow the end of the packed data");
  }

  // Inflates up to out.size() bytes; 0 with `ended_` unset means that more input is to be tried.
  std::size_t inflate_some(std::span<std::byte> out) {
    if (stream_.avail_in == 0 && packed_.remaining() > 0) {
      const auto count = std::min<std::int64_t>(packed_.remaining(), kChunk);
      packed_.read(std::span(input_).first(static_cast<std::size_t>(count)));
      stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
      stream_.avail_in = static_cast<uInt>(count);
    }
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    const std::size_t got = out.size() - stream_.avail_out;
    if (status == Z_STREAM_END)
      ended_ = true;
    else if (status != Z_OK || (got == 0 && stream_.avail_in == 0 && packed_.remaining() == 0))
      fail(where_, "is damaged: ", stream_.msg ? stream_.msg : "the packed data end too early");
    return got;
  }

  static constexpr std::int64_t kChunk = 64 * 1024;
  std::array<std::byte, kChunk> input_;
  z_stream stream_{};
  bool ended_ = false;
};

// ---- Writing

// Little-endian numbers, one after the other.
class Record {
 public:
  Record& u16(std::uint64_t number) { return number_of(number, 2); }
  Record& u32(std::uint64_t number) { return number_of(number, 4); }
  const std::string& text() const { return text_; }

 private:
  Record& number_of(std::uint64_t number, int width) {
    for (int i = 0; i < width; ++i) text_ += static_cast<char>(number >> (8 * i) & 0xff);
    return *this;
  }
  std::string text_;
};

std::string deflated(std::string_view head, std::span<const std::byte> body,
                     const std::string& where) {
  z_stream stream{};
  const int kMemory = 8;  // zlib's default
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    fail(where, "cannot be packed: out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, deflateEnd);
  std::string result;
  std::array<char, 64 * 1024> buffer;
  const auto feed = [&](const void* data, std::size_t size, int flush) {
    stream.next_in = static_cast<Bytef*>(const_cast<void*>(data));  // zlib only reads it
    stream.avail_in = static_cast<uInt>(size);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      deflate(&stream, flush);
      result.append(buffer.data(), buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  feed(head.data(), head.size(), Z_NO_FLUSH);
  feed(body.data(), body.size(), Z_FINISH);
  return result;
}

}  // namespace

std::unique_ptr<ByteStream> open_zip_entry(const Source& source, const ZipEntry& entry) {
  if (entry.deflated) return std::make_unique<InflatedStream>(source, entry);
  return std::make_unique<StoredStream>(source, entry);
}

void ZipWriter::add(const std::string& name, std::string_view head, std::span<const std::byte> body,
                    bool deflate) {
  constexpr std::uint64_t kLongestName = 0xffff, kHeader = 30;
  if (name.size() > kLongestName) fail_too_large();
  const std::uint64_t size = head.size() + body.size();
  const std::uint64_t before = kHeader + name.size();
  check_room(before + size);
  const std::string packed = deflate ? deflated(head, body, where_) : std::string();
  const std::uint64_t packed_size = deflate ? packed.size() : size;
  check_room(before + packed_size);
  const std::uint32_t crc = checksum(checksum(0, std::as_bytes(std::span(head))), body);
  constexpr std::uint64_t kVersion = 20, kUtf8Names = 0x800, kDate1980 = 0x21;
  Record common;
  common.u16(kVersion).u16(kUtf8Names).u16(deflate ? 8 : 0).u16(0).u16(kDate1980);
  common.u32(crc).u32(packed_size).u32(size).u16(name.size()).u16(0);

  Record local, entry;
  local.u32(0x04034b50);
  entry.u32(0x02014b50).u16(kVersion);
  Record tail;  // no comment, disk 0, no attributes
  tail.u16(0).u16(0).u16(0).u32(0).u32(position_);
  directory_ += entry.text() + common.text() + tail.text() + name;
  ++count_;

  const std::string start = local.text() + common.text() + name;
  file_.write(start);
  if (deflate) {
    file_.write(packed);
  } else {
    file_.write(head);
    file_.write(body);
  }
  position_ += start.size() + packed_size;
}

void ZipWriter::check_room(std::uint64_t bytes) const {
  // What the fields of plain zip hold; larger archives need zip64, which is not written:
  // safetensors has no such limit.
  constexpr std::uint64_t kLargest = 0xfffffffe;
  if (bytes > kLargest || position_ > kLargest - bytes) fail_too_large();
}

void ZipWriter::fail_too_large() const {
  fail(where_,
       "cannot be written: an npz file takes 4 GB in all and names of 65535 bytes; save as "
       "safetensors");
}

void ZipWriter::finish() {
  check_room(directory_.size());
  if (count_ > 0xfffe)
    fail(where_, "cannot be written: an npz file takes 65534 tensors; save as safetensors");
  Record end;
  end.u32(0x06054b50)
      .u16(0)
      .u16(0)
      .u16(count_)
      .u16(count_)
      .u32(directory_.size())
      .u32(position_)
      .u16(0);
  file_.write(directory_);
  file_.write(end.text());
}

}  // namespace tensor
