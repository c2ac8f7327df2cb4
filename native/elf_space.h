/*
 * Finds room inside an ELF file that nothing uses, so that a string can be put there and the size stays.
 */
#ifndef CAPSULE_ELF_SPACE_H
#define CAPSULE_ELF_SPACE_H

#include "elf_file.h"

/* A run of zero bytes that is mapped when the file runs, and that no header claims. */
struct hole {
    uint64_t offset;
    uint64_t size;
    uint64_t address;
    int grows; /* the PT_LOAD whose size must grow to cover it, or -1: it is inside one */
};

struct holes {
    struct hole *items;
    size_t count;
};

/*
 * Lists the holes. Two kinds are safe: the rest of the page behind a segment's last byte, which is mapped with it;
 * and, where there are section headers, the gap in front of a section that is no longer than that section's
 * alignment explains. Memory of sections without bytes in the file (.bss) is never taken for a hole, also where a
 * later section of the same segment gives it a place in the file.
 */
void holes_find(const struct elf *elf, struct holes *holes);
void holes_free(struct holes *holes);

/* Takes `size` bytes from a hole; false when none is large enough. */
bool holes_take(struct holes *holes, uint64_t size, struct hole *taken);

/*
 * A section that is not loaded, with compiler versions in it, and room for `size` bytes; its offset, or 0.
 */
uint64_t elf_find_comment(const struct elf *elf, uint64_t size);

#endif
