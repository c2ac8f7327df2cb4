/*
 * Fuzzes the ELF reader, and the edits that are made from what it reads: whatever the file says, they stay inside
 * it, touch nothing but zeros, headers and compiler versions, and a file that took them asks for what it should.
 */
#include <stdlib.h>
#include <string.h>

#include "elf_edit.h"
#include "elf_space.h"

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* Whether an edit goes into a table that the plan may change. */
static bool is_table(const struct elf *elf, const struct edit *edit)
{
    return edit->offset == elf->header.e_phoff || edit->offset == elf->programs[elf->dynamic].p_offset;
}

static bool is_room(const unsigned char *bytes, size_t size, const struct elf *elf, const struct edit *edit)
{
    if (edit->offset == elf_find_comment(elf, edit->bytes.length) || edit->offset == size)
        return true;
    for (size_t i = 0; i < edit->bytes.length; i++)
        if (edit->offset + i >= size || bytes[edit->offset + i] != 0)
            return false;
    return true;
}

static unsigned char *apply(const unsigned char *bytes, size_t *size, const struct elf *elf, const struct edits *edits)
{
    size_t grown = *size;
    for (size_t i = 0; i < edits->count; i++) {
        const struct edit *edit = &edits->items[i];
        require(edit->offset <= *size && (is_table(elf, edit) || is_room(bytes, *size, elf, edit)));
        if (edit->offset + edit->bytes.length > grown)
            grown = edit->offset + edit->bytes.length;
    }
    unsigned char *copy = must_allocate(grown + 1);
    memcpy(copy, bytes, *size);
    for (size_t i = 0; i < edits->count; i++)
        memcpy(copy + edits->items[i].offset, edits->items[i].bytes.bytes, edits->items[i].bytes.length);
    *size = grown;
    return copy;
}

static void check_edits(const unsigned char *bytes, size_t size, const struct elf *elf)
{
    struct wish wish = { .rpath = "$ORIGIN/../lib:/capsule/abi/glibc" };
    struct renamed renamed = { .name = "/capsule/abi/musl/libstdc++.so.6" };
    int needed = elf_find(elf, DT_NEEDED, 0);
    if (elf->interpreter >= 0)
        wish.interpreter = "/capsule/abi/glibc/ld-linux-x86-64.so.2";
    if (needed >= 0) {
        renamed.entry = (size_t)needed;
        wish.needed = &renamed;
        wish.needed_count = 1;
    }
    struct edits edits;
    if (!elf_plan(elf, &wish, &edits))
        return;
    unsigned char *sealed = apply(bytes, &size, elf, &edits);
    struct input input;
    struct elf again;
    input_from_memory(&input, sealed, size);
    /* A table that lies in another's place can undo an edit; the sealer reads each file again for that reason. */
    if (elf_open(&again, &input) == NULL)
        (void)elf_fulfils(&again, &wish);
    elf_close(&again);
    free(sealed);
    edits_free(&edits);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static struct input input;
    static struct elf elf;
    char string[ELF_STRING];
    const char *reason;
    input_from_memory(&input, data, size);
    const char *refusal = elf_open(&elf, &input);
    if (refusal == NULL) {
        require(elf.end <= size);
        if (elf_kind(&elf, &reason) == ELF_LEFT)
            require(reason != NULL);
        (void)elf_abi(&elf);
        (void)elf_needs(&elf, "libc.so.6");
        for (size_t i = 0; i < elf.entry_count; i++)
            (void)elf_string(&elf, i, string);
        if (elf.dynamic >= 0)
            check_edits(data, size, &elf);
    }
    elf_close(&elf);
    return 0;
}
