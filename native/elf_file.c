#include "elf_file.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#else
#error "no capsule is made for this machine"
#endif

bool elf_has_magic(const void *bytes, size_t length)
{
    return length >= SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0;
}

static const char *other_machine(unsigned machine)
{
    switch (machine) {
    case EM_X86_64: return "it is made for another machine: x86_64";
    case EM_AARCH64: return "it is made for another machine: aarch64";
    case EM_386: return "it is made for another machine: i386";
    case EM_ARM: return "it is made for another machine: arm";
    case EM_PPC64: return "it is made for another machine: ppc64";
    case EM_S390: return "it is made for another machine: s390x";
    case 243: return "it is made for another machine: riscv";
    default: return "it is made for another machine";
    }
}

static const char *read_header(struct elf *elf)
{
    Elf64_Ehdr *header = &elf->header;
    unsigned char ident[EI_NIDENT];
    if (!input_read(elf->input, 0, ident, sizeof ident))
        return "it is a truncated ELF file";
    if (ident[EI_CLASS] == ELFCLASS32)
        return "it is a 32-bit ELF file";
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_VERSION] != EV_CURRENT)
        return "it is a damaged ELF file: its class or version is unknown";
    if (ident[EI_DATA] != ELFDATA2LSB)
        return "it is made for another machine: a big-endian one";
    if (!input_read(elf->input, 0, header, sizeof *header))
        return "it is a truncated ELF file";
    if (header->e_machine != HOST_MACHINE)
        return other_machine(header->e_machine);
    switch (header->e_type) {
    case ET_EXEC:
    case ET_DYN:
        return NULL;
    case ET_REL:
        return "it is a relocatable object";
    case ET_CORE:
        return "it is a core file";
    default:
        return "it is a damaged ELF file: its type is unknown";
    }
}

static const char *read_programs(struct elf *elf)
{
    const Elf64_Ehdr *header = &elf->header;
    if (header->e_phnum == 0)
        return "it is a damaged ELF file: it has no program headers";
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > ELF_MAX_PROGRAMS)
        return "it is a damaged ELF file: its program headers have a wrong size or number";
    if (!input_read(elf->input, header->e_phoff, elf->programs, header->e_phnum * sizeof(Elf64_Phdr)))
        return "it is a truncated ELF file";
    for (int i = 0; i < header->e_phnum; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        bool has_bytes = program->p_type == PT_LOAD || program->p_type == PT_INTERP || program->p_type == PT_DYNAMIC;
        if (!has_bytes)
            continue;
        uint64_t size = elf->input->size;
        if (program->p_offset > size || program->p_filesz > size - program->p_offset)
            return "it is a truncated ELF file";
        if (program->p_vaddr > UINT64_MAX - program->p_memsz || program->p_memsz < program->p_filesz)
            return "it is a damaged ELF file: a segment's size makes no sense";
        if (program->p_type == PT_INTERP)
            elf->interpreter = i;
        else if (program->p_type == PT_DYNAMIC)
            elf->dynamic = i;
    }
    return NULL;
}

static const char *read_interpreter(struct elf *elf)
{
    const Elf64_Phdr *program = &elf->programs[elf->interpreter];
    char *path = elf->interpreter_path;
    /* The kernel's own rules: a path that ends, at its very end, with NUL. */
    if (program->p_filesz < 2 || program->p_filesz > ELF_STRING ||
        !input_read(elf->input, program->p_offset, path, program->p_filesz) || path[program->p_filesz - 1] != '\0')
        return "it is a damaged ELF file: its interpreter's path makes no sense";
    return NULL;
}

