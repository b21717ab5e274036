// What is compiled to a kernel, and how the kernel is launched: data that needs no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tensor::cuda {

/// Of device memory.
using Address = unsigned long long;

/// How the tensor memory accelerator finds a tensor: opaque, passed to kernels by value.
struct alignas(64) TensorMapBytes {
  std::uint64_t words[16];
};

/// The headers of a source: names as included, and texts. Copies share them, since thousands of
/// sources have the same 200 KB.
class Headers {
 public:
  using List = std::vector<std::pair<std::string, std::string>>;
  Headers() = default;
  Headers(List list) : list_(std::make_shared<List>(std::move(list))) {}

  const List& list() const { return *list_; }
  /// A list of its own.
  List& edit() { return *(list_ = std::make_shared<List>(*list_)); }
  List::const_iterator begin() const { return list_->begin(); }
  List::const_iterator end() const { return list_->end(); }
  std::size_t size() const { return list_->size(); }

 private:
  std::shared_ptr<List> list_ = std::make_shared<List>();
};

/// What a kernel is compiled from.
struct KernelSource {
  std::string name;  // in messages: "gemm_197x768x768.cu"
  std::string text;
  Headers headers = {};
  std::vector<std::string> options = {};  // besides architecture and language

  /// The text with its headers in place of their includes: what can be compiled as it stands.
  std::string whole_text() const;
};

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Grid grid = {}, block = {};
  unsigned shared_bytes = 0;  // besides those declared in the kernel
  unsigned cluster = 1;       // neighbouring blocks along x that run together
  /// May start before the kernel ahead ends, and waits for it by itself (griddepcontrol.wait).
  bool overlaps_previous = false;
};

}  // namespace tensor::cuda
