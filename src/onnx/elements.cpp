#include "src/onnx/elements.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>

#include "src/io/elements.h"
#include "tensor/creation.h"

namespace tensor::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "ONNX files are little-endian");

struct TypeRow {
  std::string_view name;
  std::optional<DType> dtype;
};
// By TensorProto.DataType.
constexpr TypeRow kTypes[] = {
    {"UNDEFINED", {}},      {"FLOAT", f32},       {"UINT8", u8},          {"INT8", i8},
    {"UINT16", {}},         {"INT16", i16},       {"INT32", i32},         {"INT64", i64},
    {"STRING", {}},         {"BOOL", boolean},    {"FLOAT16", f16},       {"DOUBLE", f64},
    {"UINT32", {}},         {"UINT64", {}},       {"COMPLEX64", {}},      {"COMPLEX128", {}},
    {"BFLOAT16", bf16},     {"FLOAT8E4M3FN", {}}, {"FLOAT8E4M3FNUZ", {}}, {"FLOAT8E5M2", {}},
    {"FLOAT8E5M2FNUZ", {}}, {"UINT4", {}},        {"INT4", {}},           {"FLOAT4E2M1", {}}};

bool is_type(std::int64_t type) {
  return type >= 0 && type < static_cast<std::int64_t>(std::size(kTypes));
}

TensorType type_of(const TensorMessage& message, const std::string& where) {
  const std::optional<DType> dtype = dtype_of_onnx(message.type);
  if (!dtype || message.is_foreign)
    fail(where, "has elements of the type ", type_name(message.type),
         ", which this library does not have");
  for (const std::int64_t extent : message.dims)
    if (extent < 0) fail(where, "has an extent of ", extent, ", need at least 0");
  const TensorType type{Shape(message.dims), *dtype};
  if (!checked_bytes(type)) fail(where, "takes 2^63 bytes or more");
  return type;
}

// Elements from a list of one of the message's fields, through `convert`.
template <class T, class From, class Convert>
Tensor listed(const std::vector<From>& list, const TensorType& type, const std::string& where,
              const Convert& convert) {
  if (static_cast<std::int64_t>(list.size()) != num_elements(type.shape))
    fail(where, "holds ", list.size(), " elements, its shape ", type.shape, " needs ",
         num_elements(type.shape));
  Tensor result = empty(type.shape, type.dtype);
  T* out = result.mutable_data<T>();
  for (const From element : list) *out++ = convert(element);
  return result;
}

template <class T>
Tensor whole(const Ints& list, const TensorType& type, const std::string& where) {
  return listed<T>(list, type, where, [&](std::int64_t number) {
    if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max())
      fail(where, "holds the number ", number, ", which does not fit into ", type.dtype);
    return static_cast<T>(number);
  });
}

// 16-bit floating types are stored as the number that their bits are.
template <class T>
Tensor halves(const Ints& list, const TensorType& type, const std::string& where) {
  return listed<T>(list, type, where, [&](std::int64_t bits) {
    if (bits < 0 || bits > 0xffff) fail(where, "holds the bits ", bits, " of a number of 16 bits");
    T number;
    number.bits = static_cast<std::uint16_t>(bits);
    return number;
  });
}

Tensor typed(const TensorMessage& message, const TensorType& type, const std::string& where) {
  const auto same = [](auto number) { return number; };
  switch (type.dtype) {
    case DType::boolean:
      return whole<bool>(message.int32s, type, where);
    case DType::u8:
      return whole<std::uint8_t>(message.int32s, type, where);
    case DType::i8:
      return whole<std::int8_t>(message.int32s, type, where);
    case DType::i16:
      return whole<std::int16_t>(message.int32s, type, where);
    case DType::i32:
      return whole<std::int32_t>(message.int32s, type, where);
    case DType::i64:
      return listed<std::int64_t>(message.int64s, type, where, same);
    case DType::f16:
      return halves<Float16>(message.int32s, type, where);
    case DType::bf16:
      return halves<BFloat16>(message.int32s, type, where);
    case DType::f32:
      return listed<float>(message.floats, type, where, same);
    case DType::f64:
      return listed<double>(message.doubles, type, where, same);
  }
  internal_error(where, "a type that is none");
}

