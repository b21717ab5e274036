#include "src/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "src/io/atomic_file.h"
#include "src/io/elements.h"
#include "src/io/foreign.h"
#include "src/io/npy_header.h"
#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

static_assert(std::endian::native == std::endian::little, "npy files are written little-endian");

constexpr std::int64_t kMaxHeader = 64 * 1024;

std::int64_t read_length(ByteStream& stream, std::size_t bytes) {
  std::array<std::byte, 4> length{};
  stream.read(std::span(length).first(bytes));
  return std::bit_cast<std::uint32_t>(length);
}

NpyHeader read_header(ByteStream& stream, const std::string& where) {
  std::array<std::byte, 8> start{};
  if (stream.remaining() < 10)
    refuse_member(where, "not an npy file: it has ", stream.remaining(),
                  " bytes, need 10 at least");
  stream.read(start);
  if (std::memcmp(start.data(), "\x93NUMPY", 6) != 0)
    refuse_member(where, "not an npy file: it does not begin with \\x93NUMPY");
  const int major = std::to_integer<int>(start[6]), minor = std::to_integer<int>(start[7]);
  if (major < 1 || major > 3 || minor != 0)
    refuse_member(where, "has version ", major, '.', minor,
                  " of the npy format, need 1.0, 2.0 or 3.0");
  const std::size_t width = major == 1 ? 2 : 4;
  if (stream.remaining() < static_cast<std::int64_t>(width)) fail(where, "ends within the header");
  const std::int64_t length = read_length(stream, width);
  if (length > kMaxHeader)
    refuse_member(where, "claims a header of ", length, " bytes, more than the ", kMaxHeader,
                  " that are read");
  if (length > stream.remaining()) fail(where, "ends within the header");
  std::string text(static_cast<std::size_t>(length), '\0');
  stream.read(std::as_writable_bytes(std::span(text)));
  return parse_npy_header(text, where);
}

void swap_bytes(std::span<std::byte> bytes, std::int64_t width) {
  const auto step = static_cast<std::size_t>(width);
  for (std::size_t i = 0; i < bytes.size(); i += step) std::ranges::reverse(bytes.subspan(i, step));
}

Tensor load(const Source& source) {
  SourceStream stream(source, 0, source.size());
  return read_npy(stream, source.name());
}

}  // namespace

Tensor read_npy(ByteStream& stream, const std::string& where) {
  NpyHeader header = read_header(stream, where);
  Shape& shape = header.type.shape;
  const auto bytes = checked_bytes(header.type);
  if (!bytes) fail(where, "the shape ", shape, " takes more than 2^63 bytes");
  const std::int64_t item =
      header.narrow ? item_size(*header.narrow) : item_size(header.type.dtype);
  const std::int64_t stored = *bytes / item_size(header.type.dtype) * item;
  if (stored != stream.remaining())
    fail(where, "the shape ", shape, " of ",
         header.narrow ? name(*header.narrow) : name(header.type.dtype), " takes ", stored,
         " bytes, but ", stream.remaining(), " follow the header");
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  std::vector<std::byte> narrow;
  Tensor result;
  std::span<std::byte> elements;
  if (header.narrow)
    narrow.resize(static_cast<std::size_t>(stored)), elements = narrow;
  else
    elements = element_bytes(result = empty(shape, header.type.dtype));
  stream.read(elements);
  if (header.type.dtype == boolean) check_bools(elements, where);
  if (header.swapped) swap_bytes(elements, item);
  if (header.narrow) result = widened(*header.narrow, elements, shape, where);
  return header.fortran_order ? result.transpose() : result;
}

Tensor load_npy(const std::string& path) { return load(Source::open(path)); }

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  return load(Source(bytes, name));
}

void save_npy(const std::string& path, const Tensor& x) {
  const Tensor rows = rowed(x, path + ": the tensor");
  const std::string prefix = npy_prefix(rows.type(), path);
  AtomicFile file(path);
  file.write(prefix);
  file.write(element_bytes(rows));
  file.commit();
}

}  // namespace tensor
