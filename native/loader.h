/* The private loaders and libraries of the capsule, and what loaders say about a program. */
#ifndef CAPSULE_LOADER_H
#define CAPSULE_LOADER_H

#include "elf_file.h"
#include "text.h"

/* The private closure of one ABI. */
struct closure {
    const char *loader;
    const char *folder;
};

const struct closure *closure_of(enum abi abi);

/* Whether the private folder of this ABI has a library of this name. */
bool closure_has(enum abi abi, const char *name);

/* What a loader says about a program. */
struct answer {
    bool loadable;
    struct text reason; /* why it isn't */
    char **libraries;   /* where it found the program's libraries: absolute paths */
    size_t library_count;
};

/*
 * Asks the loader that the program itself names. It is asked only when it is there, is for this machine and of the
 * program's own ABI: musl's loader says that it can load a glibc program. It lists and runs nothing of the program.
 */
void loader_ask(const char *loader, enum abi abi, const char *program, struct answer *answer);

/* Asks the private loader, with the private libraries, about a program that need not be sealed yet. */
void loader_ask_private(enum abi abi, const char *program, struct answer *answer);
void answer_free(struct answer *answer);

#endif
