/*
 * Growing byte strings, and writing them to a file descriptor.
 *
 * The tools use no stdio: vfprintf wants a software floating-point library on aarch64, which a static
 * link against libc.a alone does not have, and it would be half of each program's size.
 */
#ifndef CAPSULE_TEXT_H
#define CAPSULE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A byte string that grows. `bytes` is NULL until something is added; then `bytes[length]` is 0. */
struct text {
    char *bytes;
    size_t length;
    size_t capacity;
};

void text_add(struct text *text, const void *bytes, size_t length);
void text_add_string(struct text *text, const char *string);
void text_add_char(struct text *text, char byte);
void text_add_number(struct text *text, uint64_t number);
/* Adds all strings up to a NULL. */
void text_add_strings(struct text *text, ...) __attribute__((sentinel));
void text_cut(struct text *text, size_t length);
void text_free(struct text *text);

/* Concatenates strings up to a NULL into memory of its own. */
char *join(const char *first, ...) __attribute__((sentinel));

/* Like malloc, realloc and strndup; the program ends with a message when there is no memory. */
void *must_allocate(size_t size);
void *must_grow(void *memory, size_t size);
char *must_duplicate(const char *string, size_t length);

/* Writes all of it; false, with errno set, when that is not possible. */
bool write_all(int fd, const void *bytes, size_t length);

/* Writes `<program>: <strings up to a NULL>` and a newline to standard error, in one write. */
void complain(const char *program, ...) __attribute__((sentinel));

bool starts_with(const char *string, const char *prefix);
bool ends_with(const char *string, const char *suffix);
/* Whether an absolute path names something inside a folder, by their text alone. */
bool is_below(const char *path, const char *folder);
/* The part behind the last slash. */
const char *base_name(const char *path);

#endif
