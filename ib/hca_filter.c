/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/hca_filter.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ":number" at *at, up to end; leaves *out alone when there is none. */
static const char *parse_number(const char **at, const char *end, int *out)
{
	int value = 0;
	const char *digits;

	if (*at == end) {
		return NULL;
	}
	digits = ++*at;
	while (*at < end && **at >= '0' && **at <= '9' && value <= 9999) {
		value = value * 10 + (**at - '0');
		(*at)++;
	}
	if (*at == digits || (*at < end && **at != ':')) {
		return "a number is wanted after ':'";
	}
	*out = value;
	return NULL;
}

static const char *parse_token(const char *text, size_t len, struct hca_token *out)
{
	const char *end = text + len;
	const char *at = memchr(text, ':', len);
	int *const numbers[] = {&out->port, &out->rail_id, &out->plane_id};
	const char *wrong = NULL;
	size_t name_len = at != NULL ? (size_t)(at - text) : len;

	if (name_len == 0) {
		return "a name is wanted before ':'";
	}
	if (name_len >= HCA_FILTER_NAME_MAX) {
		return "a name is too long";
	}
	if (memchr(text, '^', name_len) != NULL || memchr(text, '=', name_len) != NULL) {
		return "'^' and '=' go only to the front of the list, '^' first";
	}
	memset(out, 0, sizeof(*out));
	memcpy(out->name, text, name_len);
	at = text + name_len;
	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		*numbers[i] = -1;
		if (wrong == NULL) {
			wrong = parse_number(&at, end, numbers[i]);
		}
	}
	return wrong == NULL && at < end ? "more than name:port:rail:plane" : wrong;
}

int ib_hca_filter_parse(const char *text, struct hca_filter *out, const char **wrong)
{
	struct hca_filter filter;

	memset(&filter, 0, sizeof(filter));
	if (text == NULL || text[0] == '\0') {
		*out = filter;
		return 0;
	}
	if (*text == '^') {
		filter.exclude = true;
		text++;
	}
	if (*text == '=') {
		filter.exact = true;
		text++;
	}
	while (*text != '\0') {
		size_t len = strcspn(text, ",");

		if (len > 0 && filter.count == HCA_FILTER_TOKENS_MAX) {
			*wrong = "more than 32 names";
			return -EINVAL;
		}
		if (len > 0) {
			*wrong = parse_token(text, len, &filter.tokens[filter.count]);
			if (*wrong != NULL) {
				return -EINVAL;
			}
			filter.count++;
		}
		text += len + (text[len] == ',');
	}
	if (filter.count == 0) {
		*wrong = "no name in it";
		return -EINVAL;
	}
	*out = filter;
	return 0;
}

static bool token_match(const struct hca_filter *filter, const struct hca_token *token,
			const char *name, int port)
{
	bool name_ok = filter->exact ? strcmp(name, token->name) == 0
				     : strncmp(name, token->name, strlen(token->name)) == 0;

	return name_ok && (token->port < 0 || token->port == port);
}

bool ib_hca_filter_match(struct hca_filter *filter, const char *name, int port,
			 const struct hca_token **token)
{
	*token = NULL;
	for (unsigned int i = 0; i < filter->count; i++) {
		struct hca_token *candidate = &filter->tokens[i];

		if (token_match(filter, candidate, name, port)) {
			candidate->used = true;
			*token = *token != NULL ? *token : candidate;
		}
	}
	if (filter->count == 0) {
		return true;
	}
	return (*token != NULL) != filter->exclude;
}
