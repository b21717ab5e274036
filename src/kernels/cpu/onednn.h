// oneDNN (https://oneapi-src.github.io/oneDNN): memory descriptors of our layouts and
// post-operations of our epilogues. Included only where the library is present.
#pragma once

#include <dnnl.hpp>

#include "src/core/pool.h"
#include "src/kernels/cpu/epilogue.h"
#include "src/kernels/cpu/kernel.h"
#include "src/kernels/host/strided_copy.h"

namespace tensor::cpu {

const dnnl::engine& cpu_engine();

dnnl::memory::data_type onednn_type(DType dtype);
/// Whether oneDNN computes with this type here.
bool onednn_supports(DType dtype);
/// Whether it may use instructions for bf16: the processor has them, and no environment variable
/// (DNNL_MAX_CPU_ISA) forbids them.
bool onednn_multiplies_bf16();

/// The strides with those of axes of extent 1, which mean nothing to us but are checked by oneDNN,
/// as large as everything else reaches: such axes then lie outside of all others.
Strides with_outer_units(const Shape& shape, Strides strides);

/// A strided descriptor.
dnnl::memory::desc describe(DType dtype, const Shape& shape, const Strides& strides);

/// A constant of the graph, lying as `given`, in the order that a primitive wants: bytes.
Tensor packed(const Graph& graph, ValueId constant, const dnnl::memory::desc& given,
              const dnnl::memory::desc& wanted);

/// A primitive's arguments with their places among the operands of a kernel.
struct Argument {
  int id;               // DNNL_ARG_...
  std::size_t operand;  // of the kernel
  dnnl::memory::desc desc;
  int packing = -1;  // which copy to scratch memory stands for the operand; -1: the operand itself
};

/// Whether oneDNN takes these strides: positive, and no axis folded into another (no broadcasts, no
/// diagonals).
bool is_describable(const Shape& shape, const Strides& strides);

/// Whether every tensor of the group has less than 2^31 elements. Version 2.6.3 counts those of
/// convolutions in 32 bits, and divides by 0 where they are 2^32.
bool counts_in_32_bits(const Graph& graph, const Group& group);

/// A copy between an operand and scratch memory, for layouts that a primitive does not take.
struct Packing {
  std::size_t operand;
  DType dtype;
  Layout from;
  Strides to;
  std::size_t offset = 0;  // in the scratch memory; set by the kernel, as is the copy
  StridedCopy copy = {};
};

/// The epilogue as post-operations behind those of `first`. `operand_argument` gives a tensor
/// operand as the primitive sees it, with the rank of its result; the argument's id is set here.
struct PostOps {
  dnnl::post_ops ops;
  std::vector<Argument> arguments;
};
PostOps post_ops_of(const std::vector<EpilogueStep>& steps,
                    const std::function<Argument(ValueId)>& operand_argument,
                    const dnnl::post_ops& first = {});

/// Whether oneDNN has a post-operation for every step, and computes all of them right.
bool has_post_ops(const std::vector<EpilogueStep>& steps);

/// A primitive with its arguments. The scratchpad is the caller's: the default one is shared
/// between threads and gives silently wrong results when two of them run one primitive. It runs on
/// as many threads as the primitive was made for: those of the ThreadLimit it is built under.
class OnednnKernel : public Kernel {
 public:
  OnednnKernel(dnnl::primitive primitive, std::vector<Argument> arguments,
               dnnl::memory::desc scratchpad, std::string description);
  /// An argument that is not an operand: packed weights, and how they lie.
  void own(int id, const Tensor& weights, const dnnl::memory::desc& desc);
  /// Operands to copy first, for the arguments that name them.
  void pack_first(std::vector<Packing> packings);
  /// The primitive adds to its result, which begins as a copy of this operand.
  void add_to(Packing packing);
  /// The result is computed in scratch memory and copied to its operand at the end.
  void unpack_last(Packing packing);

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override;
  std::size_t scratch_bytes() const override { return packed_bytes_ + scratchpad_.get_size(); }
  std::string description() const override { return description_; }
  std::vector<Tensor> constants() const override { return constants_; }

 private:
  // What one run at a time needs of oneDNN's objects.
  struct Call {
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;      // of arguments_, then the scratchpad
    std::vector<dnnl_exec_arg_t> arguments;  // all of them, then those owned
  };
  std::unique_ptr<Call> new_call() const;
  void run_here(std::span<std::byte* const> operands, std::byte* scratch) const;
  void reserve(Packing& packing, const Strides& in_scratch);

  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  std::unordered_map<int, dnnl::memory> owned_;
  std::vector<Tensor> constants_;  // whose memory that is
  mutable Pool<Call> calls_;
  std::vector<Packing> packings_;
  std::optional<Packing> summand_, unpacking_;
  std::size_t packed_bytes_ = 0;
  dnnl::memory::desc scratchpad_;
  std::string description_;
  int threads_;
};

}  // namespace tensor::cpu
