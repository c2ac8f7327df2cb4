#include "elf_edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_space.h"

void wish_free(struct wish *wish)
{
    for (size_t i = 0; i < wish->needed_count; i++)
        free(wish->needed[i].name);
    free(wish->needed);
    wish->needed = NULL;
    wish->needed_count = 0;
}

static void add_edit(struct edits *edits, uint64_t offset, const void *bytes, size_t length)
{
    edits->items = must_grow(edits->items, (edits->count + 1) * sizeof *edits->items);
    struct edit *edit = &edits->items[edits->count++];
    *edit = (struct edit){ .offset = offset };
    text_add(&edit->bytes, bytes, length);
}

/* The state of a plan: changed copies of the tables, and the room that is left. */
struct plan {
    const struct elf *elf;
    Elf64_Phdr programs[ELF_MAX_PROGRAMS];
    Elf64_Dyn *entries;
    size_t entry_count;
    struct holes holes;
    struct edits *edits;
};

/* Puts a string where it is mapped; its address. */
static bool place(struct plan *plan, const char *string, struct hole *hole)
{
    size_t size = strlen(string) + 1;
    if (!holes_take(&plan->holes, size, hole))
        return false;
    if (hole->grows >= 0) {
        Elf64_Phdr *load = &plan->programs[hole->grows];
        load->p_filesz = load->p_memsz = hole->offset + size - load->p_offset;
    }
    add_edit(plan->edits, hole->offset, string, size);
    return true;
}

static bool plan_interpreter(struct plan *plan, const char *path)
{
    const struct elf *elf = plan->elf;
    size_t size = strlen(path) + 1;
    Elf64_Phdr *program = &plan->programs[elf->interpreter];
    struct hole hole;
    if (place(plan, path, &hole)) {
        program->p_offset = hole.offset;
        program->p_vaddr = program->p_paddr = hole.address;
    } else {
        if (elf_abi(elf) == ABI_MUSL)
            return false;
        uint64_t offset = elf_find_comment(elf, size);
        if (offset == 0 && elf->end == elf->input->size && elf->sections != NULL)
            offset = elf->end;
        if (offset == 0)
            return false;
        /* The address keeps pointing at the old path: something must be mapped there. */
        add_edit(plan->edits, offset, path, size);
        program->p_offset = offset;
    }
    program->p_filesz = program->p_memsz = size;
    return true;
}

static void remove_entry(struct plan *plan, size_t index)
{
    memmove(plan->entries + index, plan->entries + index + 1,
            (plan->entry_count - index - 1) * sizeof *plan->entries);
    plan->entries[--plan->entry_count] = (Elf64_Dyn){ 0 };
}

/*
 * An entry that may become DT_RPATH: the one there is, a spare one at the end, or one that can be spared. DT_DEBUG
 * is a place for debuggers to look at; DT_RELACOUNT saves the loader a comparison for each relocation.
 */
static Elf64_Dyn *entry_for_rpath(struct plan *plan)
{
    static const int64_t SPARED[] = { DT_DEBUG, DT_RELACOUNT };
    Elf64_Dyn *found = NULL;
    for (size_t i = 0; i + 1 < plan->entry_count;) {
        int64_t tag = plan->entries[i].d_tag;
        if (tag != DT_RPATH && tag != DT_RUNPATH) {
            i++;
        } else if (found == NULL) {
            found = &plan->entries[i++];
        } else {
            remove_entry(plan, i);
        }
    }
    if (found != NULL)
        return found;
    if (plan->entry_count < plan->elf->entry_room) {
        found = &plan->entries[plan->entry_count - 1];
        plan->entries[plan->entry_count++] = (Elf64_Dyn){ 0 };
        return found;
    }
    for (size_t spared = 0; spared < sizeof SPARED / sizeof *SPARED; spared++)
        for (size_t i = 0; i + 1 < plan->entry_count; i++)
            if (plan->entries[i].d_tag == SPARED[spared])
                return &plan->entries[i];
    return NULL;
}

