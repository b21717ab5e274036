// Executable: what compile() makes of a function. It runs, reports, and is saved and read back.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tensor/device.h"
#include "tensor/handle.h"

namespace tensor {

namespace detail {
class Common;
struct Program;
}  // namespace detail

/// What executables of one model share, if they are made with copies of one Sharing: constants
/// in the forms that their kernels want (folded, cast, packed, on a GPU), each of which is there
/// once as long as any of them needs it, and the memory of calls. They may be for any sizes, types
/// and devices. Compiled has one for its executables, and Plan for those that it loads.
class TENSOR_API Sharing {
 public:
  Sharing();
  const std::shared_ptr<detail::Common>& common() const { return common_; }

 private:
  std::shared_ptr<detail::Common> common_;
};

/// Bytes that an executable holds of its device's memory: a GPU's, without the code of its kernels,
/// which the driver keeps (a few kilobytes each), or the host's, without files that are mapped.
struct DeviceMemory {
  std::int64_t weights = 0;  ///< constants, also in the layout that the kernels need
  /// Intermediate values and scratch of as many calls as were made at a time, by this executable
  /// and those that share with it (Sharing).
  std::int64_t arena = 0;
  std::int64_t other = 0;  ///< copies of inputs and outputs that are on the host
  /// What stays when this executable goes: others that share hold it, too, or on the host the
  /// function itself.
  std::int64_t shared = 0;
  std::int64_t total() const { return weights + arena + other; }
  std::int64_t own() const { return total() - shared; }
};

/// A compiled function. Immutable and cheap to copy. Any number of threads may run it at a time;
/// each call uses an arena of its own, which is then reused.
///
/// One for several devices (CompileOptions::devices) has a part for each, of which a call runs all
/// at a time: the first in the calling thread, the others in threads that sleep between calls.
///
/// On the CPU it also runs in children that the process forks while no other thread of it is in a
/// call. On a GPU children get a UserError.
class TENSOR_API Executable {
 public:
  explicit Executable(std::shared_ptr<const detail::Program> program)
      : program_(std::move(program)) {}

  /// Inputs of the types it was compiled for (UserError otherwise), on the host or on the device it
  /// was compiled for (of several: on the host alone). Inputs may have any strides. Outputs are
  /// newly allocated, on the device if any input is.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// Writes into the given outputs, each on the host or on the device, wherever the inputs are. On
  /// the device, only what is not aligned or not contiguous is copied. Outputs must be
  /// contiguous and share no memory with the inputs or each other (UserError otherwise, before
  /// anything is written). After warm-up (once this many concurrent calls have been made) nothing
  /// is allocated, except by operators that have only a reference kernel, inside oneDNN and, of
  /// several devices, for the views of their parts.
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const;
  /// The same until `stop` is requested, by any thread: throws Cancelled when the kernels that are
  /// under way are done; what the outputs hold then is not told. On a GPU kernels are started one
  /// by one, a few ahead, which takes longer than a graph of them: pass a token only where a run
  /// may be given up. Of several devices, the parts of a batch.
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
           const std::stop_token& stop) const;

  const std::vector<TensorType>& input_types() const;
  const std::vector<TensorType>& output_types() const;
  // Of several devices: the sums.
  std::int64_t arena_bytes() const;  ///< memory for intermediate values, for each concurrent call
  std::int64_t arena_lower_bound() const;  ///< the most that is alive at any step
  std::size_t group_count() const;         ///< of several devices: the first one's
  DeviceMemory device_memory() const;
  /// On each of the devices, in their order.
  std::vector<std::pair<Device, DeviceMemory>> memory_by_device() const;

  // report, time and profile begin with one warm-up run. Inputs are as for a call. Of several
  // devices report() has the table of the first and the memory of all; time() their slowest.

  /// Runs `repeats` times (at least once) and prints a table, with one row for groups of equal
  /// structure: operators, place in the model, time (median), roofline time as a share of it,
  /// kernel, and the estimated times of the group and of its operators as separate kernels.
  void report(std::ostream& out, const std::vector<Tensor>& inputs, int repeats = 10) const;
  /// The microseconds of each of `repeats` runs; on a GPU without copying inputs and outputs.
  std::vector<double> time(const std::vector<Tensor>& inputs, int repeats) const;
  /// Runs once and writes the time of every group as a Chrome trace (open it in
  /// https://ui.perfetto.dev). UserError if the file cannot be written.
  void profile(const std::string& path, const std::vector<Tensor>& inputs) const;

  /// Writes a plan of this executable alone (tensor/plan.h), with `about`. UserError as there.
  void save(const std::string& path, const std::map<std::string, std::string>& about = {}) const;

  const detail::Program& program() const { return *program_; }

 private:
  std::shared_ptr<const detail::Program> program_;
};

/// How one group's kernel compares with the reference operators on the same inputs.
struct GroupCheck {
  std::string operators;  ///< "matmul, add, gelu"
  std::string where;      ///< by the names of the model's parameters
  std::string kernel;
  double error = 0;  ///< the largest difference, relative to the largest magnitude of the reference
  /// What rounding explains: a few eps of the storage type, times sqrt of the longest sum. Infinite
  /// where sums or squares of the inputs may leave float32 (docs/differences.md).
  double bound = 0;
  bool ok() const { return error <= bound; }
};

/// Runs every group on inputs computed by the reference operators and compares its outputs with
/// theirs, in the order of execution. A NaN that only one of the two has is an infinite error (on
/// the CPU, relu behind a product may make 0 of it: see ops.h). Values are freed after their last
/// use. UserError on inputs of types other than those that it was compiled for.
TENSOR_API std::vector<GroupCheck> verify(const Executable& executable,
                                          const std::vector<Tensor>& inputs);

}  // namespace tensor
