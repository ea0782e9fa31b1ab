/* SPDX-License-Identifier: Apache-2.0 */
#include "include/config_parse.h"

#include "include/log.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define NAME_COMPARED_MAX 64U

/* Decimal or 0x digits, no blanks and no plus sign; *end is where they stop. */
static const char *parse_digits(const char *text, int64_t *out, const char **end)
{
	const char *digits = text[0] == '-' ? text + 1 : text;
	bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
	char *stop;

	if (digits[0] < '0' || digits[0] > '9') {
		return "not a whole number";
	}
	errno = 0;
	long long value = strtoll(text, &stop, hex ? 16 : 10);

	if (errno == ERANGE) {
		return "out of range";
	}
	*out = value;
	*end = stop;
	return NULL;
}

/* Take a K, M or G at *end into account. */
static const char *parse_suffix(int64_t *value, const char **end)
{
	static const char suffixes[] = "KMG";
	const char *found = **end != '\0' ? strchr(suffixes, **end & ~0x20) : NULL;

	if (found == NULL) {
		return NULL;
	}
	int shift = 10 * (int)(found - suffixes + 1);

	if (*value < 0 || *value > (INT64_MAX >> shift)) {
		return "out of range";
	}
	*value <<= shift;
	(*end)++;
	return NULL;
}

static const char *parse_ranged(const struct config_row *row, const char *text, int64_t *out)
{
	const char *end;
	int64_t value;
	const char *wrong = parse_digits(text, &value, &end);

	if (wrong == NULL && (row->type == CONFIG_BYTES || row->type == CONFIG_LINES)) {
		wrong = parse_suffix(&value, &end);
	}
	if (wrong != NULL) {
		return wrong;
	}
	if (*end != '\0') {
		return "not a whole number";
	}
	if (value < row->min || value > row->max) {
		return "out of range";
	}
	if (row->type == CONFIG_LINES && value % 128 != 0) {
		return "not a multiple of 128";
	}
	*out = value;
	return NULL;
}

static const char *parse_bool(const char *text, int64_t *out)
{
	if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
		return "neither 0 nor 1";
	}
	*out = text[0] - '0';
	return NULL;
}

static const char *parse_family(const char *text, int64_t *out)
{
	if (strcmp(text, "AF_INET") == 0) {
		*out = AF_INET;
	} else if (strcmp(text, "AF_INET6") == 0) {
		*out = AF_INET6;
	} else {
		return "neither AF_INET nor AF_INET6";
	}
	return NULL;
}

static const char *parse_stripe(const char *text, int64_t *out)
{
	const struct config_row count = {.type = CONFIG_INT, .min = 1, .max = 64};

	if (strcmp(text, "near") == 0) {
		*out = CONFIG_STRIPE_NEAR;
	} else if (strcmp(text, "all") == 0) {
		*out = CONFIG_STRIPE_ALL;
	} else if (strcmp(text, "none") == 0) {
		*out = CONFIG_STRIPE_NONE;
	} else {
		return parse_ranged(&count, text, out) != NULL
			       ? "none of near, all, none and a count up to 64"
			       : NULL;
	}
	return NULL;
}

const char *config_parse_number(const struct config_row *row, const char *text, int64_t *out)
{
	switch (row->type) {
	case CONFIG_INT:
	case CONFIG_BYTES:
	case CONFIG_LINES:
		return parse_ranged(row, text, out);
	case CONFIG_BOOL:
		return parse_bool(text, out);
	case CONFIG_FAMILY:
		return parse_family(text, out);
	case CONFIG_STRIPE:
		return parse_stripe(text, out);
	case CONFIG_STRING:
	case CONFIG_LIST:
	case CONFIG_CIDR:
	case CONFIG_IGNORED:
	case CONFIG_TYPE_COUNT:
		break;
	}
	return "not a number's type";
}

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-' || c == '.' || c == '@';
}

/* `item`, `len` long: a name, then numbers after colons (port, and from 2.30 rail and plane). */
static const char *parse_list_item(const char *item, size_t len)
{
	size_t name_len = 0;

	while (name_len < len && name_char(item[name_len])) {
		name_len++;
	}
	if (name_len == 0) {
		return item[0] == '^' || item[0] == '='
			       ? "a ^ or = is allowed only once, at the start (^ before =)"
			       : "a character that no name holds";
	}
	if (name_len >= CONFIG_NAME_MAX_BYTES) {
		return "a name too long";
	}
	unsigned number_count = 0;
	size_t at = name_len;

	while (at < len && item[at] == ':') {
		size_t start = ++at;

		while (at < len && item[at] >= '0' && item[at] <= '9') {
			at++;
		}
		if (at == start || at - start > 3) {
			return "something else than a number after a colon";
		}
		if (++number_count > 3) {
			return "more than three numbers after a name";
		}
	}
	return at == len ? NULL : "a character that no name holds";
}

static const char *parse_list(const char *text)
{
	text += *text == '^';
	text += *text == '=';
	const char *wrong = "no name in it";

	/* Empty names between commas are skipped, as NCCL does. */
	for (;;) {
		size_t len = strcspn(text, ",");

		if (len > 0) {
			wrong = parse_list_item(text, len);
		}
		if (text[len] == '\0' || (len > 0 && wrong != NULL)) {
			return wrong;
		}
		text += len + 1;
	}
}

static const char *parse_cidr(const char *text)
{
	char address[INET6_ADDRSTRLEN];
	const char *slash = strchr(text, '/');
	struct config_row bits = {.type = CONFIG_INT, .min = 0, .max = 32};
	unsigned char raw[16];
	int64_t len;

	if (slash == NULL || (size_t)(slash - text) >= sizeof(address)) {
		return "not address/length";
	}
	memcpy(address, text, (size_t)(slash - text));
	address[slash - text] = '\0';
	if (inet_pton(AF_INET6, address, raw) == 1) {
		bits.max = 128;
	} else if (inet_pton(AF_INET, address, raw) != 1) {
		return "not an address before the slash";
	}
	return parse_ranged(&bits, slash + 1, &len) != NULL ? "not a prefix length after the slash"
							    : NULL;
}

const char *config_parse_text(const struct config_row *row, const char *text)
{
	if (strlen(text) >= CONFIG_TEXT_MAX_BYTES) {
		return "too long";
	}
	if (row->type == CONFIG_LIST) {
		return parse_list(text);
	}
	if (row->type == CONFIG_CIDR) {
		return parse_cidr(text);
	}
	return NULL;
}

unsigned config_name_distance(const char *a, const char *b)
{
	unsigned row[NAME_COMPARED_MAX + 1];
	size_t b_len = strnlen(b, NAME_COMPARED_MAX);

	for (unsigned j = 0; j <= b_len; j++) {
		row[j] = j;
	}
	for (unsigned i = 1; i <= NAME_COMPARED_MAX && a[i - 1] != '\0'; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			best = best < row[j] + 1 ? best : row[j] + 1;
			best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[b_len];
}
