#include "src/io/stb.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_map>

#include "tensor/creation.h"
#include "tensor/error.h"

namespace tensor {
namespace {

// The memory of one call: refuses what goes over the budget and frees what the decoder forgets.
class Budget {
 public:
  explicit Budget(std::size_t bytes) : left_(bytes) { current = this; }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget() { current = nullptr; }

  void* allocate(std::size_t size) {
    if (size > left_) return nullptr;
    Block block{Memory(std::malloc(size), std::free), size};
    void* const address = block.memory.get();
    if (!address) return nullptr;
    blocks_.emplace(address, std::move(block));
    left_ -= size;
    return address;
  }
  void release(void* address) {
    const auto at = blocks_.find(address);
    if (at == blocks_.end()) return;
    left_ += at->second.size;
    blocks_.erase(at);
  }
  void* reallocate(void* address, std::size_t old_size, std::size_t size) {
    void* const fresh = allocate(size);
    if (!fresh) return nullptr;
    if (address) std::memcpy(fresh, address, std::min(old_size, size));
    release(address);
    return fresh;
  }

  static thread_local Budget* current;

 private:
  using Memory = std::unique_ptr<void, void (*)(void*)>;
  struct Block {
    Memory memory;
    std::size_t size;
  };
  std::size_t left_;
  std::unordered_map<void*, Block> blocks_;
};

thread_local Budget* Budget::current = nullptr;

// A broken assumption of the decoder ends the call, not the program.
void require(bool assumption) {
  if (!assumption) internal_error("image", "an assumption of stb_image does not hold");
}

// stb's own packing of PNG is poor; the result is freed by stb.
unsigned char* pack(unsigned char* data, int size, int* packed_size, int) {
  uLongf length = compressBound(static_cast<uLong>(size));
  auto* packed = static_cast<unsigned char*>(std::malloc(length));
  if (!packed || compress(packed, &length, data, static_cast<uLong>(size)) != Z_OK) {
    std::free(packed);
    return nullptr;
  }
  *packed_size = static_cast<int>(length);
  return packed;
}

}  // namespace
}  // namespace tensor

// stb is configured by macros alone.
#define STBI_MALLOC(size) tensor::Budget::current->allocate(size)
#define STBI_REALLOC_SIZED(address, old_size, size) \
  tensor::Budget::current->reallocate(address, old_size, size)
#define STBI_FREE(address) tensor::Budget::current->release(address)
#define STBI_ASSERT(assumption) tensor::require(assumption)
#define STBI_MAX_DIMENSIONS 16384
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

#define STBIW_ZLIB_COMPRESS tensor::pack
#define STBI_WRITE_NO_STDIO
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

namespace tensor {

static_assert(kMaxStbSide == STBI_MAX_DIMENSIONS);

Tensor stb_decode(const ImageSource& source, std::int64_t width, std::int64_t height) {
  // At the worst moment (16-bit RGBA, interlaced) the decoder holds the packed data, 16 bytes a
  // pixel of unpacked data (it doubles its buffer) and 12 of pixels; growing a buffer holds the old
  // and the new one.
  const std::size_t pixels = static_cast<std::size_t>(width * height);
  Budget budget(4 * source.bytes.size() + 32 * pixels + (64 << 10));
  int got_width = 0, got_height = 0, channels = 0;
  // The size fits an int: decode_image has checked it.
  const stbi_uc* decoded = stbi_load_from_memory(
      reinterpret_cast<const stbi_uc*>(source.bytes.data()), static_cast<int>(source.bytes.size()),
      &got_width, &got_height, &channels, 3);
  if (!decoded) fail(source.name, "is damaged: ", stbi_failure_reason());
  if (got_width != width || got_height != height)
    internal_error("image", "stb_image sees another size than the header has");
  Tensor result = empty({height, width, 3}, u8);
  std::memcpy(result.mutable_data<std::uint8_t>(), decoded,
              static_cast<std::size_t>(result.nbytes()));
  return result;
}

std::string stb_encode_png(const std::uint8_t* pixels, std::int64_t width, std::int64_t height,
                           int channels, const std::string& where) {
  // stb counts in int, and needs some room for what goes around the pixels.
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max() / 2;
  if (width > kLargest / height / channels)
    fail(where, "an image of ", width, " x ", height, " pixels is too large for PNG here");
  int size = 0;
  const std::unique_ptr<unsigned char, void (*)(void*)> file(
      stbi_write_png_to_mem(pixels, static_cast<int>(width) * channels, static_cast<int>(width),
                            static_cast<int>(height), channels, &size),
      std::free);
  if (!file) fail(where, "cannot be encoded as PNG: out of memory");
  return {reinterpret_cast<const char*>(file.get()), static_cast<std::size_t>(size)};
}

}  // namespace tensor
