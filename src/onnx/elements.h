// TensorProto to Tensor: element types, and where the elements lie.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/io/source.h"
#include "src/onnx/messages.h"
#include "tensor/handle.h"

namespace tensor::onnx {

/// The type of this library; nothing where it has none like it.
std::optional<DType> dtype_of_onnx(std::int64_t type);
/// "FLOAT", as ONNX calls it.
std::string type_name(std::int64_t type);

/// Makes tensors of the messages of one file.
class ElementReader {
 public:
  /// The file is in memory that goes away: elements are copied, and there are no external files.
  explicit ElementReader(std::string name) : name_(std::move(name)) {}
  /// `file` maps the file: elements are views of it where they are aligned.
  ElementReader(std::string name, std::shared_ptr<const std::byte> file)
      : name_(std::move(name)), file_(std::move(file)) {}

  /// UserError on types that this library lacks and on elements that do not fit the shape.
  Tensor read(const TensorMessage& message);
  /// What was read so far: the mapped file and external ones.
  std::vector<std::string> files() const;

 private:
  struct External {
    std::string path;
    Source source;
    std::shared_ptr<const std::byte> file;
  };
  Tensor raw(Bytes bytes, const TensorType& type, const std::shared_ptr<const std::byte>& file,
             const std::string& where) const;
  Tensor external(const TensorMessage& message, const TensorType& type, const std::string& where);
  const External& open(const std::string& location, const std::string& where);

  std::string name_;
  std::shared_ptr<const std::byte> file_;
  std::map<std::string, External> externals_;
};

}  // namespace tensor::onnx
