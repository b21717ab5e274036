// The references of the generated tests: for every operator name what it should return, in naive
// loops over long double.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/generated/exact.h"

namespace tensor::generated {

using Arrays = std::vector<Array>;
using Results = std::vector<Expected>;
using Reference = std::function<Results(const Arrays&, const Attrs&)>;
using References = std::map<std::string, Reference, std::less<>>;

// One function a family; each adds its operators.
void add_pointwise_references(References& references);
void add_reduce_references(References& references);
void add_product_references(References& references);
void add_neural_references(References& references);
void add_image_references(References& references);
void add_shape_references(References& references);

const References& references();

/// The shape that arrays broadcast to; they do fit.
Shape common_shape(const Arrays& arrays);
/// The common element type of arrays.
DType common_type(const Arrays& arrays);
/// An array with every value rounded to a type.
Array as_type(const Array& array, DType dtype);
/// The type in which the library promises to compute on elements of this type: f32 for the 16-bit
/// ones.
inline DType compute_type(DType dtype) { return dtype == f16 || dtype == bf16 ? f32 : dtype; }
/// The axes in attribute `name`: all of them when absent, from the end when negative, sorted.
std::vector<int> axes_of(const Attrs& attrs, int rank, std::string_view name = "axis");
/// The one axis in attribute "axis".
int axis_of(const Attrs& attrs, int rank, int fallback);

}  // namespace tensor::generated
