// Must not compile, and must say what to write instead (tests/CMakeLists.txt).
#include "tensor/compile.h"
#include "tensor/tensor.h"

int main() {
  tensor::compile([](const auto& x) { return tensor::relu(x); });
}
