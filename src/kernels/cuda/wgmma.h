// The text of one wgmma instruction: it names every register of its sums, so that it depends on the
// number of columns.
#pragma once

#include <string>

#include "tensor/dtype.h"

namespace tensor::cuda {

/// d[64, columns] += a[64, 16] * b[16, columns] of 16-bit elements and float sums, or of 32 of k of
/// i8 and sums of ints (PTX ISA, "wgmma.mma_async"). Operands lie in shared memory with k along the
/// rows, or, turned, which i8 cannot be, across.
struct WgmmaForm {
  int columns = 8;  // 8 to 256 in steps of 8; of i8 beyond 24 in steps of 16
  DType dtype = f16;
  bool a_in_registers = false;
  bool a_turned = false, b_turned = false;
};

/// "struct NAME { static void run(D (&d)[columns / 2], A a, u64 b, int accumulate) };" where D is
/// float or int, and A a descriptor (u64) or the fragment (const u32 (&)[4]). Without `accumulate`
/// d is only written. Where TENSOR_EMULATED is defined, emulated_wgmma stands in for the
/// instruction.
std::string wgmma_text(const std::string& name, const WgmmaForm& form);

}  // namespace tensor::cuda
