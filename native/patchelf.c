#include "patchelf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "version.h"

#define PATCHELF CAPSULE_ROOT "/libexec/patchelf"

/* A file of 400 MB takes it 3 s on a warm machine. */
enum { SECONDS = 300, CHUNK = 1 << 16 };

static bool fail(struct replacement *replacement, const char *what, const char *detail)
{
    text_cut(&replacement->reason, 0);
    text_add_strings(&replacement->reason, what, detail, NULL);
    return false;
}

/* patchelf shifts the content of non-PIE files, and appends to others: so it is told that this is another. */
static bool set_type(struct replacement *replacement, Elf64_Half type)
{
    return pwrite(replacement->target, &type, sizeof type, offsetof(Elf64_Ehdr, e_type)) == (ssize_t)sizeof type ||
           replace_fail(replacement, "its new content can't be written");
}

static bool run(struct replacement *replacement, const struct elf *elf, const struct wish *wish)
{
    size_t room = 9 + 3 * wish->needed_count, count = 0;
    const char **argv = must_allocate(room * sizeof *argv);
    char (*old)[ELF_STRING] = must_allocate((wish->needed_count + 1) * sizeof *old);
    argv[count++] = PATCHELF;
    if (wish->interpreter != NULL) {
        argv[count++] = "--set-interpreter";
        argv[count++] = wish->interpreter;
    }
    if (wish->rpath != NULL) {
        argv[count++] = "--force-rpath";
        argv[count++] = "--set-rpath";
        argv[count++] = wish->rpath;
    }
    for (size_t i = 0; i < wish->needed_count; i++) {
        if (!elf_string(elf, wish->needed[i].entry, old[i]))
            continue;
        argv[count++] = "--replace-needed";
        argv[count++] = old[i];
        argv[count++] = wish->needed[i].name;
    }
    argv[count] = replacement->temporary;

    struct child child;
    child_run(&child, argv, replacement->folder, SECONDS);
    bool good = child.end == CHILD_ENDED && child.status == 0;
    if (child.end == CHILD_NOT_STARTED) {
        fail(replacement, "it has no room inside, and " PATCHELF " can't be run: ", strerror(child.status));
    } else if (child.end == CHILD_TOO_LONG) {
        fail(replacement, "it has no room inside, and patchelf didn't end in time", "");
    } else if (!good) {
        const char *said = child.errors.length > 0 ? child.errors.bytes : "no reason given\n";
        char *line = must_duplicate(said, strcspn(said, "\n"));
        fail(replacement, "it has no room inside, and patchelf refused it: ", line);
        free(line);
    }
    child_free(&child);
    free(old);
    free(argv);
    return good;
}

/* Whether both files have the same bytes from `begin` to `end`. */
static bool same_bytes(const struct input *left, const struct input *right, uint64_t begin, uint64_t end)
{
    char *buffers = must_allocate(2 * CHUNK);
    bool same = true;
    while (same && begin < end) {
        size_t part = end - begin < CHUNK ? (size_t)(end - begin) : CHUNK;
        same = input_read(left, begin, buffers, part) && input_read(right, begin, buffers + CHUNK, part) &&
               memcmp(buffers, buffers + CHUNK, part) == 0;
        begin += part;
    }
    free(buffers);
    return same;
}

static uint64_t largest_alignment(const struct elf *elf)
{
    uint64_t largest = 0;
    for (int i = 0; i < elf->header.e_phnum; i++)
        if (elf->programs[i].p_type == PT_LOAD && elf->programs[i].p_align > largest)
            largest = elf->programs[i].p_align;
    return largest;
}

/* Checks what patchelf made, and puts the appended data behind it again. */
static bool finish(struct replacement *replacement, const struct elf *before)
{
    struct input input;
    struct elf after;
    off_t size = lseek(replacement->target, 0, SEEK_END);
    if (size < 0 || !input_from_file(&input, replacement->target, (uint64_t)size))
        return replace_fail(replacement, "its new content can't be read");
    const char *reason = elf_open(&after, &input);
    uint64_t tail = before->end, length = before->input->size - tail;
    if (reason != NULL)
        fail(replacement, "patchelf damaged it: ", reason);
    else if (largest_alignment(&after) < largest_alignment(before))
        reason = "patchelf lowers the alignment of its segments";
    else if (length > 0 && (after.end < before->input->size || !same_bytes(before->input, &input, tail, tail + length)))
        reason = "it has data behind the ELF part that patchelf would move";
    if (reason != NULL && replacement->reason.length == 0)
        fail(replacement, reason, "");
    bool good = reason == NULL;
    if (good && length > 0) {
        if (ftruncate(replacement->target, (off_t)after.end) != 0 || lseek(replacement->target, 0, SEEK_END) < 0)
            good = replace_fail(replacement, "its new content can't be written");
        else
            good = replace_copy(replacement, tail, length);
    }
    elf_close(&after);
    return good;
}

const char *patchelf_refusal(const struct elf *elf)
{
    if (elf->sections == NULL)
        return "it has no room inside, and no section headers, which patchelf needs";
    if (access(PATCHELF, X_OK) != 0)
        return "it has no room inside, and " PATCHELF " isn't there";
    return NULL;
}

bool patchelf_fill(struct replacement *replacement, const struct elf *elf, const struct wish *wish)
{
    bool fixed = elf->header.e_type == ET_EXEC;
    const char *refusal = patchelf_refusal(elf);
    if (refusal != NULL)
        return fail(replacement, refusal, "");
    return replace_copy(replacement, 0, TO_THE_END) && (!fixed || set_type(replacement, ET_DYN)) &&
           run(replacement, elf, wish) && (!fixed || set_type(replacement, ET_EXEC)) && finish(replacement, elf);
}
