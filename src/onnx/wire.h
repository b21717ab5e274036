// WireReader: the fields of a message in the wire format of Protocol Buffers
// (https://protobuf.dev/programming-guides/encoding), as ONNX files hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/bytes.h"

namespace tensor::onnx {

/// What bounds the memory and the stack that a file can ask for, shared by all readers of a file.
struct WireLimits {
  std::string name;  // of the file, for messages
  /// Messages and texts, each of which takes more memory than its two bytes in a file.
  std::int64_t parts = std::int64_t{1} << 21;
  static constexpr int kMostNested = 100;
};

class WireReader {
 public:
  /// The whole of a file.
  WireReader(Bytes bytes, WireLimits& limits) : WireReader(bytes, limits, "ModelProto", 0) {}

  /// Goes to the next field, over what nobody read of the last one. False at the end.
  bool next();
  int field() const { return field_; }

  // The value of the field; UserError where it was written as another kind.
  std::int64_t integer();
  float number();
  Bytes bytes();
  std::string text();
  /// The fields of a message within, of type `message`.
  WireReader message(std::string_view message);

  // One element of a repeated field, or many that are packed.
  void integers(std::vector<std::int64_t>& out);
  void numbers(std::vector<float>& out);
  void numbers(std::vector<double>& out);

  /// Throws UserError about this message.
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(limits_->name, "is no ONNX model, or damaged: ", message_, " (", depth_,
         " messages deep), field ", field_, ": ", parts...);
  }

 private:
  enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, counted = 2, fixed32 = 5 };

  WireReader(Bytes bytes, WireLimits& limits, std::string_view message, int depth)
      : rest_(bytes), limits_(&limits), message_(message), depth_(depth) {}
  std::uint64_t varint(Bytes& from) const;
  Bytes take(Bytes& from, std::uint64_t count) const;
  void require(Wire wire) const;
  void count_part() const;
  template <class T>
  void fixed(Wire wire, std::vector<T>& out);

  Bytes rest_;                // after the field
  Bytes value_;               // of fixed and counted fields
  std::uint64_t number_ = 0;  // of a varint
  Wire wire_ = Wire::varint;
  int field_ = 0;
  WireLimits* limits_;
  std::string_view message_;
  int depth_;
};

}  // namespace tensor::onnx
