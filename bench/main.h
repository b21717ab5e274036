// main() of the programs about logs.
#pragma once

#include <iostream>
#include <string_view>

#include "tensor/error.h"

namespace bench {

/// Prints `help` if that is asked for; otherwise runs the program, and tells of a UserError.
template <class Run>
int run_main(int argc, char** argv, const char* help, const Run& run) {
  if (argc == 2 && argv[1] == std::string_view("--help")) {
    std::cout << help;
    return 0;
  }
  try {
    run();
    return 0;
  } catch (const tensor::UserError& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

}  // namespace bench