static bool plan_rpath(struct plan *plan, const char *rpath)
{
    struct hole hole;
    if (!place(plan, rpath, &hole))
        return false;
    Elf64_Dyn *entry = entry_for_rpath(plan);
    if (entry == NULL)
        return false;
    entry->d_tag = DT_RPATH;
    entry->d_un.d_val = hole.address - plan->elf->strings;
    return true;
}

static bool plan_all(struct plan *plan, const struct wish *wish)
{
    struct hole hole;
    for (size_t i = 0; i < wish->needed_count; i++) {
        if (!place(plan, wish->needed[i].name, &hole))
            return false;
        plan->entries[wish->needed[i].entry].d_un.d_val = hole.address - plan->elf->strings;
    }
    /* The entries move when a second run path is taken out: names come before it. */
    if (wish->rpath != NULL && !plan_rpath(plan, wish->rpath))
        return false;
    return wish->interpreter == NULL || plan_interpreter(plan, wish->interpreter);
}

bool elf_plan(const struct elf *elf, const struct wish *wish, struct edits *edits)
{
    *edits = (struct edits){ 0 };
    if (elf->dynamic < 0 || (wish->interpreter != NULL && elf->interpreter < 0))
        return false;
    size_t programs_size = elf->header.e_phnum * sizeof(Elf64_Phdr);
    size_t entries_size = elf->entry_room * sizeof(Elf64_Dyn);
    struct plan plan = { .elf = elf, .entry_count = elf->entry_count, .edits = edits };
    memcpy(plan.programs, elf->programs, programs_size);
    plan.entries = must_allocate(entries_size);
    memcpy(plan.entries, elf->entries, entries_size);
    holes_find(elf, &plan.holes);

    bool fits = plan_all(&plan, wish);
    if (fits) {
        if (memcmp(plan.programs, elf->programs, programs_size) != 0)
            add_edit(edits, elf->header.e_phoff, plan.programs, programs_size);
        if (memcmp(plan.entries, elf->entries, entries_size) != 0)
            add_edit(edits, elf->programs[elf->dynamic].p_offset, plan.entries, entries_size);
    } else {
        edits_free(edits);
    }
    holes_free(&plan.holes);
    free(plan.entries);
    return fits;
}

void edits_free(struct edits *edits)
{
    for (size_t i = 0; i < edits->count; i++)
        text_free(&edits->items[i].bytes);
    free(edits->items);
    *edits = (struct edits){ 0 };
}

bool edits_apply(const struct edits *edits, int fd)
{
    for (size_t i = 0; i < edits->count; i++) {
        const struct edit *edit = &edits->items[i];
        size_t done = 0;
        while (done < edit->bytes.length) {
            ssize_t written = pwrite(fd, edit->bytes.bytes + done, edit->bytes.length - done,
                                     (off_t)(edit->offset + done));
            if (written < 0 && errno == EINTR)
                continue;
            if (written < 0)
                return false;
            done += (size_t)written;
        }
    }
    return true;
}

bool elf_fulfils(const struct elf *elf, const struct wish *wish)
{
    char string[ELF_STRING];
    if (wish->interpreter != NULL &&
        (elf->interpreter < 0 || strcmp(elf->interpreter_path, wish->interpreter) != 0))
        return false;
    if (wish->rpath != NULL) {
        int rpath = elf_find(elf, DT_RPATH, 0);
        if (rpath < 0 || elf_find(elf, DT_RPATH, (size_t)rpath + 1) >= 0 || elf_find(elf, DT_RUNPATH, 0) >= 0 ||
            !elf_string(elf, (size_t)rpath, string) || strcmp(string, wish->rpath) != 0)
            return false;
    }
    for (size_t i = 0; i < wish->needed_count; i++)
        if (!elf_needs(elf, wish->needed[i].name))
            return false;
    return true;
}
