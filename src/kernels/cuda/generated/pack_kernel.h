// Kernels over packs: every thread calculates a few neighbouring elements of the results, from
// operands of any strides. An element comes from operands directly or from a source: an operator
// that finds or folds elements of its operands by their coordinates (concatenate, interpolate ...);
// elementwise operators follow.
#pragma once

#include <span>

#include "src/kernels/cuda/generated/expression.h"
#include "src/kernels/cuda/generated/extents.h"
#include "src/kernels/cuda/generated/operands.h"
#include "tensor/text.h"

namespace tensor::cuda {

/// Elements of an operand in the order in which a kernel goes through them.
struct Access {
  std::string pointer;  // its parameter
  DType dtype = f32;
  Shape extents;  // outermost first
  Strides strides;
  std::int64_t offset = 0;  // of the first element from its aligned memory

  /// How far apart the places of a run are, where threads have runs.
  std::int64_t across = 0;

  /// Of the innermost axes that memory has as one: how many elements, how far apart.
  struct Inner {
    std::int64_t extent, stride;
  };
  Inner inner() const;
  /// Whether `pack` neighbours from a multiple of `pack` on are one aligned piece of memory.
  bool is_packed(int pack) const;
};

/// Writes what fills the packs of a source.
class SourceWriter {
 public:
  struct Operand {
    std::string pointer;
    Layout layout;
    DType dtype;
  };
  SourceWriter(int pack, int run, int inner, std::vector<std::string> coordinates,
               Extents& numbers_of_kernel)
      : numbers(numbers_of_kernel),
        pack_(pack),
        run_(run),
        inner_(inner),
        coordinates_(std::move(coordinates)) {}

  Extents& numbers;
  TextWriter text;
  std::vector<Operand> operands;  // of the source's node

  int pack() const { return pack_; }
  /// Packs that are filled at once: neighbours along the last axis.
  int run() const { return run_; }
  /// Of the (first) pack's first element, an int, along every axis of the source's result.
  const std::vector<std::string>& coordinates() const { return coordinates_; }
  /// The axis of the result that a pack lies along.
  int inner() const { return inner_; }
  /// Loads the elements of an operand from these coordinates on, along its axis `along`, into `to`.
  /// `aligned`: its coordinate there is a multiple of the pack.
  void load(const std::string& to, std::size_t operand, const std::vector<std::string>& coordinates,
            int along, bool aligned);

 private:
  int pack_, run_, inner_;
  std::vector<std::string> coordinates_;
};

/// An operator that a kernel over packs can begin with.
struct PackSource {
  Op op;
  /// Whether the node's types and attributes can be run.
  bool (*accepts)(const Graph& graph, ValueId id);
  /// Whether packs of so many elements along axis `inner` can be filled.
  bool (*fits)(const Graph& graph, ValueId id, int inner, int pack);
  /// Declares the array `to` of the node's compute type, pack after pack, and fills it.
  void (*write)(const Graph& graph, ValueId id, SourceWriter& writer, const std::string& to);
  /// Loads of an element of the result.
  double (*loads)(const Graph& graph, ValueId id);
  /// How many neighbours along the last axis, from a multiple of that number on, share what they
  /// load: a power of two that its extent is a multiple of. Null where none do. `any_extent` as of
  /// the machine.
  int (*most_run)(const Graph& graph, ValueId id, bool any_extent) = nullptr;
};

/// One table a family, in that family's file.
std::span<const PackSource> copy_sources();
std::span<const PackSource> image_sources();

/// The answer of a family of that name: it takes groups of elementwise operators behind sources of
/// this table, at least one of them unless the table is empty.
std::optional<Implementation> consider_packs(std::span<const PackSource> sources,
                                             std::string_view family, const Isolated& alone,
                                             const Machine& machine);

/// Text that loads a thread's array of `size` elements of the memory at `from`, which lie together
/// (`is_packed`) or `stride` apart; and text that stores it.
std::string load_text(const std::string& array, const std::string& from, int size, bool is_packed,
                      std::int64_t stride, Extents& numbers);
std::string store_text(const std::string& to, const std::string& array, int size, bool is_packed,
                       std::int64_t stride, Extents& numbers);

/// Time to move so many bytes, from the second-level cache when they fit there, with the latency
/// that any kernel has.
double moving_us(const Machine& machine, double bytes);
/// Time of `count` elements of an operator on the cores.
double computing_us(const Machine& machine, Op op, double count);

/// "exp_add_relu": the operators of a group for a kernel's name, the first few of them.
std::string names_of(const Graph& graph, const Group& group);

}  // namespace tensor::cuda
