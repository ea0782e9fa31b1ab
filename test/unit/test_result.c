/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/result.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_classes(void **state)
{
	static const int remote[] = {ECONNRESET, ECONNREFUSED, ECONNABORTED, EPIPE,
				     ENOTCONN,   ESHUTDOWN,    EHOSTDOWN,    EHOSTUNREACH,
				     ENETDOWN,   ENETRESET,    ENETUNREACH,  ETIMEDOUT,
				     EREMOTEIO,  EPROTO,       EBADMSG,      EPROTONOSUPPORT};
	static const int system[] = {ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EBUSY, EFAULT};
	static const int argument[] = {EINVAL, EBADF, ERANGE, EOVERFLOW};

	(void)state;
	for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++) {
		assert_int_equal(result_from_errno(-remote[i]), 6);
	}
	for (size_t i = 0; i < sizeof(system) / sizeof(system[0]); i++) {
		assert_int_equal(result_from_errno(-system[i]), 2);
	}
	for (size_t i = 0; i < sizeof(argument) / sizeof(argument[0]); i++) {
		assert_int_equal(result_from_errno(-argument[i]), 4);
	}
	assert_int_equal(result_from_errno(-EIO), 3);
	assert_int_equal(result_from_errno(0), 0);
}

/* Nothing but 0 may look like success or like "in progress", whatever a bug returns. */
static void test_every_number(void **state)
{
	(void)state;
	for (int rc = -5000; rc <= 5000; rc++) {
		enum nccl_result result = result_from_errno(rc);

		if (rc == 0) {
			assert_int_equal(result, NCCL_RESULT_SUCCESS);
		} else {
			assert_in_range(result, NCCL_RESULT_SYSTEM, NCCL_RESULT_REMOTE);
		}
		if (rc > 0 || rc < -200) {
			assert_int_equal(result, NCCL_RESULT_INTERNAL);
		}
	}
	assert_int_equal(result_from_errno(INT_MIN), NCCL_RESULT_INTERNAL);
	assert_int_equal(result_from_errno(INT_MAX), NCCL_RESULT_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_every_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
