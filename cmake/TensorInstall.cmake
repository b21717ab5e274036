# Installing: the library, its headers, a CMake package (find_package(tensor)) and a pkg-config file. Components are the
# packages: library (what programs need to run), dev (to build them), programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tensor EXPORT tensorTargets LIBRARY COMPONENT library NAMELINK_COMPONENT dev ARCHIVE COMPONENT dev
        FILE_SET HEADERS COMPONENT dev)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensor)
install(EXPORT tensorTargets NAMESPACE tensor:: DESTINATION ${package_dir} COMPONENT dev)

get_target_property(type tensor TYPE)
string(COMPARE EQUAL "${type}" STATIC_LIBRARY TENSOR_IS_STATIC)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tensorConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tensorConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tensorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensorConfig.cmake ${PROJECT_BINARY_DIR}/tensorConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)

set(TENSOR_PRIVATE_LIBS "-lz -lturbojpeg -pthread")
set(TENSOR_DEV_PACKAGES "zlib1g-dev, libturbojpeg0-dev")
if(TENSOR_WITH_ONEDNN)
  string(APPEND TENSOR_PRIVATE_LIBS " -ldnnl -lgomp")
  string(APPEND TENSOR_DEV_PACKAGES ", libdnnl-dev, opencl-headers, ocl-icd-opencl-dev")
endif()
if(TARGET PkgConfig::TENSOR_XGBOOST)
  string(APPEND TENSOR_PRIVATE_LIBS " -lxgboost")
  string(APPEND TENSOR_DEV_PACKAGES ", libxgboost-dev")
endif()
# Relative, so that an installed tree may be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH TENSOR_PREFIX_FROM_PC /prefix/${pkgconfig_dir} /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tensor.pc.in ${PROJECT_BINARY_DIR}/tensor.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tensor.pc DESTINATION ${pkgconfig_dir} COMPONENT dev)
set(TENSOR_DEV_PACKAGES ${TENSOR_DEV_PACKAGES} PARENT_SCOPE)  # for TensorPackages.cmake
