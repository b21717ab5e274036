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
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Its manual warns of false alarms in instrumented code. These checks at every access let the library compile for
      # three times as long; AddressSanitizer finds what it can of them, the fuzzers, built by clang, keep them all.
      target_compile_options(${name} PRIVATE -Wno-maybe-uninitialized
                             -fno-sanitize=null,alignment,object-size,pointer-overflow,vptr)
    endif()
  endif()
endfunction()

# tensor_unity(NAME): with TENSOR_UNITY the files of a folder are compiled as one, in half the time.
function(tensor_unity name)
  if(NOT TENSOR_UNITY)
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
