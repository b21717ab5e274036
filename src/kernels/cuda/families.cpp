// The table of kernel families, and the names of kernels.
#include "src/kernels/cuda/families.h"

#include "src/core/checksum.h"
#include "src/kernels/cuda/templates.h"
#include "tensor/error.h"

namespace tensor::cuda {

std::span<const Family> cuda_families() {
  static const std::vector<Family> table = {
      kAttentionSm90, kAttentionMma, kAttentionPlain, kSoftmaxMma, kGemmSm90, kGemmMma,
      kGemmPlain,     kConv,         kPointwise,      kCopy,       kImage,    kRow,
      kReduce,        kScan,         kSort,           kAllReduce,  kHost};
  return table;
}

void name_kernel(Call& call, const Machine& machine, const std::string& what) {
  constexpr std::string_view kEntryName = "KERNEL";
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : call.source.text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  std::string architecture = machine.device.architecture();
  std::erase(architecture, '_');
  call.entry = architecture + "_" + what + "__" + hexadecimal(hash, 8);
  std::size_t at = call.source.text.find(kEntryName);
  if (at == std::string::npos)
    internal_error("name_kernel", "the text of ", call.entry, " has no ", kEntryName);
  for (; at != std::string::npos; at = call.source.text.find(kEntryName, at))
    call.source.text.replace(at, kEntryName.size(), call.entry);
  call.source.name = call.entry + ".cu";
  call.source.headers = device_headers();
  call.source.options = {"-default-device"};
}

std::string description_of(const Call& call) {
  return call.entry.substr(0, call.entry.rfind("__"));
}

}  // namespace tensor::cuda
