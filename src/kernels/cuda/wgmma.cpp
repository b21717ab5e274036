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
  const bool is_bytes = dtype == i8;
  const bool has_type = is_bytes || dtype == f16 || dtype == bf16;
  const bool has_columns = columns >= 8 && columns <= 256 && columns % 8 == 0 &&
                           (!is_bytes || columns <= 24 || columns % 16 == 0);
  const bool has_form =
      is_bytes ? !a_in_registers && !a_turned && !b_turned : !a_in_registers || !a_turned;
  if (!has_type || !has_columns || !has_form)
    internal_error("wgmma", "there is none of ", columns, " columns of ", dtype);
  const int sums = columns / 2, a_registers = a_in_registers ? 4 : 1, b = sums + a_registers;
  const char* type = is_bytes ? "s8" : dtype == f16 ? "f16" : "bf16";
  const char* element = is_bytes ? "signed char" : dtype == f16 ? "Half" : "Bfloat16";
  TextWriter text;
  text << "struct " << name << " {\n  static void run(" << (is_bytes ? "int" : "float") << " (&d)["
       << sums << "], " << (a_in_registers ? "const u32 (&a)[4]" : "u64 a")
       << ", u64 b, int accumulate) {\n"
       << "#ifdef TENSOR_EMULATED\n    emulated_wgmma<" << columns << ", " << element << ", "
       << a_turned << ", " << b_turned << ">(d, a, b, accumulate);\n#else\n"
       << "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %" << b + 1 << ", 0;\\n\"\n"
       << "      \"wgmma.mma_async.sync.aligned.m64n" << columns
       << (is_bytes ? "k32.s32." : "k16.f32.") << type << '.' << type << " {"
       << listed(sums, "%", 0, "") << "}, "
       << (a_in_registers ? "{" + listed(4, "%", sums, "") + "}" : "%" + std::to_string(sums))
       << ", %" << b << ", p";
  // Of integers there are no signs to change and no operands to turn.
  if (!is_bytes)
    text << ", 1, 1, "
         << (a_in_registers ? ""
             : a_turned     ? "1, "
                            : "0, ")
         << (b_turned ? "1" : "0");
  text << ";\\n}\"\n      : " << listed(sums, is_bytes ? "\"+r\"(d[" : "\"+f\"(d[", 0, "])")
       << "\n      : " << (a_in_registers ? listed(4, "\"r\"(a[", 0, "])") : "\"l\"(a)")
       << ", \"l\"(b), \"r\"(accumulate));\n#endif\n  }\n};\n";
  return text.str();
}

}  // namespace tensor::cuda
