// One function, two modes: eager for debugging, compiled for speed.
#include <tensor/compile.h>
#include <tensor/tensor.h>

#include <cmath>
#include <iostream>

namespace tn = tensor;

tn::Tensor attention(const tn::Tensor& q, const tn::Tensor& k, const tn::Tensor& v) {
  const tn::Tensor scores = tn::matmul(q, k.swapaxes(-1, -2)) / std::sqrt(double(q.shape(-1)));
  return tn::matmul(tn::softmax(scores, -1), v);
}

int main() {
  tn::Generator random(1);
  const tn::Tensor q = random.normal({1, 12, 197, 64}), k = random.normal({1, 12, 197, 64});
  const tn::Tensor v = random.normal({1, 12, 197, 64});

  const tn::Tensor exact = attention(q, k, v);
  const auto fast = tn::compile(attention);
  const tn::Tensor difference = tn::max(tn::abs(fast(q, k, v) - exact));

  std::cout << "shape " << exact.shape()
            << ", largest difference below 1e-5: " << (difference.item() < 1e-5 ? "yes" : "no")
            << "\n\n";
  fast.executable(q, k, v).report(std::cout, {q, k, v});
}
