/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/intern.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct intern_node {
	struct intern_node *next;
	char text[];
};

/* Guarded by lock; bounded by the number of different PCI paths of the machine. */
static struct intern_node *head;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

char *ib_intern(const char *text)
{
	struct intern_node *node;
	size_t len = strlen(text);

	if (len == 0) {
		return NULL;
	}
	pthread_mutex_lock(&lock);
	for (node = head; node != NULL && strcmp(node->text, text) != 0; node = node->next) {
	}
	if (node == NULL) {
		node = malloc(sizeof(*node) + len + 1);
		if (node != NULL) {
			memcpy(node->text, text, len + 1);
			node->next = head;
			head = node;
		}
	}
	pthread_mutex_unlock(&lock);
	return node != NULL ? node->text : NULL;
}
