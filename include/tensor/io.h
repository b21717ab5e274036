// Files: safetensors, npy and npz, images, DLPack. Every reader treats its input as hostile: a
// malformed file throws UserError that names the file and what is wrong with it, and never
// allocates more than the file's own size promises. Every `save` takes tensors of any device and
// strides, and throws UserError where one is undefined or the file cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor_map.h"

namespace tensor {

// ---- safetensors

struct Safetensors {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;
};

enum class FileAccess { map, read };  ///< read-only views of the file's bytes, or copies

/// Reads a file. Types that this library lacks are read as the least that has all their numbers
/// (U16: i32, U32 and U64: i64, F8_E4M3 and F8_E5M2: f16), or are foreign. Mapped tensors share the
/// mapping and are read-only; unaligned ones are copied. As with every mapping, a program that
/// shortens the file meanwhile ends this one: use FileAccess::read where others may write, unless
/// they rename as `save_safetensors` does.
TENSOR_API Safetensors load_safetensors(const std::string& path,
                                        FileAccess access = FileAccess::map);
/// The same from memory; `name` is how messages call it. The tensors are copies; with
/// FileAccess::map they are read-only views of the bytes, which then must stay as they are as long
/// as any of them lives (unaligned ones are copies even so).
TENSOR_API Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                         FileAccess access = FileAccess::read);
/// Writes a temporary file beside `path` and renames it, so that a reader never sees half a file
/// (as the other `save` functions do); links are written through, and what is no file, as a pipe or
/// /dev/stdout, is written straight. UserError on names or metadata that are not UTF-8.
TENSOR_API void save_safetensors(const std::string& path,
                                 const std::map<std::string, Tensor>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});

/// Gives the memory that a mapped tensor fills back to the system, until it is read again from the
/// file; does nothing for other tensors. For those who go through large weights once, or copy them
/// into another form: the two need not fill memory together.
TENSOR_API void forget_pages(const Tensor& x);

// ---- npy and npz (NumPy's format 1.0 to 3.0; npz stored or deflated)

/// An array of bool, integers or f16 to f64, of either byte order; Fortran order becomes strides,
/// and uint16 to uint64 become i32 and i64 (below 2^63).
/// UserError on other types. `name` is how messages call the bytes.
TENSOR_API Tensor load_npy(const std::string& path);
TENSOR_API Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);
/// Format 1.0. UserError on bf16, which NumPy lacks: use astype(f32). So in save_npz.
TENSOR_API void save_npy(const std::string& path, const Tensor& x);
/// Every array of the archive by its name; other types and other files are foreign. Deflated ones
/// that unpack to more than `max_bytes` in all throw UserError.
TENSOR_API TensorMap load_npz(const std::string& path,
                              std::int64_t max_bytes = std::int64_t{1} << 32);
TENSOR_API TensorMap parse_npz(std::span<const std::byte> bytes, const std::string& name,
                               std::int64_t max_bytes = std::int64_t{1} << 32);
/// Stored, or deflated when `compressed`. UserError on more than 4 GB or 65534 tensors, and on
/// names that are not UTF-8.
TENSOR_API void save_npz(const std::string& path, const std::map<std::string, Tensor>& tensors,
                         bool compressed = false);

// ---- Images: u8 tensors [height, width, 3], RGB

/// PNG, BMP, JPEG or WebP (where libwebp is installed) by its first bytes, of several pictures the
/// first; turned as EXIF data or XMP say, alpha dropped and grey spread as Pillow 13's
/// exif_transpose and convert("RGB") do, but 16-bit grey PNGs give their upper bytes, where Pillow
/// cuts values above 255. More than `max_pixels` pixels, or 250 million in a PNG, throw UserError
/// before anything is decoded; up to them a small WebP or run-length coded BMP may take memory.
TENSOR_API Tensor load_image(const std::string& path,
                             std::int64_t max_pixels = std::int64_t{1} << 26);
TENSOR_API Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                               std::int64_t max_pixels = std::int64_t{1} << 26);
/// What a file that begins so is: "PNG", "JPEG", "BMP" or "WebP", or a format that is not read, as
/// "GIF"; empty where it is no picture. 12 bytes are enough.
TENSOR_API std::string_view image_format(std::span<const std::byte> start);
/// Writes u8 [height, width, 3] (or [height, width] grey) as PNG. UserError on another type or
/// shape, and on an empty or too large (about 2^30 bytes) image.
TENSOR_API void save_png(const std::string& path, const Tensor& image);
/// The same in memory; `name` is how messages call the image.
TENSOR_API std::string encode_png(const Tensor& image, const std::string& name);

}  // namespace tensor

// ---- DLPack (https://dmlc.github.io/dlpack): exchange with other libraries without copying

struct DLManagedTensor;

namespace tensor {

/// A DLPack capsule of x, where it lies, on the CPU or a GPU (bool has the code 6 of DLPack 0.8).
/// The receiver calls its deleter. UserError when x is read-only, which DLPack 0.6 cannot express.
TENSOR_API DLManagedTensor* to_dlpack(const Tensor& x);
/// Takes ownership of `managed`; its deleter runs with the last view. On a GPU what was written on
/// another library's stream must be done (tensor/interop.h). UserError (and the deleter) on a
/// device other than the CPU and GPUs of NVIDIA, a type or rank that this library does not have,
/// elements that are not aligned to their size, and, on the CPU, bools other than 0 and 1.
TENSOR_API Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace tensor
