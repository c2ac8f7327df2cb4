#include "elf_space.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

/* The smallest page of the machines we run on: larger ones are multiples of it. */
#define PAGE 4096u

/* A range of the file that something claims, and the alignment of what begins there. */
struct claim {
    uint64_t begin;
    uint64_t end;
    uint64_t alignment;
};

struct claims {
    struct claim *items;
    size_t count;
};

static void claim(struct claims *claims, uint64_t offset, uint64_t size, uint64_t alignment)
{
    if (size > 0 && offset <= UINT64_MAX - size)
        claims->items[claims->count++] = (struct claim){ offset, offset + size, alignment };
}

static int by_begin(const void *left, const void *right)
{
    const struct claim *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Where memory that has no bytes of its own lies in the file, because bytes of its segment follow it. */
static void claim_memory(struct claims *claims, const struct elf *elf, const Elf64_Shdr *section)
{
    if ((section->sh_flags & SHF_ALLOC) == 0 || (section->sh_flags & SHF_TLS) != 0)
        return;
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *load = &elf->programs[i];
        if (load->p_type == PT_LOAD && section->sh_addr >= load->p_vaddr &&
            section->sh_addr - load->p_vaddr < load->p_filesz)
            claim(claims, load->p_offset + (section->sh_addr - load->p_vaddr), section->sh_size,
                  section->sh_addralign);
    }
}

static void collect(struct claims *claims, const struct elf *elf)
{
    size_t most = 3 + (size_t)elf->header.e_phnum + elf->section_count * (1 + (size_t)elf->header.e_phnum);
    claims->items = must_allocate(most * sizeof *claims->items);
    claim(claims, 0, sizeof elf->header, 1);
    claim(claims, elf->header.e_phoff, elf->header.e_phnum * sizeof(Elf64_Phdr), 1);
    if (elf->header.e_shoff != 0)
        claim(claims, elf->header.e_shoff, (uint64_t)elf->header.e_shnum * elf->header.e_shentsize, 1);
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        /* Where sections tell more exactly what a segment holds, they do; RELRO only covers others. */
        bool coarse = program->p_type == PT_LOAD && elf->sections != NULL;
        if (!coarse && program->p_type != PT_NULL && program->p_type != PT_GNU_RELRO)
            claim(claims, program->p_offset, program->p_filesz, program->p_type == PT_LOAD ? program->p_align : 1);
    }
    for (size_t i = 0; i < elf->section_count; i++) {
        const Elf64_Shdr *section = &elf->sections[i];
        if (section->sh_type == SHT_NOBITS)
            claim_memory(claims, elf, section);
        else if (section->sh_type != SHT_NULL)
            claim(claims, section->sh_offset, section->sh_size, section->sh_addralign);
    }
    qsort(claims->items, claims->count, sizeof *claims->items, by_begin);
}

static bool is_zero(const struct input *input, uint64_t offset, uint64_t size)
{
    uint8_t bytes[PAGE];
    while (size > 0) {
        size_t part = size < sizeof bytes ? (size_t)size : sizeof bytes;
        if (!input_read(input, offset, bytes, part))
            return false;
        for (size_t i = 0; i < part; i++)
            if (bytes[i] != 0)
                return false;
        offset += part;
        size -= part;
    }
    return true;
}

static void add(struct holes *holes, const struct elf *elf, struct hole hole)
{
    if (hole.size == 0 || !is_zero(elf->input, hole.offset, hole.size))
        return;
    holes->items = must_grow(holes->items, (holes->count + 1) * sizeof *holes->items);
    holes->items[holes->count++] = hole;
}

/* Whether another segment has memory in this range. */
static bool is_taken(const struct elf *elf, int self, uint64_t begin, uint64_t end)
{
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *other = &elf->programs[i];
        if (i != self && other->p_type == PT_LOAD && other->p_vaddr < end &&
            begin < other->p_vaddr + other->p_memsz)
            return true;
    }
    return false;
}

