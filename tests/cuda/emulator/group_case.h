// A function on tensors as one group of a kernel family, against the same in float64. Operands lie
// in memory of any layout, what is written is poisoned before, and what belongs to no element must
// stay so.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/trace/passes/passes.h"
#include "src/trace/trace.h"
#include "tests/cuda/emulator/emulator.h"

namespace tensor::emulator {

using Tensors = std::vector<Tensor>;

/// A value's root in memory that begins at a multiple of 1,024 bytes, between guards.
class Placed {
 public:
  Placed(const Layout& layout, DType dtype);
  std::byte* data() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  Tensor tensor() const;
  void poison();
  /// "" or which byte was written that belongs to no element.
  std::string stray_write() const;

 private:
  Layout layout_;
  DType dtype_;
  std::shared_ptr<std::vector<std::byte>> storage_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

class GroupCase {
 public:
  using Lower =
      std::function<cuda::Lowered(const LaidOutGraph&, const Group&, const cuda::Machine&)>;
  using Run = std::function<void(const cuda::Lowered&, std::span<const Operand>,
                                 std::span<const Tensor> packed)>;

  /// All operators of `function` as one group. Tensors that the function holds are constants. With
  /// `random` the inputs and outputs get random strides; else those that lay_out gives them. `pass`
  /// comes after tracing.
  GroupCase(const TensorFunction& function, const Tensors& inputs, std::mt19937* random = nullptr,
            Graph (*pass)(const Graph&) = nullptr);
  /// Groups of a graph that run one after the other.
  GroupCase(LaidOutGraph laid, std::vector<Group> groups, const Tensors& inputs);

  const LaidOutGraph& laid() const { return laid_; }
  const Group& group() const { return groups_.front(); }
  const std::vector<Group>& groups() const { return groups_; }
  bool accepted(const cuda::Family& family, const cuda::Machine& machine) const;

  /// Runs what is said of every group and compares every write. A failure names the description.
  void check(const std::vector<cuda::Lowered>& lowered, const Run& run);
  void check(const cuda::Lowered& lowered, const Run& run) { check(std::vector{lowered}, run); }

  /// What is written, in float64, where every operator's rounding to its type is left out; and how
  /// far off results may be that are calculated in float32 and rounded where the graph says so. It
  /// is measured: operands of every operator and results are changed by random roundings (sums of n
  /// by sqrt(n) of them), and eight standard deviations are allowed, besides the rounding of the
  /// result.
  struct Reference {
    std::vector<double> values, bounds;
  };
  const std::map<ValueId, Reference>& reference();  // of what is written

 private:
  void place(const Tensors& inputs, std::mt19937* random);
  bool run_group(const Group& group, const cuda::Lowered& lowered, const Run& run);
  void compare(const Group& group, const std::string& what);
  Operand operand(ValueId id);
  Tensor view_of(ValueId id);

  LaidOutGraph laid_;
  std::vector<Group> groups_;
  std::vector<ValueId> root_;
  std::map<ValueId, Placed> memory_;  // by root
  std::map<ValueId, Reference> reference_;
};

/// The case on the emulator, lowered for a typical GPU of this capability in both forms of kernels
/// (Machine::any_extent), in several orders of blocks, warps and lanes.
void expect_emulated(GroupCase& group, const GroupCase::Lower& lower, int capability,
                     int seeds = 2);
/// The same by a family, which must accept it.
void expect_emulated(GroupCase& group, const cuda::Family& family, int capability, int seeds = 2);

/// A function compiled as compile() does it for this machine: the groups of its plan.
struct Planned {
  Planned(const TensorFunction& function, const Tensors& inputs, const Precision& precision,
          const cuda::Machine& machine);
  GroupCase groups;
  std::vector<cuda::Lowered> lowered;
  std::string on_host;  // the operators of groups that no kernel of the GPU runs, a line a group

 private:
  using Laid = std::pair<LaidOutGraph, FusionPlan>;
  Planned(const Laid& plan, const Tensors& inputs, const cuda::Machine& machine);
};

/// Such a plan for a typical GPU of this capability on the emulator, nothing of it on the host.
void expect_plan_emulated(const TensorFunction& function, const Tensors& inputs,
                          const Precision& precision, int capability);

}  // namespace tensor::emulator
