/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_HCA_FILTER_H
#define BRAID_IB_HCA_FILTER_H

#include <stdbool.h>

enum {
	HCA_FILTER_TOKENS_MAX = 32,
	HCA_FILTER_NAME_MAX = 64
};

/** One element of NCCL_IB_HCA: name[:port[:rail[:plane]]]; numbers not given are -1. */
struct hca_token {
	char name[HCA_FILTER_NAME_MAX];
	int port, rail_id, plane_id;
	bool used; /* something matched it */
};

/**
 * NCCL_IB_HCA parsed. Comma list; a leading '^' excludes what the list names, a '=' after it wants
 * the whole name, otherwise a token matches every name it is a prefix of.
 */
struct hca_filter {
	bool exclude, exact;
	unsigned int count; /* 0: every device passes */
	struct hca_token tokens[HCA_FILTER_TOKENS_MAX];
};

/**
 * Parse; text NULL or "": everything passes. Empty elements are skipped, as NCCL does. 0, or
 * -EINVAL and *wrong a static text saying what is malformed.
 */
int ib_hca_filter_parse(const char *text, struct hca_filter *out, const char **wrong);

/** May this port be used? Marks the token that matched; *token is that one, NULL when none did. */
bool ib_hca_filter_match(struct hca_filter *filter, const char *name, int port,
			 const struct hca_token **token);

#endif
