# SPDX-License-Identifier: Apache-2.0
# The plugin itself: libnccl-net-braid.so, every layer in one module that exports ncclNetPlugin_v*.

add_library(nccl-net-braid MODULE $<TARGET_OBJECTS:braid_plugin_objects>)
set_target_properties(nccl-net-braid PROPERTIES
	PREFIX lib
	SUFFIX .so
	LINK_DEPENDS "${PROJECT_SOURCE_DIR}/plugin/braid.map")
set(below ${BRAID_LIBS})
list(REMOVE_ITEM below braid_plugin)
target_link_libraries(nccl-net-braid PRIVATE braid_options ${below})
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
