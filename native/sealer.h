/* One run of seal-tree: what its steps share. */
#ifndef CAPSULE_SEALER_H
#define CAPSULE_SEALER_H

#include "replace.h"
#include "script.h"
#include "tree.h"

/* A file that is sealed after the walk: an ELF file, or one with several names. */
struct item {
    char *path;
    char *python;
    char **links; /* its other names, NULL at the end; NULL: it has no others */
    struct stat info;
};

struct items {
    struct item *entries;
    size_t count;
    size_t room;
};

struct sealer {
    struct tree tree;
    struct report report;
    struct interpreters interpreters;
    struct items linked;    /* files with more than one name, in the order of the walk */
    struct elf_files *elf;  /* seal_elf.c's own */
};

/* Adds an item with copies of the strings. */
struct item *items_add(struct items *items, const char *path, const char *python, const struct stat *info);
void item_free(struct item *item);

/* The absolute path of a path below the root. */
char *absolute_path(const struct sealer *sealer, const char *path);

/* Seals a script at once. */
void seal_script(struct sealer *sealer, const struct candidate *candidate, char **links);

/* Notes an ELF file; seal_elf_files decides about all of them together, since one may load another. */
void note_elf_file(struct sealer *sealer, const struct candidate *candidate, char **links);
void seal_elf_files(struct sealer *sealer);

#endif
