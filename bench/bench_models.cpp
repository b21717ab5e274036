// Models with random weights:
//   bench_models --benchmark_filter=vit-base
#include "bench/all_models.h"

namespace {

void add_models(const bench::Options& options) {
  for (const bench::Case& c : bench::cases(bench::all_models(), options.batch)) {
    for (const tensor::DType dtype : {tensor::f32, tensor::bf16, tensor::f16, tensor::i8})
      if ((dtype != tensor::f16 || options.device.is_cuda()) &&
          (dtype != tensor::f32 || !options.narrow_residuals))
        bench::add(c, dtype, false, options);
    if (options.eager) bench::add(c, tensor::f32, true, options);
  }
}

}  // namespace

int main(int argc, char** argv) { return bench::run(argc, argv, add_models); }
