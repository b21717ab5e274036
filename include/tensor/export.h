// Visibility: the shared library hides every symbol that is not marked TENSOR_API.
#pragma once

#if defined(_WIN32)
#define TENSOR_API
#else
#define TENSOR_API __attribute__((visibility("default")))
#endif
