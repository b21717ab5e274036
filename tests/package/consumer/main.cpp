// A project of its own that uses an installed tensor.
#include <tensor/compile.h>
#include <tensor/io.h>
#include <tensor/nn.h>
#include <tensor/tensor.h>

#include <iostream>

int main() {
  const auto x = tensor::arange(6).reshape({2, 3}).astype(tensor::f32);
  std::cout << tensor::matmul(x, x.transpose()) << '\n';
}
