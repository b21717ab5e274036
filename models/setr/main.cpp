// setr: says what every pixel of an image belongs to.
#include "models/setr/setr_program.h"

int main(int argc, char** argv) {
  models::setr::SetrProgram program;
  return models::run_program(program, argc, argv);
}
