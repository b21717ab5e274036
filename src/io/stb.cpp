// stb_image and stb_image_write, kept to this file: they are C, configured by macros alone, and
// count in int.
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "src/io/png.h"
#include "tensor/creation.h"
#include "tensor/error.h"

namespace tensor {
namespace {

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

#define STBI_ASSERT(assumption) tensor::require(assumption)
#define STBI_ONLY_PNG
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

Tensor stb_pixels(const std::string& file, const std::string& name) {
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(file.data()),
                            static_cast<int>(file.size()), &width, &height, &channels, 3),
      stbi_image_free);
  if (!pixels) fail(name, "cannot be decoded: ", stbi_failure_reason());
  Tensor result = empty({height, width, 3}, u8);
  std::memcpy(result.mutable_data<std::uint8_t>(), pixels.get(),
              static_cast<std::size_t>(result.nbytes()));
  return result;
}

std::string png_of_rows(const Tensor& rows, const std::string& where) {
  // stb needs some room for what goes around the pixels.
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max() / 2;
  if (rows.size() > kLargest)
    fail(where, "an image of ", rows.shape(1), " x ", rows.shape(0),
         " pixels is too large for PNG here");
  const int height = static_cast<int>(rows.shape(0)), width = static_cast<int>(rows.shape(1)),
            channels = rows.rank() == 3 ? 3 : 1;
  int size = 0;
  const std::unique_ptr<unsigned char, void (*)(void*)> file(
      stbi_write_png_to_mem(rows.data<std::uint8_t>(), width * channels, width, height, channels,
                            &size),
      std::free);
  if (!file) fail(where, "cannot be encoded as PNG: out of memory");
  return {reinterpret_cast<const char*>(file.get()), static_cast<std::size_t>(size)};
}

}  // namespace tensor