static const char *read_dynamic(struct elf *elf)
{
    static const char DAMAGED[] = "it is a damaged ELF file: its dynamic section makes no sense";
    const Elf64_Phdr *program = &elf->programs[elf->dynamic];
    uint64_t offset, limit;
    /* The loader goes by the address, we by the offset: they must mean the same. */
    if (!elf_offset(elf, program->p_vaddr, &offset, &limit) || offset != program->p_offset ||
        limit - offset < program->p_filesz)
        return DAMAGED;
    elf->entry_room = program->p_filesz / sizeof(Elf64_Dyn);
    if (elf->entry_room == 0 || elf->entry_room > ELF_MAX_DYNAMIC)
        return DAMAGED;
    elf->entries = must_allocate(elf->entry_room * sizeof(Elf64_Dyn));
    if (!input_read(elf->input, offset, elf->entries, elf->entry_room * sizeof(Elf64_Dyn)))
        return DAMAGED;
    bool ends = false;
    for (size_t i = 0; i < elf->entry_room && !ends; i++) {
        const Elf64_Dyn *entry = &elf->entries[i];
        ends = entry->d_tag == DT_NULL;
        elf->entry_count = i + 1;
        if (entry->d_tag == DT_STRTAB)
            elf->strings = entry->d_un.d_ptr;
    }
    return ends ? NULL : DAMAGED;
}

/* Section headers are no loader's business: where they make no sense, the file has none. */
static void read_sections(struct elf *elf)
{
    const Elf64_Ehdr *header = &elf->header;
    size_t size = header->e_shnum * sizeof(Elf64_Shdr);
    if (header->e_shoff == 0 || header->e_shnum == 0 || header->e_shnum > ELF_MAX_SECTIONS ||
        header->e_shentsize != sizeof(Elf64_Shdr))
        return;
    Elf64_Shdr *sections = must_allocate(size);
    bool sound = input_read(elf->input, header->e_shoff, sections, size);
    for (size_t i = 0; i < header->e_shnum && sound; i++) {
        const Elf64_Shdr *section = &sections[i];
        if (section->sh_type == SHT_NULL || section->sh_type == SHT_NOBITS)
            continue;
        sound = section->sh_offset <= elf->input->size && section->sh_size <= elf->input->size - section->sh_offset;
    }
    if (!sound) {
        free(sections);
        return;
    }
    elf->sections = sections;
    elf->section_count = header->e_shnum;
}

static void reach(uint64_t *end, uint64_t offset, uint64_t size)
{
    if (offset <= UINT64_MAX - size && offset + size > *end)
        *end = offset + size;
}

static void find_end(struct elf *elf)
{
    reach(&elf->end, elf->header.e_phoff, elf->header.e_phnum * sizeof(Elf64_Phdr));
    for (int i = 0; i < elf->header.e_phnum; i++)
        if (elf->programs[i].p_type != PT_NULL)
            reach(&elf->end, elf->programs[i].p_offset, elf->programs[i].p_filesz);
    if (elf->sections != NULL)
        reach(&elf->end, elf->header.e_shoff, elf->section_count * sizeof(Elf64_Shdr));
    for (size_t i = 0; i < elf->section_count; i++)
        if (elf->sections[i].sh_type != SHT_NOBITS && elf->sections[i].sh_type != SHT_NULL)
            reach(&elf->end, elf->sections[i].sh_offset, elf->sections[i].sh_size);
    if (elf->end > elf->input->size)
        elf->end = elf->input->size;
}

const char *elf_open(struct elf *elf, const struct input *input)
{
    memset(elf, 0, sizeof *elf);
    elf->input = input;
    elf->interpreter = -1;
    elf->dynamic = -1;
    const char *reason = read_header(elf);
    if (reason == NULL)
        reason = read_programs(elf);
    if (reason == NULL && elf->interpreter >= 0)
        reason = read_interpreter(elf);
    if (reason == NULL && elf->dynamic >= 0)
        reason = read_dynamic(elf);
    if (reason != NULL)
        return reason;
    read_sections(elf);
    find_end(elf);
    return NULL;
}

