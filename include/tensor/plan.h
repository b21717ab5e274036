// Plan: compiled models as files, or in memory: executables for any number of sizes, and their
// weights once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/device.h"
#include "tensor/executable.h"
#include "tensor/handle.h"

namespace tensor {

namespace detail {
struct PlanData;
}

/// How executables of a plan are built: as in CompileOptions.
struct LoadOptions {
  Device device = {};
  /// The plan has the parts of the batch as its sizes, as executables for several devices put them
  /// there. UserError if the largest has two items or more, and does not compute each by itself.
  std::vector<Device> devices = {};
  std::vector<std::size_t> whole_inputs = {};
  int threads = 0;
  int spin_us = -1;
  std::int64_t memory_limit = 0;
  /// Unset: with the others that the same plan, or a copy of it, loads.
  std::optional<Sharing> sharing = std::nullopt;
};

/// The executables of one model, for one kind of device and one dtype, by the types of their inputs
/// ("sizes"): each as its graph and its partition into kernels. Constants that they share, by their
/// elements, are there once: in memory, in the file, and between what is loaded and what is
/// compiled, where both have one Sharing. Copies are cheap, and do not see what is added later.
class TENSOR_API Plan {
 public:
  using About = std::map<std::string, std::string>;
  using Size = std::vector<TensorType>;

  /// No sizes yet.
  Plan();
  /// The same, with what it is of: the model's name, say. UserError on an entry "plan", or one that
  /// begins with "plan.".
  static Plan of(About about);

  /// Reads what `save` wrote. The weights are a mapping of the file, which another file may replace
  /// meanwhile, but nobody may write into. UserError on a file that cannot be read, is truncated,
  /// damaged or no plan, or is of another version of the format: compile the model again. Sizes are
  /// looked at when they are built. Changed weights are not detected: safetensors files have no
  /// checksum.
  static Plan load(const std::string& path);
  /// The same from memory, such as an array of the program; `name` is how messages call it. The
  /// weights are used where they lie, and copied only if the address is no multiple of their
  /// elements' size (8 serves all): `bytes` must stay as they are as long as the plan, copies of it
  /// and executables that it loaded.
  static Plan parse(std::span<const std::byte> bytes, const std::string& name = "plan");

  const About& about() const;
  std::vector<Size> sizes() const;
  bool holds(const Size& inputs) const;
  /// Whether executable() has all that it needs: with options.devices every part.
  bool holds(const Size& inputs, const LoadOptions& options) const;
  /// What was said about a size when it was added. UserError, as below, where it is not there.
  const About& about(const Size& inputs) const;
  /// The same of what executable() would load: with options.devices of the first part.
  const About& about(const Size& inputs, const LoadOptions& options) const;
  /// Builds the kernels of a size for this machine, without tracing or planning. UserError, which
  /// lists the sizes that are there, on another one; on one whose description is damaged, or which
  /// no kernel of this build runs; if there is no such device; and as compile() over memory_limit.
  Executable executable(const Size& inputs, const LoadOptions& options = {}) const;

  /// False where there is an executable of these input types already, which stays. One for several
  /// devices is added as its parts, and `about` is said of each. UserError on one that was compiled
  /// for another kind of device or another dtype than the others.
  bool add(const Executable& executable, About about = {});
  /// UserError if the file cannot be written; what was there before stays then.
  void save(const std::string& path) const;
  std::vector<std::byte> bytes() const;
  /// Adds a size to the file, or begins it. Several processes may do so at a time: none loses what
  /// another adds, and at no moment is there half a file. False where the file has that size.
  /// UserError as in load, add and save, where the file is about something else, and on a file
  /// system without locks.
  static bool grow(const std::string& path, const About& about, const Executable& executable,
                   const About& about_size = {});

  const std::shared_ptr<const detail::PlanData>& data() const { return data_; }

 private:
  std::shared_ptr<const detail::PlanData> data_;
};

/// The one executable of a plan, sharing with nobody; UserError if there are several, or none. Else
/// as Plan::load and Plan::executable.
TENSOR_API Executable load_executable(const std::string& path, int threads = 0,
                                      const Device& device = {});
/// The same from memory, as Plan::parse.
TENSOR_API Executable load_executable(std::span<const std::byte> bytes, int threads = 0,
                                      const Device& device = {});

}  // namespace tensor
