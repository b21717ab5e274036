#include "models/service/face.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "models/service/model.h"
#include "tensor/io.h"

namespace models::service {

namespace {

struct Row {
  tensor::DType dtype;
  std::string_view name;
};
constexpr std::array<Row, 10> kTypes{{{tensor::boolean, "BOOL"},
                                      {tensor::u8, "UINT8"},
                                      {tensor::i8, "INT8"},
                                      {tensor::i16, "INT16"},
                                      {tensor::i32, "INT32"},
                                      {tensor::i64, "INT64"},
                                      {tensor::f16, "FP16"},
                                      {tensor::bf16, "BF16"},
                                      {tensor::f32, "FP32"},
                                      {tensor::f64, "FP64"}}};

constexpr std::size_t kLength = 4;  // bytes, the lowest first

void append_text(std::string& bytes, std::string_view text) {
  for (std::size_t i = 0; i < kLength; ++i)
    bytes += static_cast<char>(text.size() >> (8 * i) & 0xff);
  bytes += text;
}

template <class T>
void append_number(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

const Finding kNothing{{}, -1, 0, {}};

/// What one finding adds to an output.
void append(std::string& bytes, const std::string& name, const Finding& finding) {
  if (name == "label") {
    append_text(bytes, finding.label);
  } else if (name == "score") {
    append_number(bytes, static_cast<float>(finding.score));
  } else if (name == "id") {
    append_number(bytes, finding.id);
  } else {
    for (const double edge : finding.box.value_or(std::array<double, 4>{}))
      append_number(bytes, static_cast<float>(edge));
  }
}

}  // namespace

std::string_view datatype_of(tensor::DType dtype) {
  return std::ranges::find(kTypes, dtype, &Row::dtype)->name;
}

std::optional<tensor::DType> dtype_named(std::string_view datatype) {
  const auto row = std::ranges::find(kTypes, datatype, &Row::name);
  return row == kTypes.end() ? std::nullopt : std::optional(row->dtype);
}

std::vector<std::string_view> texts_in(std::string_view bytes, std::int64_t count,
                                       const std::string& name) {
  std::vector<std::string_view> texts;
  while (bytes.size() >= kLength && std::ssize(texts) < count) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < kLength; ++i)
      size |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    bytes.remove_prefix(kLength);
    if (size > bytes.size())
      tensor::fail(name, "element ", texts.size(), " has a length of ", size, " bytes, but only ",
                   bytes.size(), " follow");
    texts.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (std::ssize(texts) != count || !bytes.empty())
    tensor::fail(name, "got ", texts.size(), " elements and ", bytes.size(), " bytes, need ", count,
                 " elements, each with its length in four bytes before it");
  return texts;
}

std::string bytes_of(std::span<const std::string> texts) {
  std::string bytes;
  for (const std::string& text : texts) append_text(bytes, text);
  return bytes;
}

std::vector<Array> face_of(const Program& program) {
  std::vector<Array> face{{"label", "BYTES", {-1}}, {"score", "FP32", {-1}}, {"id", "INT64", {-1}}};
  if (program.shows() == Shows::boxes) face.push_back({"box", "FP32", {-1, 4}});
  if (program.shows() == Shows::classes) face.push_back({"classes", "BYTES", {1}});
  if (program.shows() == Shows::depth) face.push_back({"depth", "BYTES", {1}});
  face.push_back({"json", "BYTES", {1}});
  return face;
}

Array face_output(const Array& like, std::span<const ImageResult> results, const Program& program) {
  Array array = like;
  array.shape.insert(0, std::ssize(results));
  if (like.datatype == "BYTES" && like.name != "label") {
    for (const ImageResult& result : results)
      append_text(array.bytes, like.name == "json" ? json_of(result, program)
                                                   : tensor::encode_png(result.labels, like.name));
    return array;
  }
  std::size_t most = 0;
  for (const ImageResult& result : results) most = std::max(most, result.findings.size());
  array.shape[1] = static_cast<std::int64_t>(most);
  for (const ImageResult& result : results)
    for (std::size_t i = 0; i < most; ++i)
      append(array.bytes, like.name, i < result.findings.size() ? result.findings[i] : kNothing);
  return array;
}

}  // namespace models::service
