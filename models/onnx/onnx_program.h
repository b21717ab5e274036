// The onnx program: runs the model of an ONNX file on files of arrays and on images.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace models::onnx {

/// Parses the arguments and does what they say. Returns the exit code, as run_program.
int run_onnx(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace models::onnx
