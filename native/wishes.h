/* What a program or library must ask for to run on the capsule's closure. */
#ifndef CAPSULE_WISHES_H
#define CAPSULE_WISHES_H

#include "elf_edit.h"

/*
 * Works out the wish for a file at an absolute path. It is empty where the file asks for all of that already. NULL,
 * or why a library needs nothing. `*rpath` holds the wish's list and is to be freed.
 *
 * glibc: the private folder at the end of one DT_RPATH, which goes before LD_LIBRARY_PATH and is passed on to what
 * is loaded. musl looks at LD_LIBRARY_PATH before any path of the file: private libraries are named absolutely.
 */
const char *wish_for(const struct elf *elf, const char *path, bool program, struct wish *wish, char **rpath);

bool wish_is_empty(const struct wish *wish);

#endif
