// What nearly every test includes, compiled once (tests/CMakeLists.txt). Tests include it
// themselves, too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
