#include "src/kernels/cuda/gemm_sm90.h"

#include <sstream>

#include "src/kernels/cuda/device_headers.h"
#include "src/kernels/cuda/wgmma.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr int kDepth = 64;

int columns_of(const GemmSchedule& s) { return s.swapped ? s.tokens : s.features; }

}  // namespace

int GemmSchedule::threads() const { return 128 * groups + (groups > 1 ? 128 : 32); }

std::int64_t GemmSchedule::needed_shared_bytes() const {
  constexpr std::int64_t kElementBytes = 2;
  return kElementBytes *
         (std::int64_t{stages} * (tokens + features) * kDepth + std::int64_t{tokens} * features);
}

std::string GemmSchedule::fault(std::int64_t shared_bytes) const {
  const int rows = swapped ? features : tokens, columns = columns_of(*this);
  if (groups < 1 || groups > 3) return "groups of rows from 1 to 3";
  if (rows != 64 * groups) return "the side of the rows has 64 a group";
  if (columns % 8 != 0 || columns < 8 || columns > 256) return "8 to 256 columns in steps of 8";
  if (features % 64 != 0) return "features in panels of 64";
  if (stages < 2) return "at least two stages";
  // The barriers lie before the tiles, which begin where the swizzle does: every 1,024 bytes.
  const std::int64_t needed = needed_shared_bytes() + 1024;
  if (needed > shared_bytes)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(shared_bytes);
  return {};
}

GemmKernel gemm_sm90(const GemmSchedule& s, Element element, const Epilogue& epilogue) {
  const std::string type = element == Element::f16 ? "f16" : "bf16";
  const std::string tile = std::to_string(s.tokens) + "x" + std::to_string(s.features) + "x" +
                           std::to_string(kDepth) + (s.swapped ? "t" : "");
  GemmKernel kernel;
  kernel.name = "sm90a_gemm_" + type + "_f32_" + tile + "_s" + std::to_string(s.stages) +
                (epilogue.name.empty() ? "" : "_" + epilogue.name);
  std::ostringstream text;
  text << "#include \"gemm_sm90.h\"\n"
          "using namespace tensor::device;\n"
          "using Element = "
       << (element == Element::f16 ? "Half" : "Bfloat16")
       << ";\n"
          "struct Schedule {\n"
          "  using Element = ::Element;\n"
          "  static constexpr int kTokens = "
       << s.tokens << ", kFeatures = " << s.features << ", kStages = " << s.stages
       << ", kGroups = " << s.groups
       << ";\n  static constexpr bool kSwapped = " << (s.swapped ? "true" : "false") << ";\n};\n"
       << wgmma_text("Wgmma", {columns_of(s), element == Element::f16 ? f16 : bf16})
       << "struct Epilogue {\n  " << epilogue.members
       << "\n  float operator()(float sum, int token, int feature) const { return "
       << epilogue.result
       << "; }\n};\n"
          "using Gemm = GemmSm90<Schedule, Wgmma, Epilogue>;\n"
          "static_assert(Gemm::kSharedBytes == "
       << s.needed_shared_bytes() << " && Gemm::kThreads == " << s.threads()
       << ");\n"
          "extern \"C\" __global__ __launch_bounds__(Gemm::kThreads, 1) void "
       << kernel.name
       << "(\n"
          "    const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap "
          "inputs,\n"
          "    const __grid_constant__ TensorMap outputs, const __grid_constant__ Epilogue "
          "epilogue,\n"
          "    int tokens, int features, int depth) {\n"
          "  Gemm::run(weights, inputs, outputs, epilogue, tokens, features, depth);\n"
          "}\n";
  kernel.source = {kernel.name + ".cu", text.str(), device_headers(), {"-default-device"}};
  return kernel;
}

}  // namespace tensor::cuda
