// Algebraic simplification: a table of local rules, each correct by itself.
#pragma once

#include <optional>
#include <span>

#include "src/trace/rewrite.h"

namespace tensor {

/// A rule looks at one node, whose inputs are already rewritten, and may give an equal value for
/// it.
struct Rule {
  std::string_view name;
  std::optional<ValueId> (*apply)(Rewriter& rewriter, ValueId id, const Node& node);
};

/// The rules in the order in which they are tried: identities (x + 0, x * 1, x ** 1), views of
/// views, double transposes, casts that lose nothing, division by a constant, activations that were
/// spelled out, reductions of a few numbers, parts of concatenations, parts of filters that never
/// lie on the image, products of single rows that share their factors or by transposed weights of
/// attention.
std::span<const Rule> simplify_rules();

/// Applies the first rule that fits to every node. Test: tests/trace/simplify_test.cpp checks each
/// rule on random inputs.
Graph simplify(const Graph& graph);

}  // namespace tensor
