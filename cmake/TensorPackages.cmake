# Debian packages by `cpack -G DEB`, one for each component: libtensor0.1, libtensor-dev, tensor-programs.
set(CPACK_PACKAGE_NAME tensor)
set(CPACK_PACKAGE_CONTACT "The authors of tensor <tensor@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "vision models in C++")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library dev programs)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src ${PROJECT_BINARY_DIR}/models/c)

set(series ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libtensor${series})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# For dpkg-shlibdeps of others, and for ldconfig.
set(control ${PROJECT_BINARY_DIR}/packages)
set(shlibs "libtensor_c 0 libtensor${series} (>= ${PROJECT_VERSION})\n")
if(BUILD_SHARED_LIBS)
  string(APPEND shlibs "libtensor ${series} libtensor${series} (>= ${PROJECT_VERSION})\n")
endif()
file(WRITE ${control}/shlibs "${shlibs}")
file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${control}/shlibs;${control}/triggers")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
    "runs vision models (shared libraries)\n ViT, DETR, SETR and ONNX files on CPUs and NVIDIA GPUs, from C++ and C.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtensor-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libtensor${series} (= ${PROJECT_VERSION}), ${TENSOR_DEV_PACKAGES}")
set(CPACK_COMPONENT_DEV_DESCRIPTION
    "runs vision models (development files)\n Headers, libraries, the models' code, and files for CMake and pkg-config.")

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME tensor-programs)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION graphics)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION
    "runs vision models (programs)\n The programs vit, detr, setr, depth, onnx and demo-server with small weights,\n and a backend for Triton Inference Server.")

# What Debian wants in every package.
set(changelog ${control}/changelog)
file(WRITE ${changelog}
     "tensor (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * See the commits of the repository.\n\n -- The authors of tensor <tensor@localhost>  Thu, 01 Jan 2026 00:00:00 +0000\n")
set(copyright ${control}/copyright)
file(WRITE ${copyright} "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tensor

Files: *
Copyright: 2026 The authors of tensor
License: Apache-2.0
 On Debian systems, the text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
")
find_program(TENSOR_GZIP gzip)
if(TENSOR_GZIP)
  execute_process(COMMAND ${TENSOR_GZIP} -9nkf ${changelog})
endif()
foreach(component LIBRARY DEV PROGRAMS)
  string(TOLOWER ${component} lower)
  foreach(file ${changelog}.gz ${copyright})
    if(EXISTS ${file})
      install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${component}_PACKAGE_NAME} COMPONENT ${lower})
    endif()
  endforeach()
endforeach()
include(CPack)
