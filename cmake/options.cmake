# SPDX-License-Identifier: Apache-2.0
# Build options and the flags every target of the tree is compiled with (target braid_options).

set(top_level OFF)
if(CMAKE_SOURCE_DIR STREQUAL PROJECT_SOURCE_DIR)
	set(top_level ON)
endif()

option(BRAID_WERROR "Treat warnings as errors" ${top_level})
set(BRAID_SANITIZE "" CACHE STRING "Sanitizers: empty, address,undefined or thread")
set_property(CACHE BRAID_SANITIZE PROPERTY STRINGS "" "address,undefined" "thread")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(braid_options INTERFACE)
target_compile_definitions(braid_options INTERFACE _GNU_SOURCE)
target_compile_options(braid_options INTERFACE
	-Wall -Wextra -Wshadow -Wconversion -Wswitch-enum -Wvla
	"-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/="
	$<$<BOOL:${BRAID_WERROR}>:-Werror>)
target_include_directories(braid_options INTERFACE
	"${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
target_link_libraries(braid_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

if(BRAID_SANITIZE)
	if(NOT BRAID_SANITIZE MATCHES "^(address,undefined|thread)$")
		message(FATAL_ERROR "BRAID_SANITIZE: '${BRAID_SANITIZE}' is neither empty, "
			"'address,undefined' nor 'thread'")
	endif()
	target_compile_options(braid_options INTERFACE
		-fsanitize=${BRAID_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
	target_link_options(braid_options INTERFACE -fsanitize=${BRAID_SANITIZE})
endif()
