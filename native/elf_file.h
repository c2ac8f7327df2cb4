/*
 * Reads what a loader reads of an ELF file: program headers, the dynamic section and its strings.
 *
 * Formats: System V ABI, chapters 4 and 5; the x86-64 and AArch64 supplements. Only 64-bit little-endian files
 * for the machine that this is compiled for are read. Every offset comes from the file and is checked.
 */
#ifndef CAPSULE_ELF_FILE_H
#define CAPSULE_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "input.h"

enum {
    ELF_MAX_PROGRAMS = 128,
    ELF_MAX_DYNAMIC = 4096,
    ELF_MAX_SECTIONS = 4096,
    ELF_STRING = 4096, /* of a path or a list of folders, with its NUL */
};

#ifndef DF_1_PIE
#define DF_1_PIE 0x08000000
#endif

/* A loader is a promise about the C library: which one a file is made for. */
enum abi { ABI_NONE, ABI_GLIBC, ABI_MUSL, ABI_OTHER };

enum elf_kind {
    ELF_PROGRAM,  /* asks for a loader */
    ELF_LIBRARY,  /* is loaded by one */
    ELF_LEFT,     /* nothing to seal, for a reason */
};

struct elf {
    const struct input *input;
    Elf64_Ehdr header;
    Elf64_Phdr programs[ELF_MAX_PROGRAMS];
    int interpreter;             /* index of PT_INTERP, or -1 */
    int dynamic;                 /* index of PT_DYNAMIC, or -1 */
    char interpreter_path[ELF_STRING];
    Elf64_Dyn *entries;          /* the dynamic section: all that fits */
    size_t entry_room;
    size_t entry_count;          /* up to and with the first DT_NULL */
    uint64_t strings;            /* DT_STRTAB, an address */
    Elf64_Shdr *sections;        /* NULL: there are none, or they make no sense */
    size_t section_count;
    uint64_t end;                /* behind all that the headers name: what follows is appended data */
};

/* Whether the bytes begin like an ELF file. */
bool elf_has_magic(const void *bytes, size_t length);

/*
 * Reads a file. NULL, or why it isn't one that can be sealed (wrong machine, damaged...). `elf` must be given to
 * elf_close in either case; `input` must outlive it.
 */
const char *elf_open(struct elf *elf, const struct input *input);
void elf_close(struct elf *elf);

/* What the file is; `*reason` says why it is left, for ELF_LEFT. */
enum elf_kind elf_kind(const struct elf *elf, const char **reason);

/* For programs by their loader's name; for libraries by the C library that they need. */
enum abi elf_abi(const struct elf *elf);

/* The first entry of this tag at or behind `from`; -1: none. */
int elf_find(const struct elf *elf, int64_t tag, size_t from);

/* The string that an entry names; false when it lies outside the file's loaded parts, or is too long. */
bool elf_string(const struct elf *elf, size_t entry, char to[ELF_STRING]);

/* Where an address lies in the file; `*limit` is where its segment's bytes end. */
bool elf_offset(const struct elf *elf, uint64_t address, uint64_t *offset, uint64_t *limit);

/* Whether some DT_NEEDED entry has this name. */
bool elf_needs(const struct elf *elf, const char *name);

#endif
