#include "src/kernels/cuda/kernel_source.h"

#include <algorithm>
#include <set>

#include "tensor/text.h"

namespace tensor::cuda {
namespace {

class Expansion {
 public:
  explicit Expansion(const KernelSource& source) : source_(source) {}

  std::string run() {
    add(source_.text);
    return std::move(text_);
  }

 private:
  void add(const std::string& text) {
    TextReader lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line == "#pragma once") continue;
      const std::string* header = header_of(line);
      if (!header) text_ += line + '\n';
      if (header && included_.insert(line).second) add(*header);
    }
  }

  // The text that a line includes, nullptr when it is no include of ours.
  const std::string* header_of(const std::string& line) const {
    const auto header =
        std::find_if(source_.headers.begin(), source_.headers.end(),
                     [&](const auto& h) { return line == "#include \"" + h.first + '"'; });
    return header == source_.headers.end() ? nullptr : &header->second;
  }

  const KernelSource& source_;
  std::set<std::string> included_;  // lines
  std::string text_;
};

}  // namespace

std::string KernelSource::whole_text() const { return Expansion(*this).run(); }

}  // namespace tensor::cuda
