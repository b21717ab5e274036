// vit: see vit --help.
#include "models/vit/vit_program.h"

int main(int argc, char** argv) {
  return models::run_program(*models::vit::make_program(), argc, argv);
}
