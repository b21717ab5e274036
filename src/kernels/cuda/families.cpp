// The table of kernel families, the cost function made from it, and the names of kernels.
#include "src/kernels/cuda/families.h"

#include <cstdio>

#include "src/kernels/cuda/templates.h"
#include "src/trace/isolate.h"
#include "tensor/error.h"

namespace tensor::cuda {

std::span<const Family> cuda_families() {
  static const std::vector<Family> table = {
      kAttentionSm90, kAttentionMma, kSoftmaxMma, kGemmSm90, kGemmMma, kGemmPlain, kConv,
      kPointwise,     kCopy,         kImage,      kRow,      kReduce,  kScan,      kHost};
  return table;
}

CostFn cuda_cost(const Machine& machine) {
  return [machine](const Graph& graph, const Group& group) {
    GroupCost best;
    const auto families = cuda_families();
    for (std::size_t i = 0; i < families.size(); ++i)
      if (const auto time = families[i].estimate(graph, group, machine);
          time && *time < best.microseconds)
        best = {static_cast<int>(i), *time};
    return best;
  };
}

Lowered lower_group(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  const Isolated alone = isolate(laid, group);
  return cuda_families()[static_cast<std::size_t>(group.family)].lower(alone.laid, alone.group,
                                                                       machine);
}

void name_kernel(Call& call, const Machine& machine, const std::string& what) {
  constexpr std::string_view kEntryName = "KERNEL";
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : call.source.text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", hash);
  std::string architecture = machine.device.architecture();
  std::erase(architecture, '_');
  call.entry = architecture + "_" + what + "__" + digits;
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
