// The image face: pictures in, and what a program sees in them as arrays out, in the words of the
// Open Inference Protocol, which Triton and demo-server both speak.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/cli.h"

namespace models::service {

/// An array of the protocol. BYTES are texts, each with its length in four bytes before it; other
/// elements lie as in memory.
struct Array {
  std::string name, datatype;  // "FP32"
  tensor::Shape shape;         // -1 in what only describes it: any extent
  std::string bytes = {};
};

/// What the protocol calls a type. `dtype_named` is unset for BYTES and what the library lacks.
std::string_view datatype_of(tensor::DType dtype);
std::optional<tensor::DType> dtype_named(std::string_view datatype);

/// The elements of BYTES. UserError, by `name`, unless there are so many and nothing behind them.
std::vector<std::string_view> texts_in(std::string_view bytes, std::int64_t count,
                                       const std::string& name);
/// The same from texts.
std::string bytes_of(std::span<const std::string> texts);

/// The one input: pictures, [1] each.
inline constexpr const char* kPicture = "image";
/// What comes out of the image face, without a batch: label BYTES [-1], score FP32 [-1], id INT64
/// [-1], box FP32 [-1, 4] where there are boxes, classes BYTES [1] (a grey PNG) where every pixel
/// has one, depth BYTES [1] (a grey PNG, white is near) where that is told, and json BYTES [1], as
/// the programs print it.
std::vector<Array> face_of(const Program& program);
/// The output of that name for these pictures, with their number as axis 0. Rows of those with
/// fewer findings end with empty labels, scores of 0 and ids of -1.
Array face_output(const Array& like, std::span<const ImageResult> results, const Program& program);

}  // namespace models::service
