#include "src/trace/passes/passes.h"

#include "src/trace/passes/cast.h"
#include "src/trace/passes/cast_images.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/early_convs.h"
#include "src/trace/passes/fold_scale.h"
#include "src/trace/passes/known_indices.h"
#include "src/trace/passes/pixel_products.h"
#include "src/trace/passes/round_rows.h"
#include "src/trace/passes/simplify.h"
#include "src/trace/passes/transposed_convs.h"
#include "src/trace/passes/trim.h"

namespace tensor {

std::vector<Pass> passes_for(const Precision& precision,
                             const std::function<Tensor(const Tensor&, DType)>& converted,
                             const Quantize& quantized,
                             const std::function<Graph(const Graph&)>& divided) {
  const DType dtype = precision.dtype;
  const FilterSums sums = precision.eight_bits || dtype != f32 ? FilterSums::none
                          : precision.tf32                     ? FilterSums::of_filters
                                                               : FilterSums::of_images;
  std::vector<Pass> passes = {
      {"fold_constants", fold_constants},
      {"trim", trim},
      {"simplify", simplify},
      {"known_indices", known_indices},
      {"fold_scale", [=](const Graph& g) { return fold_scale(g, dtype, sums); }},
      {"early_convs", early_convs},
      {"transposed_convs", transposed_convs},
      {"pixel_products", pixel_products}};
  if (precision.checks_apart) passes.push_back({"checked_indices", checked_indices});
  if (divided) passes.push_back({"divide_products", divided});
  if (precision.tf32) passes.push_back({"round", round_products});
  if (precision.eight_bits) {
    passes.push_back({"drop_dead", drop_dead});
    passes.push_back({"quantize", [precision, quantized](const Graph& g) {
                        return quantize_products(g, precision.wide, precision.rounds_rows,
                                                 quantized, precision.scales,
                                                 precision.byte_channels);
                      }});
  }
  if (dtype != f32) {
    const auto add = [&](bool is_wanted, std::string_view name,
                         Graph (*cast)(const Graph&, DType)) {
      if (is_wanted) passes.push_back({name, [=](const Graph& g) { return cast(g, dtype); }});
    };
    // Weights that were folded are still there: they would be rounded as well.
    passes.push_back({"drop_dead", drop_dead});
    passes.push_back({"cast", [=](const Graph& g) { return cast_products(g, dtype, converted); }});
    add(precision.eight_bits && !precision.rounds_rows, "cast_rows", cast_rows);
    add(precision.narrow_images, "cast_images", cast_images);
    add(precision.narrow_residuals, "cast_residuals", cast_residuals);
    add(precision.folds_norms, "cast_norms", cast_norms);
  }
  if (precision.eight_bits && precision.rounds_rows) passes.push_back({"round_rows", round_rows});
  passes.push_back({"eliminate", eliminate_common_and_dead});
  if (dtype != f32 && precision.narrow_residuals)
    passes.push_back({"split_casts", [=](const Graph& g) { return split_casts(g, dtype); }});
  return passes;
}

}  // namespace tensor
