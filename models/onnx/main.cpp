// onnx: see onnx --help.
#include <iostream>

#include "models/onnx/onnx_program.h"

int main(int argc, char** argv) {
  return models::onnx::run_onnx(std::vector<std::string>(argv + 1, argv + argc), std::cout,
                                std::cerr);
}
