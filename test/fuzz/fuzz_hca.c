/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL_IB_HCA. */
#include "ib/hca_filter.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct hca_filter filter;
	const char *wrong = NULL;
	char *text = malloc(len_bytes + 1);

	if (!text) {
		return 0;
	}
	memcpy(text, data, len_bytes);
	text[len_bytes] = 0;
	if (ib_hca_filter_parse(text, &filter, &wrong)) {
		if (!wrong || !wrong[0]) {
			abort(); /* a mistake is always explained */
		}
	} else if (filter.count > HCA_FILTER_TOKENS_MAX) {
		abort();
	}
	free(text);
	return 0;
}