std::int64_t decimal(const std::string& text, const std::string& where) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    fail(where, "has the external offset or length ", in_quotes(text), ", need a number");
  return number;
}

}  // namespace

std::optional<DType> dtype_of_onnx(std::int64_t type) {
  return is_type(type) ? kTypes[type].dtype : std::nullopt;
}

std::string type_name(std::int64_t type) {
  return is_type(type) ? std::string(kTypes[type].name) : "number " + std::to_string(type);
}

Tensor ElementReader::read(const TensorMessage& message) {
  const std::string where = name_ + ": tensor " + in_quotes(message.name);
  const TensorType type = type_of(message, where);
  if (message.is_external) return external(message, type, where);
  if (message.raw) return raw(*message.raw, type, file_, where);
  return typed(message, type, where);
}

Tensor ElementReader::raw(Bytes bytes, const TensorType& type,
                          const std::shared_ptr<const std::byte>& file,
                          const std::string& where) const {
  const std::int64_t need = *checked_bytes(type);
  if (static_cast<std::int64_t>(bytes.size()) != need)
    fail(where, "holds ", bytes.size(), " bytes, its shape ", type.shape, " of ", type.dtype,
         " needs ", need);
  if (type.dtype == boolean) check_bools(bytes, where);
  if (file)
    if (const Tensor x = mapped_elements(file, bytes.data(), type, true); x.defined()) return x;
  const Tensor result = empty(type.shape, type.dtype);
  if (need > 0) std::memcpy(element_bytes(result).data(), bytes.data(), bytes.size());
  return result;
}

std::vector<std::string> ElementReader::files() const {
  std::vector<std::string> result;
  if (file_) result.push_back(name_);
  for (const auto& [location, external] : externals_) result.push_back(external.path);
  return result;
}

Tensor ElementReader::external(const TensorMessage& message, const TensorType& type,
                               const std::string& where) {
  std::string location;
  std::int64_t offset = 0, length = *checked_bytes(type);
  for (const auto& [key, value] : message.external) {
    if (key == "location") location = value;
    if (key == "offset") offset = decimal(value, where);
    if (key == "length" && decimal(value, where) != length)
      fail(where, "has ", value, " external bytes, its shape ", type.shape, " of ", type.dtype,
           " needs ", length);
  }
  if (!file_)
    fail(where, "lies in another file (", in_quotes(location),
         "), but the model has no folder: use load_onnx");
  const External& opened = open(location, where);
  if (offset > opened.source.size() || length > opened.source.size() - offset)
    fail(where, "lies at byte ", offset, " of ", in_quotes(location), ", which ends after ",
         opened.source.size(), " bytes, need ", length, " more from there on");
  if (length == 0) return empty(type.shape, type.dtype);
  return raw({opened.file.get() + offset, static_cast<std::size_t>(length)}, type, opened.file,
             where);
}

const ElementReader::External& ElementReader::open(const std::string& location,
                                                   const std::string& where) {
  namespace fs = std::filesystem;
  if (const auto known = externals_.find(location); known != externals_.end()) return known->second;
  const fs::path path(location);
  bool is_within =
      !location.empty() && location.find('\0') == std::string::npos && path.is_relative();
  for (const fs::path& part : path) is_within &= part != "..";
  std::error_code error;
  const fs::path folder = fs::canonical(fs::absolute(name_).parent_path(), error);
  const fs::path real = error || !is_within ? fs::path() : fs::canonical(folder / path, error);
  if (is_within && error)
    fail(where, "lies in ", in_quotes(location), ", which cannot be opened: ", error.message(),
         ": put it beside the model");
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), real.begin(), real.end());
  if (!is_within || end != folder.end())
    fail(where, "lies in ", in_quotes(location),
         ", outside of the model's folder: put it beside the model");
  External opened{real.string(), Source::open(real.string()), nullptr};
  if (opened.source.size() > 0) opened.file = opened.source.map();
  return externals_.emplace(location, std::move(opened)).first->second;
}

}  // namespace tensor::onnx
