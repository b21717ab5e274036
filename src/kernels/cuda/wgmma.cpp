#include "src/kernels/cuda/wgmma.h"

#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

// "sep0prefix0suffix..." for 0 to count - 1, separated by commas.
std::string listed(int count, const std::string& prefix, int first, const std::string& suffix) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i > 0 ? ", " : "") + prefix + std::to_string(first + i) + suffix;
  return text;
}

}  // namespace

std::string wgmma_text(const std::string& name, const WgmmaForm& form) {
  const auto [columns, dtype, a_in_registers, a_turned, b_turned] = form;
  if (columns < 8 || columns > 256 || columns % 8 != 0 || (dtype != f16 && dtype != bf16) ||
      (a_in_registers && a_turned))
    internal_error("wgmma", "there is none of ", columns, " columns of ", dtype);
  const int sums = columns / 2, a_registers = a_in_registers ? 4 : 1, b = sums + a_registers;
  const char* type = dtype == f16 ? "f16" : "bf16";
  TextWriter text;
  text << "struct " << name << " {\n  static void run(float (&d)[" << sums << "], "
       << (a_in_registers ? "const u32 (&a)[4]" : "u64 a") << ", u64 b, int accumulate) {\n"
       << "#ifdef TENSOR_EMULATED\n    emulated_wgmma<" << columns << ", "
       << (dtype == f16 ? "Half" : "Bfloat16") << ", " << a_turned << ", " << b_turned
       << ">(d, a, b, accumulate);\n#else\n"
       << "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %" << b + 1 << ", 0;\\n\"\n"
       << "      \"wgmma.mma_async.sync.aligned.m64n" << columns << "k16.f32." << type << '.'
       << type << " {" << listed(sums, "%", 0, "") << "}, "
       << (a_in_registers ? "{" + listed(4, "%", sums, "") + "}" : "%" + std::to_string(sums))
       << ", %" << b << ", p, 1, 1, "
       << (a_in_registers ? ""
           : a_turned     ? "1, "
                          : "0, ")
       << (b_turned ? "1" : "0") << ";\\n}\"\n      : " << listed(sums, "\"+f\"(d[", 0, "])")
       << "\n      : " << (a_in_registers ? listed(4, "\"r\"(a[", 0, "])") : "\"l\"(a)")
       << ", \"l\"(b), \"r\"(accumulate));\n#endif\n  }\n};\n";
  return text.str();
}

}  // namespace tensor::cuda
