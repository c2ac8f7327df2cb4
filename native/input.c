#include "input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Reads as much of `length` bytes as there is; the number, or -1 with errno set. */
static ssize_t read_at(int fd, uint64_t offset, void *to, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t got = pread(fd, (char *)to + done, length - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

void input_from_memory(struct input *input, const void *bytes, size_t size)
{
    input->fd = -1;
    input->bytes = bytes;
    input->held = size;
    input->size = size;
}

bool input_from_file(struct input *input, int fd, uint64_t size)
{
    input->fd = fd;
    input->bytes = input->head;
    input->size = size;
    ssize_t got = read_at(fd, 0, input->head, size < INPUT_HEAD ? (size_t)size : INPUT_HEAD);
    if (got < 0)
        return false;
    input->held = (size_t)got;
    if (input->held < INPUT_HEAD && input->held < size)
        input->size = input->held;
    return true;
}

bool input_read(const struct input *input, uint64_t offset, void *to, size_t length)
{
    if (offset > input->size || length > input->size - offset)
        return false;
    if (offset <= input->held && length <= input->held - offset) {
        if (length > 0)
            memcpy(to, input->bytes + offset, length);
        return true;
    }
    return input->fd >= 0 && read_at(input->fd, offset, to, length) == (ssize_t)length;
}

bool input_read_string(const struct input *input, uint64_t offset, uint64_t limit, char *to, size_t capacity)
{
    if (limit > input->size)
        limit = input->size;
    if (offset >= limit)
        return false;
    size_t length = limit - offset < capacity ? (size_t)(limit - offset) : capacity;
    return input_read(input, offset, to, length) && memchr(to, '\0', length) != NULL;
}
