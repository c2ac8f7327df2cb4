#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char NO_MEMORY[] = "out of memory\n";

void *must_grow(void *memory, size_t size)
{
    void *grown = realloc(memory, size);
    if (grown == NULL) {
        write_all(STDERR_FILENO, NO_MEMORY, sizeof NO_MEMORY - 1);
        _exit(1);
    }
    return grown;
}

void *must_allocate(size_t size)
{
    void *memory = must_grow(NULL, size);
    memset(memory, 0, size);
    return memory;
}

char *must_duplicate(const char *string, size_t length)
{
    char *copy = must_grow(NULL, length + 1);
    memcpy(copy, string, length);
    copy[length] = '\0';
    return copy;
}

void text_add(struct text *text, const void *bytes, size_t length)
{
    if (length >= text->capacity - text->length) {
        text->capacity = 2 * text->capacity + length + 64;
        text->bytes = must_grow(text->bytes, text->capacity);
    }
    if (length > 0)
        memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void text_add_string(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

void text_add_char(struct text *text, char byte)
{
    text_add(text, &byte, 1);
}

void text_add_number(struct text *text, uint64_t number)
{
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    text_add(text, digits + first, sizeof digits - first);
}

static void add_list(struct text *text, va_list strings)
{
    const char *string;
    while ((string = va_arg(strings, const char *)) != NULL)
        text_add_string(text, string);
}

void text_add_strings(struct text *text, ...)
{
    va_list strings;
    va_start(strings, text);
    add_list(text, strings);
    va_end(strings);
}

void text_cut(struct text *text, size_t length)
{
    if (length < text->length) {
        text->length = length;
        text->bytes[length] = '\0';
    }
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){ 0 };
}

char *join(const char *first, ...)
{
    struct text text = { 0 };
    text_add_string(&text, first);
    va_list strings;
    va_start(strings, first);
    add_list(&text, strings);
    va_end(strings);
    return text.bytes;
}

bool write_all(int fd, const void *bytes, size_t length)
{
    const char *next = bytes;
    while (length > 0) {
        ssize_t written = write(fd, next, length);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        next += written;
        length -= (size_t)written;
    }
    return true;
}

void complain(const char *program, ...)
{
    struct text line = { 0 };
    text_add_strings(&line, program, ": ", NULL);
    va_list strings;
    va_start(strings, program);
    add_list(&line, strings);
    va_end(strings);
    text_add_char(&line, '\n');
    write_all(STDERR_FILENO, line.bytes, line.length);
    text_free(&line);
}

bool starts_with(const char *string, const char *prefix)
{
    return strncmp(string, prefix, strlen(prefix)) == 0;
}

bool ends_with(const char *string, const char *suffix)
{
    size_t length = strlen(string), behind = strlen(suffix);
    return length >= behind && strcmp(string + length - behind, suffix) == 0;
}

bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}
