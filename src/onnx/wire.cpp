#include "src/onnx/wire.h"

#include <bit>

namespace tensor::onnx {

std::uint64_t WireReader::varint(Bytes& from) const {
  constexpr int kBits = 7, kAll = 64;
  std::uint64_t number = 0;
  for (int shift = 0; shift < kAll; shift += kBits) {
    const auto byte = std::to_integer<std::uint64_t>(take(from, 1)[0]);
    const std::uint64_t digits = byte & 0x7f;
    if (shift + kBits > kAll && digits > 1) refuse("a number of more than 64 bits");
    number |= digits << shift;
    if (byte < 0x80) return number;
  }
  refuse("a number of more than ten bytes");
}

Bytes WireReader::take(Bytes& from, std::uint64_t count) const {
  if (count > from.size())
    refuse("ends after ", from.size(), " bytes, need ", count, ": was the file cut off?");
  const Bytes taken = from.first(static_cast<std::size_t>(count));
  from = from.subspan(static_cast<std::size_t>(count));
  return taken;
}

bool WireReader::next() {
  if (rest_.empty()) return false;
  const std::uint64_t tag = varint(rest_), field = tag >> 3;
  constexpr std::uint64_t kMostFields = (std::uint64_t{1} << 29) - 1;
  if (field == 0 || field > kMostFields) refuse("a field of the number ", field);
  field_ = static_cast<int>(field);
  switch (tag & 7) {
    case 0:
      wire_ = Wire::varint, number_ = varint(rest_);
      break;
    case 1:
      wire_ = Wire::fixed64, value_ = take(rest_, 8);
      break;
    case 2:
      wire_ = Wire::counted, value_ = take(rest_, varint(rest_));
      break;
    case 5:
      wire_ = Wire::fixed32, value_ = take(rest_, 4);
      break;
    default:
      refuse("a value of the wire type ", tag & 7, ", need 0, 1, 2 or 5");
  }
  return true;
}

void WireReader::require(Wire wire) const {
  if (wire_ != wire)
    refuse("a value of the wire type ", static_cast<int>(wire_), ", need ", static_cast<int>(wire));
}

void WireReader::count_part() const {
  if (--limits_->parts < 0)
    refuse("the file has more parts than any model: 2^21 messages and texts");
}

std::int64_t WireReader::integer() {
  require(Wire::varint);
  return static_cast<std::int64_t>(number_);
}

float WireReader::number() {
  require(Wire::fixed32);
  return std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(value_, 0, 4)));
}

Bytes WireReader::bytes() {
  require(Wire::counted);
  return value_;
}

std::string WireReader::text() {
  count_part();
  return std::string(as_text(bytes()));
}

WireReader WireReader::message(std::string_view message) {
  count_part();
  const Bytes inner = bytes();
  if (depth_ >= WireLimits::kMostNested)
    refuse("more than ", WireLimits::kMostNested, " messages within each other");
  return WireReader(inner, *limits_, message, depth_ + 1);
}

void WireReader::integers(std::vector<std::int64_t>& out) {
  if (wire_ == Wire::varint) {
    out.push_back(integer());
    return;
  }
  for (Bytes packed = bytes(); !packed.empty();)
    out.push_back(static_cast<std::int64_t>(varint(packed)));
}

template <class T>
void WireReader::fixed(Wire wire, std::vector<T>& out) {
  if (wire_ != Wire::counted) require(wire);
  if (value_.size() % sizeof(T) != 0)
    refuse("packed numbers of ", value_.size(), " bytes, need a multiple of ", sizeof(T));
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  for (std::size_t at = 0; at < value_.size(); at += sizeof(T))
    out.push_back(std::bit_cast<T>(static_cast<Bits>(little_endian(value_, at, sizeof(T)))));
}

void WireReader::numbers(std::vector<float>& out) { fixed(Wire::fixed32, out); }
void WireReader::numbers(std::vector<double>& out) { fixed(Wire::fixed64, out); }

}  // namespace tensor::onnx
