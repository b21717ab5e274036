// Small kernels for tests of the emulator.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "src/kernels/cuda/templates.h"
#include "tests/cuda/emulator/emulator.h"

namespace tensor::emulator {

/// A kernel "trial" whose first parameters are an operand to read and one to write.
struct Trial {
  std::string text;
  cuda::Launch launch = {};
  std::vector<cuda::Argument> more = {};

  template <class In, class Out>
  void operator()(std::vector<In>& in, std::vector<Out>& out, EngineOptions engine = {}) const {
    cuda::Call call;
    call.source = {"trial.cu",
                   "#include \"ptx.h\"\n#include \"fragments.h\"\n"
                   "using namespace tensor::device;\n" +
                       text,
                   cuda::device_headers(),
                   {"-default-device"}};
    call.entry = "trial";
    call.launch = launch;
    call.arguments = {cuda::Pointer{}, cuda::Pointer{.index = 1}};
    call.arguments.insert(call.arguments.end(), more.begin(), more.end());
    cuda::Lowered lowered;
    lowered.calls = {call};
    lowered.description = "trial";
    const Operand operands[] = {{std::as_writable_bytes(std::span(in))},
                                {std::as_writable_bytes(std::span(out)), false, true}};
    emulate(lowered, operands, {}, {90, engine});
  }

  /// What is wrong with it, "" if nothing is.
  template <class In, class Out>
  std::string fault(std::vector<In>& in, std::vector<Out>& out) const {
    try {
      (*this)(in, out);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "";
  }
  /// The same of 256 floats.
  std::string fault() const {
    std::vector<float> in(256), out(256);
    std::iota(in.begin(), in.end(), 0.f);
    return fault(in, out);
  }
};

#define EXPECT_FOUND(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "got: " << (text)

inline const std::string kTrialHead =
    "extern \"C\" __global__ void trial(const float* in, float* out) {\n";

}  // namespace tensor::emulator
