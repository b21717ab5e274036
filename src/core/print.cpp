#include <ostream>

#include "tensor/handle.h"

namespace tensor {
std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.type(); }
}  // namespace tensor
