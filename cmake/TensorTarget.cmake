# Without depend mode a file that is not in the cache goes through the preprocessor twice; without the sloppiness none
# that uses a precompiled header is kept.
find_program(TENSOR_CCACHE ccache)
if(TENSOR_CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
                                  ${TENSOR_CCACHE})
endif()

# tensor_target(NAME): the language level, warnings and sanitizers that every target of this project shares.

function(tensor_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${name} PRIVATE -Wno-restrict)  # wrong on "text" + string: GCC bug 105651
  endif()
  if(TENSOR_WARNINGS_AS_ERRORS)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(TENSOR_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${TENSOR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${name} PUBLIC -fsanitize=${TENSOR_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # whose manual warns of false alarms in instrumented code
      target_compile_options(${name} PRIVATE -Wno-maybe-uninitialized)
    endif()
  endif()
endfunction()
