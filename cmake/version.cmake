# SPDX-License-Identifier: Apache-2.0
# include/version.h, written into the build tree: generated/include/version.h.

set(BRAID_COMMIT unknown)
find_package(Git QUIET)
if(GIT_FOUND)
	execute_process(
		COMMAND "${GIT_EXECUTABLE}" rev-parse --short=12 HEAD
		WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
		OUTPUT_VARIABLE commit RESULT_VARIABLE rc
		OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
	if(rc EQUAL 0)
		set(BRAID_COMMIT "${commit}")
	endif()
endif()
configure_file("${PROJECT_SOURCE_DIR}/include/version.h.in"
	"${PROJECT_BINARY_DIR}/generated/include/version.h" @ONLY)
