/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a fault file. */
#include "test/fabric/rule.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct fab_rule_spec spec;
	char why[160] = "";
	char *text = malloc(len_bytes + 1);

	if (!text) {
		return 0;
	}
	memcpy(text, data, len_bytes);
	text[len_bytes] = 0;
	if (fab_rule_parse(text, &spec, why, sizeof(why)) && why[0] == 0) {
		abort(); /* a mistake is always explained */
	}
	free(text);
	return 0;
}
