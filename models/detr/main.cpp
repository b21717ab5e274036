// detr: finds objects in images.
#include "models/detr/detr_program.h"

int main(int argc, char** argv) {
  models::detr::DetrProgram program;
  return models::run_program(program, argc, argv);
}
