/*
 * Changes which loader and libraries an ELF file asks for, in place: the file's size and all offsets stay.
 */
#ifndef CAPSULE_ELF_EDIT_H
#define CAPSULE_ELF_EDIT_H

#include "elf_file.h"
#include "text.h"

/* What a file shall ask for. */
struct wish {
    const char *interpreter; /* NULL: as it is */
    const char *rpath;       /* the whole list, in one DT_RPATH; NULL: as it is */
    struct renamed {
        size_t entry;        /* a DT_NEEDED entry */
        char *name;          /* what it shall name */
    } *needed;
    size_t needed_count;
};

void wish_free(struct wish *wish);

/* Bytes to write at an offset of the file. */
struct edit {
    uint64_t offset;
    struct text bytes;
};

struct edits {
    struct edit *items;
    size_t count;
};

/*
 * Works out the edits that fulfil a wish; false when the file has no room for them. The strings go into mapped
 * holes (elf_space.h); a glibc loader's path may also stand where nothing is mapped, since glibc never reads it
 * from memory to find its folders, as musl does.
 */
bool elf_plan(const struct elf *elf, const struct wish *wish, struct edits *edits);
void edits_free(struct edits *edits);

/* Carries edits out on an open file; false with errno set. */
bool edits_apply(const struct edits *edits, int fd);

/* Whether a file, read anew, asks for all of it. */
bool elf_fulfils(const struct elf *elf, const struct wish *wish);

#endif
