# What every test of the project has in its environment.

# A cache of their own: no kernels and no tuning log of whoever runs them.
set(TENSOR_TEST_ENVIRONMENT TENSOR_CACHE_DIR=${PROJECT_BINARY_DIR}/cache)

# tensor_test_environment(): gives it to the tests that add_test() made in this folder.
function(tensor_test_environment)
  get_property(tests DIRECTORY PROPERTY TESTS)
  if(tests)
    set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT ${TENSOR_TEST_ENVIRONMENT})
  endif()
endfunction()
