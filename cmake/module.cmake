# SPDX-License-Identifier: Apache-2.0
# The plugin itself: libnccl-net-braid.so, every layer in one module that exports ncclNetPlugin_v*.

# In Release the module is compiled by itself, so that the whole of it is optimised at once (about a
# sixth of the instructions per message); everything else links the plain objects of the layers.
include(CheckIPOSupported)
set(BRAID_MODULE_LTO OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT BRAID_SANITIZE)
	check_ipo_supported(RESULT BRAID_MODULE_LTO OUTPUT ignored LANGUAGES C)
endif()

if(BRAID_MODULE_LTO)
	file(GLOB module_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.c"
		"${PROJECT_SOURCE_DIR}/ib/*.c" "${PROJECT_SOURCE_DIR}/oob/*.c"
		"${PROJECT_SOURCE_DIR}/repair/*.c" "${PROJECT_SOURCE_DIR}/plugin/*.c")
	add_library(nccl-net-braid MODULE ${module_sources})
	set_target_properties(nccl-net-braid PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
	target_compile_options(nccl-net-braid PRIVATE -O3)
	target_link_libraries(nccl-net-braid PRIVATE braid_options braid_libev)
else()
	add_library(nccl-net-braid MODULE $<TARGET_OBJECTS:braid_plugin_objects>)
	set(below ${BRAID_LIBS})
	list(REMOVE_ITEM below braid_plugin)
	target_link_libraries(nccl-net-braid PRIVATE braid_options ${below})
endif()
set_target_properties(nccl-net-braid PROPERTIES
	PREFIX lib
	SUFFIX .so
	LINK_DEPENDS "${PROJECT_SOURCE_DIR}/plugin/braid.map")
target_link_options(nccl-net-braid PRIVATE
	-Wl,-soname,libnccl-net-braid.so
	-Wl,-z,nodelete
	-Wl,--exclude-libs,ALL
	"-Wl,--version-script,${PROJECT_SOURCE_DIR}/plugin/braid.map")
if(NOT BRAID_SANITIZE)
	# A sanitizer's symbols come from the host program, so only plain builds can insist.
	target_link_options(nccl-net-braid PRIVATE -Wl,-z,defs)
endif()

install(TARGETS nccl-net-braid LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")

# NCCL without NCCL_NET_PLUGIN loads libnccl-net.so, and NCCL 2.27 to 2.29 look for that name once
# the last communicator is gone, whatever the variable said.
option(BRAID_INSTALL_DEFAULT "Install a link libnccl-net.so: the plugin NCCL takes by itself" OFF)
if(BRAID_INSTALL_DEFAULT)
	add_custom_command(TARGET nccl-net-braid POST_BUILD
		COMMAND "${CMAKE_COMMAND}" -E create_symlink libnccl-net-braid.so
			"$<TARGET_FILE_DIR:nccl-net-braid>/libnccl-net.so")
	install(FILES "$<TARGET_FILE_DIR:nccl-net-braid>/libnccl-net.so"
		DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
