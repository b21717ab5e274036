// depth: says how far away every pixel of an image is.
#include "models/depth/depth_program.h"

int main(int argc, char** argv) {
  models::depth::DepthProgram program;
  return models::run_program(program, argc, argv);
}
