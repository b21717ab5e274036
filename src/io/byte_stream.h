// ByteStream: bytes read once, from front to end; plain or inflated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/io/source.h"

namespace tensor {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// The bytes not yet read. UserError on reading more.
  virtual std::int64_t remaining() const = 0;
  virtual void read(std::span<std::byte> out) = 0;
};

/// `size` bytes of a source from `begin` on.
class SourceStream final : public ByteStream {
 public:
  SourceStream(const Source& source, std::int64_t begin, std::int64_t size)
      : source_(source), position_(begin), end_(begin + size) {}
  std::int64_t remaining() const override { return end_ - position_; }
  void read(std::span<std::byte> out) override {
    source_.read(position_, out);
    position_ += static_cast<std::int64_t>(out.size());
  }

 private:
  const Source& source_;
  std::int64_t position_;
  std::int64_t end_;
};

}  // namespace tensor