/* The rest of the page behind a segment. */
static void add_tail(struct holes *holes, const struct elf *elf, const struct claims *claims, int index)
{
    const Elf64_Phdr *load = &elf->programs[index];
    uint64_t address = load->p_vaddr + load->p_filesz;
    uint64_t offset = load->p_offset + load->p_filesz;
    uint64_t size = (PAGE - address % PAGE) % PAGE;
    /* With memory behind the bytes the loader clears the rest of the page. */
    if (load->p_filesz == 0 || load->p_memsz != load->p_filesz || size > UINT64_MAX - address ||
        is_taken(elf, index, address, address + size))
        return;
    /* Pages are mapped as the file has them: both must lie the same way in theirs. */
    if ((load->p_vaddr - load->p_offset) % PAGE != 0)
        return;
    if (size > elf->input->size - offset)
        size = elf->input->size - offset;
    for (size_t i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->items[i];
        if (claim->begin < offset + size && claim->end > offset)
            size = claim->begin > offset ? claim->begin - offset : 0;
    }
    /* Without section headers appended data could begin there: only what a later claim bounds is a gap. */
    bool bounded = false;
    for (size_t i = 0; i < claims->count; i++)
        bounded |= claims->items[i].begin >= offset + size;
    if (bounded)
        add(holes, elf, (struct hole){ offset, size, address, index });
}

/* The gaps between sections inside a segment. */
static void add_gaps(struct holes *holes, const struct elf *elf, const struct claims *claims, int index)
{
    const Elf64_Phdr *load = &elf->programs[index];
    uint64_t begin = load->p_offset, end = load->p_offset + load->p_filesz;
    uint64_t reached = begin;
    for (size_t i = 0; i < claims->count && claims->items[i].begin < end; i++) {
        const struct claim *next = &claims->items[i];
        if (next->begin > reached && next->begin - reached < next->alignment)
            add(holes, elf, (struct hole){ reached, next->begin - reached,
                                           load->p_vaddr + (reached - begin), -1 });
        if (next->end > reached)
            reached = next->end;
    }
}

void holes_find(const struct elf *elf, struct holes *holes)
{
    *holes = (struct holes){ 0 };
    struct claims claims = { 0 };
    collect(&claims, elf);
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *load = &elf->programs[i];
        if (load->p_type != PT_LOAD || (load->p_flags & PF_R) == 0)
            continue;
        add_tail(holes, elf, &claims, i);
        if (elf->sections != NULL)
            add_gaps(holes, elf, &claims, i);
    }
    free(claims.items);
}

void holes_free(struct holes *holes)
{
    free(holes->items);
    *holes = (struct holes){ 0 };
}

bool holes_take(struct holes *holes, uint64_t size, struct hole *taken)
{
    for (size_t i = 0; i < holes->count; i++) {
        struct hole *hole = &holes->items[i];
        if (hole->size < size)
            continue;
        *taken = *hole;
        taken->size = size;
        hole->offset += size;
        hole->address += size;
        hole->size -= size;
        return true;
    }
    return false;
}

uint64_t elf_find_comment(const struct elf *elf, uint64_t size)
{
    char name[sizeof ".comment"];
    if (elf->sections == NULL || elf->header.e_shstrndx >= elf->section_count)
        return 0;
    const Elf64_Shdr *names = &elf->sections[elf->header.e_shstrndx];
    for (size_t i = 0; i < elf->section_count; i++) {
        const Elf64_Shdr *section = &elf->sections[i];
        if (section->sh_type != SHT_PROGBITS || (section->sh_flags & SHF_ALLOC) != 0 || section->sh_size < size ||
            section->sh_name >= names->sh_size)
            continue;
        if (!input_read_string(elf->input, names->sh_offset + section->sh_name, names->sh_offset + names->sh_size,
                               name, sizeof name) || strcmp(name, ".comment") != 0)
            continue;
        for (int p = 0; p < elf->header.e_phnum; p++) {
            const Elf64_Phdr *program = &elf->programs[p];
            if (program->p_type != PT_NULL && program->p_offset < section->sh_offset + section->sh_size &&
                section->sh_offset < program->p_offset + program->p_filesz)
                return 0;
        }
        return section->sh_offset;
    }
    return 0;
}
