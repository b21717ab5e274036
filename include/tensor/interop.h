// Memory and streams of a GPU that other libraries use, too: kernels of your own, decoders,
// PyTorch. Tensors over their memory come from from_memory (tensor/creation.h) and DLPack
// (tensor/io.h).
#pragma once

#include <vector>

#include "tensor/executable.h"
#include "tensor/handle.h"

namespace tensor {

/// Where the first element of x lies in the memory of x.device(), on a GPU or not, for kernels of
/// your own to read or write; elements follow as x.strides() says, and stay as long as x. UserError
/// on a read-only or traced tensor.
TENSOR_API void* device_pointer(const Tensor& x);

/// A stream of the GPU: CUstream, which is cudaStream_t, too. nullptr: the default one.
using CudaStream = void*;

/// Hands a run to `stream` and returns: it begins when all is done that the stream was given
/// before, and what the stream is given afterwards begins when it is done. Outputs are newly
/// allocated, on the GPU; they and the inputs are kept until the run is over, whatever becomes of
/// the tensors meanwhile. Runs on one stream use the same memory in turn, runs on several streams
/// have memory of their own. Any number of threads may call it.
///
/// The call itself waits, for the stream and for the run, where it must do more than start kernels:
/// where inputs lie on the host, or are not aligned to 256 bytes or not row-major, where an output
/// is an input or a view of another output, where an operator runs on the host (report() says so),
/// where given indices are looked up, which it checks, and under CompileOptions::memory_limit.
///
/// A kernel that fails is told by the next call that waits. UserError as of Executable::run, and on
/// an executable for the CPU or for several devices.
TENSOR_API std::vector<Tensor> enqueue(const Executable& executable,
                                       const std::vector<Tensor>& inputs, CudaStream stream);
/// The same into outputs as of Executable::run; those that are not on the GPU make the call wait.
TENSOR_API void enqueue(const Executable& executable, const std::vector<Tensor>& inputs,
                        std::vector<Tensor>& outputs, CudaStream stream);

/// Waits until all is done that the stream was given. Operators, Executable::run and copies use
/// streams of their own, which wait for no other: before they read what a kernel of yours writes,
/// wait for it.
TENSOR_API void synchronize(const Device& device, CudaStream stream);

}  // namespace tensor
