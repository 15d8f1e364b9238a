# SPDX-License-Identifier: BSD-3-Clause
# Installs the headers, the CMake package and the pkg-config file. All of them are relocatable, and their
# paths contain no architecture.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(scanrec_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/scanrec)
set(scanrec_pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)

target_include_directories(scanrec INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/scanrec DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(TARGETS scanrec EXPORT scanrecTargets)
install(EXPORT scanrecTargets NAMESPACE scanrec:: DESTINATION ${scanrec_package_dir})

# Before 1.0 a minor version may change the interface.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(scanrec_compatibility SameMinorVersion)
else()
  set(scanrec_compatibility SameMajorVersion)
endif()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/scanrecConfig.cmake.in ${PROJECT_BINARY_DIR}/scanrecConfig.cmake
  INSTALL_DESTINATION ${scanrec_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/scanrecConfigVersion.cmake
                                 COMPATIBILITY ${scanrec_compatibility} ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/scanrecConfig.cmake
              ${PROJECT_BINARY_DIR}/scanrecConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/scanrecCompiled.cmake
              ${PROJECT_SOURCE_DIR}/cmake/scanrecCuda.cmake
              ${PROJECT_SOURCE_DIR}/cmake/scanrecXsimd.cmake
        DESTINATION ${scanrec_package_dir})

# In the pkg-config file, an absolute CMAKE_INSTALL_INCLUDEDIR stays absolute. A relative one is relative to
# the prefix, which pkg-config finds from the location of that file.
file(RELATIVE_PATH scanrec_pc_prefix /prefix/${scanrec_pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" scanrec_pc_prefix "${scanrec_pc_prefix}")
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "/@" NORMALIZE
           OUTPUT_VARIABLE scanrec_pc_includedir)
string(REGEX REPLACE "^/@" "\${prefix}" scanrec_pc_includedir "${scanrec_pc_includedir}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/scanrec.pc.in ${PROJECT_BINARY_DIR}/scanrec.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/scanrec.pc DESTINATION ${scanrec_pkgconfig_dir})
