/* A file, or bytes in memory, that is only ever read inside its bounds. */
#ifndef CAPSULE_INPUT_H
#define CAPSULE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INPUT_HEAD = 4096 };

/*
 * Reads go through pread, not through a mapping: a file that shrinks meanwhile gives a failed read instead
 * of SIGBUS, and memory stays constant whatever the file's size. What readers look at most, the head, is
 * kept.
 */
struct input {
    int fd;               /* -1: the bytes are in memory */
    const uint8_t *bytes; /* the bytes in memory, or the head of the file */
    size_t held;          /* how many of `bytes` are valid */
    uint64_t size;        /* of the whole */
    uint8_t head[INPUT_HEAD];
};

void input_from_memory(struct input *input, const void *bytes, size_t size);

/* Takes an open regular file of `size` bytes. False, with errno set, when it can't be read. */
bool input_from_file(struct input *input, int fd, uint64_t size);

/* Copies `length` bytes at `offset`; false when they are not all there. */
bool input_read(const struct input *input, uint64_t offset, void *to, size_t length);

/*
 * Copies the string at `offset`, up to its NUL, which must come before `limit` (an offset) and within
 * `capacity` bytes, into `to`.
 */
bool input_read_string(const struct input *input, uint64_t offset, uint64_t limit, char *to, size_t capacity);

#endif
