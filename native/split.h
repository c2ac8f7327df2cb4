/* The words of `env -S`: what a script's first line may hold behind it. */
#ifndef CAPSULE_SPLIT_H
#define CAPSULE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

struct words {
    char **items; /* NULL at the end */
    size_t count;
};

/*
 * Splits a string as GNU env's -S does: blanks separate, '...' and "..." group, backslash escapes, a word
 * that begins with # ends it. Environment variables (${NAME}) are not expanded.
 *
 * False, with `*reason` naming what, when a quote is not closed, an escape is unknown, or a variable is used.
 */
bool split_words(const char *string, struct words *words, const char **reason);

void free_words(struct words *words);

#endif
