#include "tensor/device.h"

#include <charconv>
#include <ostream>
#include <string>

#include "tensor/error.h"

namespace tensor {

Device::Device(std::string_view text) {
  constexpr std::string_view kCuda = "cuda";
  if (text == "cpu") return;
  const auto refuse = [&] { fail("device", "got \"", text, "\", need cpu, cuda or cuda:1"); };
  if (!text.starts_with(kCuda)) refuse();
  kind_ = Kind::cuda;
  std::string_view rest = text.substr(kCuda.size());
  if (rest.empty()) return;
  if (rest.front() != ':') refuse();
  rest.remove_prefix(1);
  const auto [end, error] = std::from_chars(rest.begin(), rest.end(), index_);
  if (error != std::errc() || end != rest.end() || index_ < 0) refuse();
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  if (!device.is_cuda()) return out << "cpu";
  return out << "cuda:" << std::to_string(device.index());
}

}  // namespace tensor
