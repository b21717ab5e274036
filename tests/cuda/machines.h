// Machines with GPUs as their data sheets describe them.
#pragma once

#include "src/kernels/cuda/machine.h"

namespace tensor::cuda {

inline Machine machine(int capability) { return machine_of(typical_device(capability)); }
inline Machine h200() { return machine(90); }

}  // namespace tensor::cuda