void elf_close(struct elf *elf)
{
    free(elf->entries);
    free(elf->sections);
    elf->entries = NULL;
    elf->sections = NULL;
}

int elf_find(const struct elf *elf, int64_t tag, size_t from)
{
    for (size_t i = from; i + 1 < elf->entry_count; i++)
        if (elf->entries[i].d_tag == tag)
            return (int)i;
    return -1;
}

bool elf_offset(const struct elf *elf, uint64_t address, uint64_t *offset, uint64_t *limit)
{
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        if (program->p_type != PT_LOAD || address < program->p_vaddr ||
            address - program->p_vaddr >= program->p_filesz)
            continue;
        *offset = program->p_offset + (address - program->p_vaddr);
        *limit = program->p_offset + program->p_filesz;
        return true;
    }
    return false;
}

bool elf_string(const struct elf *elf, size_t entry, char to[ELF_STRING])
{
    uint64_t offset, limit;
    /* Modulo 2^64: a string may lie in front of the string table. */
    return elf_offset(elf, elf->strings + elf->entries[entry].d_un.d_val, &offset, &limit) &&
           input_read_string(elf->input, offset, limit, to, ELF_STRING);
}

bool elf_needs(const struct elf *elf, const char *name)
{
    char needed[ELF_STRING];
    for (int i = elf_find(elf, DT_NEEDED, 0); i >= 0; i = elf_find(elf, DT_NEEDED, (size_t)i + 1))
        if (elf_string(elf, (size_t)i, needed) && strcmp(needed, name) == 0)
            return true;
    return false;
}

static bool is_pie(const struct elf *elf)
{
    int flags = elf_find(elf, DT_FLAGS_1, 0);
    return flags >= 0 && (elf->entries[flags].d_un.d_val & DF_1_PIE) != 0;
}

enum elf_kind elf_kind(const struct elf *elf, const char **reason)
{
    bool library = elf->header.e_type == ET_DYN && !is_pie(elf);
    *reason = NULL;
    if (elf->dynamic < 0)
        *reason = "it is statically linked";
    else if (elf->interpreter < 0 && elf->header.e_type == ET_EXEC)
        *reason = "it is statically linked";
    else if (elf->interpreter < 0 && !library)
        *reason = "it is statically linked (static-pie)";
    if (*reason != NULL)
        return ELF_LEFT;
    /* A library that can also be started, as libc.so.6 can, has both. */
    if (elf->interpreter >= 0 && !(library && elf_find(elf, DT_SONAME, 0) >= 0))
        return ELF_PROGRAM;
    return ELF_LIBRARY;
}

static enum abi abi_of_loader(const char *path)
{
    const char *name = base_name(path);
    if (starts_with(name, "ld-linux") || starts_with(name, "ld-lsb-"))
        return ABI_GLIBC;
    if (starts_with(name, "ld-musl-"))
        return ABI_MUSL;
    return ABI_OTHER;
}

enum abi elf_abi(const struct elf *elf)
{
    if (elf->interpreter >= 0)
        return abi_of_loader(elf->interpreter_path);
    /* The names of glibc's own parts; musl has all of them in one file. */
    static const char *const GLIBC[] = { "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1" };
    char needed[ELF_STRING];
    for (int i = elf_find(elf, DT_NEEDED, 0); i >= 0; i = elf_find(elf, DT_NEEDED, (size_t)i + 1)) {
        if (!elf_string(elf, (size_t)i, needed))
            continue;
        for (size_t part = 0; part < sizeof GLIBC / sizeof *GLIBC; part++)
            if (strcmp(needed, GLIBC[part]) == 0)
                return ABI_GLIBC;
        if (starts_with(needed, "ld-linux"))
            return ABI_GLIBC;
        if (strcmp(needed, "libc.so") == 0 || starts_with(needed, "libc.musl-") || starts_with(needed, "ld-musl-"))
            return ABI_MUSL;
    }
    return ABI_NONE;
}
